"""The Kubernetes API as raw JSON: get, list, watch, create, replace, merge-patch, delete.

Answers are decoded straight into the type that the caller names (a msgspec struct, or plain ``dict``). Reads, and
writes that can be repeated without harm, are retried within one time budget; a write that may have happened and must
not happen twice is sent once, and its error says so (``outcome_known``). No write is sent, or left running, past the
fence (I9).
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast

import aiohttp
import msgspec
import tenacity

from cocoon_operator.api.errors import ExpiredError, KubeError, ThrottledError, UnavailableError
from cocoon_operator.clients.kubernetes.connection import Connection, ConnectionSetupError
from cocoon_operator.clients.kubernetes.failures import (
    FencedError,
    UnsentError,
    error_of_answer,
    error_of_status,
    error_of_transport,
    retry_after,
)
from cocoon_operator.clients.kubernetes.resources import Resource

T = TypeVar("T")

_USER_AGENT: Final = "cocoon-operator"

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"

Observer = Callable[[str, str, str, float], None]
"""Called after every request with verb, resource, HTTP code ("0" without an answer) and seconds."""


class ListMeta(msgspec.Struct, rename="camel"):
    """Where a list ends and what it is worth."""

    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class Listing(msgspec.Struct, Generic[T]):
    """A list of objects at one resourceVersion."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[T] | None = None


