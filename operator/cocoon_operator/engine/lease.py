"""Leader election by the Lease of the Go operator, with client-go's rules, so that the two never act at once (I9).

- Whether somebody else's Lease has run out is judged by how long *we* saw it unchanged, never by comparing clocks.
- The leader stops when it could not renew for ``renew_deadline`` seconds, counted from the *start* of the last renewal that
  worked. That is before the Lease runs out, so that nobody else can have won it by then.
- Every write of the operator is limited to that moment too (:meth:`Elector.remaining`).
- A graceful end gives the Lease back, so that a successor need not wait.
- A Lease that somebody deleted is no free Lease: its leader makes it again, and who saw that leader waits for it as before.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from cocoon_operator.api import keys
from cocoon_operator.api.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.clients.kubernetes.resources import LEASES
from cocoon_operator.engine.clock import elapsed, rfc3339_micro
from cocoon_operator.reconcile.ports import Clock

log = structlog.get_logger(__name__)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Periods:
    """Seconds; the defaults are the contract's (8.3). Others see whole seconds of ``lease``, never less than it is."""

    lease: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease > self.renew_deadline > self.retry * 1.2:
            raise ValueError("the lease must outlast the renew deadline, and that the retry period with its jitter")


@dataclass(frozen=True, slots=True)
class Observed:
    """A Lease as it was last seen: its object, and when its content was first seen, on the clock of ``elapsed``."""

    lease: Object
    at: float

    @property
    def spec(self) -> Mapping[str, Any]:
        spec = self.lease.get("spec")
        return spec if isinstance(spec, Mapping) else {}

    def binds(self, identity: str, now: float, unsaid: float) -> bool:
        """Whether somebody other than ``identity`` may lead by it; ``unsaid`` is the length of a Lease that tells none."""
        return self.holder not in {"", identity} and now < self.at + (self.seconds or unsaid)

    @property
    def holder(self) -> str:
        return str(self.spec.get("holderIdentity") or "")

    @property
    def seconds(self) -> float:
        value = self.spec.get("leaseDurationSeconds")
        return float(value) if isinstance(value, int) else 0.0


