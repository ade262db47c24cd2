"""How pods reach the agent's operations, with the framework's mechanics (R1.15-R1.20, R1.33-R1.36)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cocoon_devkit.agent import livesnapshot, podview, wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.create import create_pod
from cocoon_devkit.agent.delete import delete_pod
from cocoon_devkit.agent.update import update_pod
from cocoon_devkit.agent.wire import Obj
from cocoon_devkit.agent.workqueue import WorkQueue


class PodSync:
    """Two queues, as in the framework: one syncs pods into the agent, one force-deletes them from the API."""

    def __init__(self, context: Callable[[], Context], workers: int) -> None:
        self._get_context = context
        self._workers = workers
        self._last_synced: dict[str, Obj] = {}

    def prepare(self) -> None:
        """Make the queues, once the context exists."""
        self._context = self._get_context()
        windows = self._context.windows
        self._pods = WorkQueue(self._sync, self._workers, windows)
        self._deletes = WorkQueue(self._delete_from_api, 8, windows)

    def start(self) -> None:
        """Take everything that is known already into the queue, and begin to work (R1.30)."""
        self._pods.start()
        self._deletes.start()
        for key in self._context.informer.store:
            self._pods.add(key)

    async def stop(self) -> None:
        await asyncio.gather(self._pods.stop(), self._deletes.stop())

    def on_change(self, old: Obj | None, new: Obj | None) -> None:
        """Take an informer event in. Status alone is no news for the framework."""
        if new is None:
            assert old is not None
            self._last_synced.pop(_identity(old), None)
            self._deletes.forget(_identity(old))
            self._pods.add(podview.key_of(old))
            return
        self._refresh_keep_flag(new)
        self._refuse_early(new)
        if old is None or not _same_but_status(old, new):
            self._pods.forget(podview.key_of(new))
            self._pods.add(podview.key_of(new))

    def _refresh_keep_flag(self, pod: Obj) -> None:
        """A hibernated pod is force-deleted without an update: its copy learns the keep flag here (R1.35, R4.7, F-13)."""
        context = self._context
        tracked = context.table.get(podview.key_of(pod))
        if tracked is None or tracked.uid != podview.uid_of(pod) or not context.settings.keep_from_informer:
            return
        if podview.flag(pod, wire.KEEP_SNAPSHOT) and not podview.flag(tracked.pod, wire.KEEP_SNAPSHOT):
            notes = {**podview.notes(tracked.pod), wire.KEEP_SNAPSHOT: "true"}
            tracked.replace_pod({**tracked.pod, "metadata": {**tracked.pod["metadata"], "annotations": notes}})

    def _refuse_early(self, pod: Obj) -> None:
        """A strict agent answers a request that meets a bring-up at once, instead of after it (R3.23, N154)."""
        context = self._context
        tracked = context.table.get(podview.key_of(pod))
        if context.settings.live_snapshot != "strict" or tracked is None or tracked.uid != podview.uid_of(pod):
            return
        ref = livesnapshot.owed(context, tracked, pod)
        asked_now = ref and ref != podview.annotation(tracked.pod, wire.SNAPSHOT)
        if asked_now and tracked.work.locked() and not tracked.has_vm and ref not in tracked.answers:
            context.background(tracked, "refuse", livesnapshot.refuse(context, tracked, ref))

    # -- syncing ----------------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        pod = self._context.informer.store.get(key)
        if pod is None:
            await self._vanished(key)
            return
        if podview.deleting(pod) and (not podview.has_live_container(pod) or self._races(pod)):
            self._deletes.add(_identity(pod))
            return
        last = self._last_synced.get(_identity(pod))
        if last is not None and _same_but_status(last, pod):
            return
        if podview.deleting(pod):
            await self._delete(pod)
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            self._deletes.add_later(_identity(pod), grace)
        elif not podview.terminal(pod):
            await self._create_or_update(pod)
        self._last_synced[_identity(pod)] = pod

    def _races(self, pod: Obj) -> bool:
        """Whether the object shall be gone before the agent's delete work, as that of a pod that does not run (F-21)."""
        return self._context.faults.strikes("delete-race", podview.annotation(pod, wire.VM_NAME))

    async def _vanished(self, key: str) -> None:
        """The pod is gone from the API: only now the agent hears of it, with its own copy in hand (R1.35)."""
        tracked = self._context.table.get(key)
        if tracked is not None:
            await self._delete(tracked.pod)

    async def _create_or_update(self, pod: Obj) -> None:
        tracked = self._context.table.get(podview.key_of(pod))
        if tracked is None:
            await self._call("Create", pod)
        elif (
            tracked.uid != podview.uid_of(pod)
            or not podview.same_for_provider(tracked.pod, pod)
            # The agent's own patches come back as updates (R1.16): one that finds the VM running serves what waited for it.
            or livesnapshot.owed(self._context, tracked, pod)
        ):
            await self._call("Update", pod)

    async def _delete(self, pod: Obj) -> None:
        await self._call("Delete", pod)

    async def _call(self, verb: str, pod: Obj) -> None:
        """Call the provider; report an error as the framework does, and let the queue retry (R1.18)."""
        context = self._context
        operation = {"Create": create_pod, "Update": update_pod, "Delete": delete_pod}[verb]
        context.journal.provider(verb.lower(), pod=podview.key_of(pod), uid=podview.uid_of(pod))
        try:
            await operation(context, pod)
        except Exception as error:
            context.journal.provider(f"{verb.lower()}-failed", pod=podview.key_of(pod), error=str(error))
            context.api.event(pod, "Warning", f"Provider{verb}Failed", str(error))
            if verb != "Delete":
                await context.statuses.push_provider_failed(pod, str(error))
            raise
        if verb != "Delete" or podview.key_of(pod) in context.informer.store:
            context.api.event(pod, "Normal", f"Provider{verb}Success", f"{verb} pod in provider")

    # -- deleting from the API --------------------------------------------------------------------------------------

    async def _delete_from_api(self, identity: str) -> None:
        key, _, uid = identity.rpartition("/")
        pod = self._context.informer.store.get(key)
        if pod is None or podview.uid_of(pod) != uid:
            return
        await self._context.api.delete(pod, grace=0)


def _identity(pod: Obj) -> str:
    return f"{podview.key_of(pod)}/{podview.uid_of(pod)}"


def _same_but_status(left: Obj, right: Obj) -> bool:
    return _without_noise(left) == _without_noise(right)


def _without_noise(pod: Obj) -> Obj:
    noise = {"resourceVersion", "managedFields"}
    metadata = {name: value for name, value in pod["metadata"].items() if name not in noise}
    return {"metadata": metadata, "spec": pod.get("spec")}