class WatchEvent(msgspec.Struct):
    """One line of a watch; ``object`` is still JSON."""

    type: str
    object: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: one attempt, all attempts of a call together, and the silence that ends a watch.

    The API server sends a bookmark about every minute, so that a longer silence means a dead connection.
    """

    attempt: float = 10.0
    budget: float = 25.0
    silence: float = 150.0
    page: int = 500


@dataclass(frozen=True, slots=True)
class _Call:
    verb: str
    method: str
    path: str
    resource: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    repeatable: bool = True

    @property
    def writes(self) -> bool:
        return self.method != "GET"


class KubeClient:
    """One session to one API server. Every method raises only :class:`KubeError`."""

    def __init__(
        self,
        connection: Connection,
        *,
        limits: Limits | None = None,
        observe: Observer | None = None,
        fence: Callable[[], float] | None = None,
    ) -> None:
        self.connection = connection
        self._limits = limits or Limits()
        self._observe = observe
        self._fence = fence or (lambda: math.inf)
        self._session: aiohttp.ClientSession | None = None

    def set_fence(self, remaining: Callable[[], float]) -> None:
        """Allow writes only while ``remaining()`` is positive, and for that many seconds at most (I9)."""
        self._fence = remaining

    async def close(self) -> None:
        """Close the session. The client can be used again afterwards."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # -- reads --------------------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, namespace: str, name: str, kind: type[T]) -> T:
        """Read one object live."""
        call = _Call("get", "GET", resource.path(namespace, name), resource.plural)
        return _decode(await self._send(call), kind)

    async def get_path(self, path: str) -> dict[str, Any]:
        """Read a document that is no object, such as a discovery document or ``/version``."""
        return _decode(await self._send(_Call("get", "GET", path, "")), dict[str, Any])

    async def list_objects(
        self, resource: Resource, kind: type[T], *, namespace: str | None = None, selector: str = ""
    ) -> tuple[list[T], str]:
        """List live, in pages; return the objects and the list's resourceVersion."""
        try:
            return await self._pages(resource, kind, namespace, selector, self._limits.page)
        except ExpiredError:
            # The continue token outlived the compaction; one unpaged list is the only consistent answer.
            return await self._pages(resource, kind, namespace, selector, 0)

    async def _pages(
        self, resource: Resource, kind: type[T], namespace: str | None, selector: str, limit: int
    ) -> tuple[list[T], str]:
        query = {"labelSelector": selector} if selector else {}
        if limit:
            query["limit"] = str(limit)
        items: list[T] = []
        while True:
            call = _Call("list", "GET", resource.path(namespace), resource.plural, query)
            page = _decode(await self._send(call), Listing[kind])  # type: ignore[valid-type]
            items += page.items or []
            if not page.metadata.next:
                return items, page.metadata.resource_version
            query = {**query, "continue": page.metadata.next}

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        seconds: int,
        namespace: str | None = None,
        selector: str = "",
        fields: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """Yield what happens after ``resource_version``, bookmarks included; the server ends it after ``seconds``.

        Without a version what is there comes first, as events. ``selector`` is by labels, ``fields`` by fields.

        Raises :class:`ExpiredError` when the version is too old, :class:`UnavailableError` also after a long silence.
        """
        query = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        if selector:
            query["labelSelector"] = selector
        if fields:
            query["fieldSelector"] = fields
        call = _Call("watch", "GET", resource.path(namespace), resource.plural, query)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._limits.attempt, sock_read=self._limits.silence)
        async for line in self._lines(call, timeout):
            event = _decode(line, WatchEvent)
            if event.type == "ERROR":
                raise error_of_status(bytes(event.object))
            yield event

    async def _lines(self, call: _Call, limits: aiohttp.ClientTimeout) -> AsyncIterator[bytes]:
        started = time.monotonic()
        code = 0
        try:
            async with self._open().request(
                call.method,
                self.connection.server + call.path,
                params=call.query,
                timeout=limits,
                allow_redirects=False,
            ) as answer:
                code = answer.status
                if code != 200:
                    raise error_of_answer(code, answer.headers, await answer.read())
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise error_of_transport(error) from error
        except ConnectionSetupError as error:
            raise UnsentError(str(error)) from error
        finally:
            self._tell(call, code, started)

    # -- writes -------------------------------------------------------------------------------------------------------

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], kind: type[T]) -> T:
        """Create an object. Never repeated once it may have been seen: two creates could make two."""
        call = _Call("create", "POST", resource.path(namespace), resource.plural, body=_encode(body), repeatable=False)
        return _decode(await self._send(call), kind)

    async def replace(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any], kind: type[T]) -> T:
        """Replace an object whole; its resourceVersion is the precondition."""
        path = resource.path(namespace, name)
        call = _Call("update", "PUT", path, resource.plural, body=_encode(body), repeatable=False)
        return _decode(await self._send(call), kind)

    async def merge_patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        kind: type[T],
        *,
        subresource: str = "",
    ) -> T:
        """Merge-patch an object or its subresource; ``uid`` and ``resourceVersion`` in it are preconditions.

        With a resourceVersion a repetition would fail on the success of the first try, so that it is not repeated.
        """
        guarded = "resourceVersion" in body.get("metadata", {})
        path = resource.path(namespace, name, subresource)
        call = _Call(
            "patch",
            "PATCH",
            path,
            resource.plural,
            body=_encode(body),
            content_type=MERGE_PATCH,
            repeatable=not guarded,
        )
        return _decode(await self._send(call), kind)

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", resource_version: str = ""
    ) -> dict[str, Any]:
        """Delete an object with its own grace period; return the answer: the object, or a ``Status``."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {key: value for key, value in preconditions.items() if value},
        }
        path = resource.path(namespace, name)
        call = _Call("delete", "DELETE", path, resource.plural, body=_encode(body), repeatable=not resource_version)
        return _decode(await self._send(call), dict[str, Any])

    # -- one call -----------------------------------------------------------------------------------------------------

    async def _send(self, call: _Call) -> bytes:
        deadline = time.monotonic() + self._limits.budget
        doubt: list[KubeError] = []
        try:
            async for attempt in _retrying(call, self._limits.budget):
                with attempt:
                    return await self._attempt(call, deadline, doubt)
        except KubeError as error:
            if doubt and call.writes and isinstance(error, UnsentError | ThrottledError | FencedError):
                # The last attempt did not happen, but one before it may have.
                raise doubt[-1] from error
            raise
        raise AssertionError("tenacity ends with an answer or an error")

    async def _attempt(self, call: _Call, deadline: float, doubt: list[KubeError]) -> bytes:
        try:
            return await self._exchange(call, deadline)
        except KubeError as error:
            if not error.outcome_known:
                doubt.append(error)
            raise

    async def _exchange(self, call: _Call, deadline: float) -> bytes:
        seconds = self._seconds(call, deadline)
        query = {**call.query, "timeout": f"{math.ceil(seconds)}s"} if call.writes else call.query
        started = time.monotonic()
        code = 0
        try:
            async with self._open().request(
                call.method,
                self.connection.server + call.path,
                params=query,
                data=call.body,
                headers={"Content-Type": call.content_type, "Accept": JSON},
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as answer:
                code = answer.status
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise error_of_transport(error) from error
        except ConnectionSetupError as error:
            raise UnsentError(str(error)) from error
        finally:
            self._tell(call, code, started)
        if not 200 <= code < 300:
            raise error_of_answer(code, answer.headers, body)
        return body

    def _seconds(self, call: _Call, deadline: float) -> float:
        seconds = max(0.1, min(self._limits.attempt, deadline - time.monotonic()))
        if not call.writes:
            return seconds
        allowed = self._fence()
        if allowed <= 0:
            raise FencedError(f"not the leader: {call.verb} of {call.resource} was not sent")
        return min(seconds, allowed)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = self.connection.open_session(user_agent=_USER_AGENT)
        return self._session

    def _tell(self, call: _Call, code: int, started: float) -> None:
        if self._observe is not None:
            self._observe(call.verb, call.resource, str(code), time.monotonic() - started)


def _retrying(call: _Call, budget: float) -> tenacity.AsyncRetrying:
    return tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(lambda error: _may_repeat(call, error)),
        stop=tenacity.stop_before_delay(budget),
        wait=_wait,
        reraise=True,
    )


def _may_repeat(call: _Call, error: BaseException) -> bool:
    if isinstance(error, ThrottledError | UnsentError):
        return True
    return isinstance(error, UnavailableError) and call.repeatable


def _wait(state: tenacity.RetryCallState) -> float:
    backoff = tenacity.wait_exponential_jitter(multiplier=0.2, max=5.0, jitter=0.2)
    error = state.outcome.exception() if state.outcome is not None else None
    return max(backoff(state), retry_after(error))


def _encode(body: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(body)


@functools.cache
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("Any", kind))


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        decoder: msgspec.json.Decoder[T] = _decoder(cast("Hashable", kind))
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise UnavailableError(f"the API server's answer cannot be read: {error}") from error