def new_identity() -> str:
    """Return a holder identity like client-go's: host name and a UUID, so that a restart is somebody else."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """One candidate. :meth:`acquire` waits for the Lease, :meth:`hold` keeps it until it is lost.

    ``client`` should be the elector's own, unfenced and impatient: a busy pool of connections must not cost the Lease.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        namespace: str,
        identity: str = "",
        periods: Periods | None = None,
        timer: Callable[[], float] = elapsed,
    ) -> None:
        self._client = client
        self._clock = clock
        self._timer = timer
        self.namespace = namespace
        self.identity = identity or new_identity()
        self.periods = periods or Periods()
        self._observed: Observed | None = None
        self._renewed_at: float | None = None
        self._lost = False
        self._told = ""

    @property
    def leading(self) -> bool:
        """Whether the Lease is ours now."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """Return for how many seconds this process may still write; 0 or less when it may not (I9)."""
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + self.periods.renew_deadline - self._timer()

    async def acquire(self) -> None:
        """Return when the Lease is ours. Errors are logged and tried again; so is waiting for another holder."""
        while True:
            try:
                if await self._try():
                    log.info("this replica leads", lease=keys.LEASE_NAME, identity=self.identity)
                    return
                self._tell_holder()
            except KubeError as error:
                self._tell(_advice(error, self.namespace))
            await asyncio.sleep(self.periods.retry * (1 + 0.2 * random.random()))  # noqa: S311 - no secret

    async def hold(self) -> None:
        """Renew until renewing failed for too long; returns when the Lease is, or must be taken as, lost."""
        while True:
            await asyncio.sleep(min(self.periods.retry, max(0.0, self.remaining())))
            if not self.leading:
                # Also after a pause of the whole process: somebody else may have won meanwhile.
                break
            try:
                async with asyncio.timeout(max(0.0, self.remaining())):
                    if not await self._try():
                        break
            except (KubeError, TimeoutError) as error:
                log.warning("the Lease could not be renewed", error=str(error) or "no answer", left=self.remaining())
        self._lost, self._renewed_at = True, None

    async def release(self) -> None:
        """Give the Lease back, when it is ours. The caller's work has ended by then, and nothing of it is on the wire.

        A Lease that was lost is left to run out: work was cut off, and its last write may still arrive.
        """
        self._renewed_at = None
        if self._lost:
            return
        try:
            try:
                await self._give_back()
            except ConflictError:
                await self._give_back()
        except KubeError as error:
            log.warning("the Lease could not be given back, a successor has to wait", error=str(error))

    async def _give_back(self) -> None:
        # What was cancelled on the wire, a renewal or the acquisition itself, has happened all the same.
        seen = await self._look()
        if seen is not None and seen.holder == self.identity:
            spec = {**seen.spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
            await self._put({**seen.lease, "spec": spec})

    # -- one try ---------------------------------------------------------------------------------------------------

    async def _try(self) -> bool:
        """Take or renew the Lease. False: somebody else has it."""
        started = self._timer()
        observed = self._observed
        if observed is None or observed.holder != self.identity or not self.leading:
            observed = await self._look()
        try:
            taken = await self._write(observed, started)
        except (ConflictError, NotFoundError):
            # Somebody wrote it since it was seen, maybe only a label, or deleted it: what is there now decides, once.
            taken = await self._write(await self._look(), started)
        if taken:
            self._renewed_at = started
        return taken

    async def _write(self, seen: Observed | None, now: float) -> bool:
        # Who deletes a Lease does not stop its leader.
        last = seen or self._observed
        if last is not None and last.binds(self.identity, now, self.periods.lease):
            return False
        if seen is None:
            return await self._create()
        await self._take(seen)
        return True

    async def _look(self) -> Observed | None:
        try:
            lease = await self._client.get(LEASES, self.namespace, keys.LEASE_NAME, Object)
        except NotFoundError:
            return None
        return self._see(lease)

    async def _create(self) -> bool:
        now = self._now()
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": keys.LEASE_NAME, "namespace": self.namespace},
            "spec": {**self._claim(now), "acquireTime": now, "leaseTransitions": 0},
        }
        try:
            self._see(await self._client.create(LEASES, self.namespace, body, Object))
        except AlreadyExistsError:
            return False
        return True

    async def _take(self, observed: Observed) -> None:
        now = self._now()
        spec = {**observed.spec, **self._claim(now)}
        if observed.holder != self.identity:
            transitions = observed.spec.get("leaseTransitions")
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (transitions if isinstance(transitions, int) else 0) + 1
        await self._put({**observed.lease, "spec": spec})

    async def _put(self, lease: Object) -> None:
        self._see(await self._client.replace(LEASES, self.namespace, keys.LEASE_NAME, lease, Object))

    def _see(self, lease: Object) -> Observed:
        """Remember a Lease; a content that was seen before keeps the time when it was first seen."""
        if self._observed is None or self._observed.lease.get("spec") != lease.get("spec"):
            self._observed = Observed(lease, self._timer())
        else:
            self._observed = Observed(lease, self._observed.at)
        return self._observed

    def _claim(self, now: str) -> Object:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self.periods.lease),
            "renewTime": now,
        }

    def _now(self) -> str:
        return rfc3339_micro(self._clock.now())

    # -- what a person is told -------------------------------------------------------------------------------------

    def _tell_holder(self) -> None:
        holder = self._observed.holder if self._observed is not None else ""
        self._tell(f"{holder} leads; this replica only watches until the Lease is free")

    def _tell(self, text: str) -> None:
        """Log a line when it says something new."""
        if text != self._told:
            self._told = text
            log.info(text, lease=f"{self.namespace}/{keys.LEASE_NAME}")


def _advice(error: KubeError, namespace: str) -> str:
    if isinstance(error, NotFoundError):
        return f"the Lease cannot be created: create the namespace {namespace}, or set POD_NAMESPACE to another"
    return f"the Lease cannot be read or written: {error}"
