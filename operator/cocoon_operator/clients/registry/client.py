"""The registry as decisions see it: probe, inspect, drop and copy a manifest (contract 8.4, design 4.3).

Every method answers, none raises. What is not surely present or surely absent is :class:`Unknown` (invariant I6).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, Self

from yarl import URL

from cocoon_operator.api.answers import Absent, Answer, Done, Present, Refused, Unknown, WriteAnswer
from cocoon_operator.clients.registry.auth import Authorizer, Grant
from cocoon_operator.clients.registry.credentials import DockerKeychain, Keychain, Keychains
from cocoon_operator.clients.registry.failures import AuthRefusedError, NoAnswerError, RegistryError
from cocoon_operator.clients.registry.google import GoogleKeychain
from cocoon_operator.clients.registry.manifests import (
    ACCEPT,
    Manifest,
    Target,
    is_registrys_own,
    read_digest,
    read_length,
    read_manifest,
    refusal,
)
from cocoon_operator.clients.registry.patience import Patience
from cocoon_operator.clients.registry.reference import RegistryAddress, is_digest, is_tag
from cocoon_operator.clients.registry.tls import ClientCertificate
from cocoon_operator.clients.registry.tokens import EVERYTHING, READ, TOKENS_KEPT, TokenCache
from cocoon_operator.clients.registry.transport import Reply, RequestHook, Transport

# 4xx that do not say whether the request was carried out: somebody between gave up waiting.
_GAVE_UP: Final = frozenset({408, 499})


class RegistryClient:
    """The registry below one ``OCI_REGISTRY``.

    Open connections belong to the event loop that first asks; use it as ``async with`` or call :meth:`close`.

    ``on_request(kind, code, seconds)`` is told every HTTP request: kind ``handshake``, ``token``, ``probe`` (HEAD), ``inspect``
    (GET), ``drop`` (DELETE) or ``copy`` (PUT), code the HTTP status or a word (see :class:`Transport`). ``env`` is the
    environment for proxies and, without a ``keychain``, for credentials. ``clock`` is monotonic, in seconds. With a
    ``client_certificate``, nothing is asked without TLS.
    """

    def __init__(
        self,
        address: RegistryAddress,
        *,
        keychain: Keychain | None = None,
        patience: Patience | None = None,
        on_request: RequestHook | None = None,
        tls: ssl.SSLContext | None = None,
        client_certificate: ClientCertificate | None = None,
        env: Mapping[str, str] | None = None,
        tokens_kept: int = TOKENS_KEPT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._patience = patience or Patience()
        self._transport = Transport(
            attempt=self._patience.attempt,
            on_request=on_request,
            tls=tls,
            client_certificate=client_certificate,
            env=env,
        )
        self._tokens = TokenCache(self._transport, limit=tokens_kept, clock=clock)
        keychain = keychain or Keychains(GoogleKeychain(), DockerKeychain(env, clock=clock))
        self._auth = Authorizer(address, keychain, self._tokens, self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Later questions are answered with :class:`Unknown`."""
        await self._transport.close()

    async def probe(self, vm_name: str, reference: str) -> Answer:
        """Ask whether a manifest exists (HEAD), within ``Patience.total`` (S324)."""
        return await self._answer(vm_name, reference, self._probe)

    async def inspect(self, vm_name: str, reference: str) -> Answer:
        """As :meth:`probe`, by fetching the manifest (GET): its bytes are checked and ``base_image`` is told."""
        return await self._answer(vm_name, reference, self._inspect)

    async def drop(self, vm_name: str, tag: str) -> WriteAnswer:
        """Untag with one DELETE that is never repeated (S325); absent already is :class:`Done`.

        Only a 401, which says that nothing was done, is followed by a second one, with fresh credentials. Handshake and token,
        where they are needed, are tried once. All of it is bounded by ``Patience.total``; a 404 that a registry does not own
        up to is then verified by a probe. Dropping a digest is refused: it would take every tag of that digest along.
        """
        try:
            target = self._target(vm_name, tag)
            if is_digest(tag):
                return Refused(f"{target.name} is not a tag: dropping a digest would drop every tag that it has")
            reply = await self._patience.within_total(self._write("drop", "DELETE", target))
            return await self._dropped(target, reply)
        except AuthRefusedError as error:
            return Refused(error.reason)
        except RegistryError as error:
            return Unknown(error.reason)

    async def copy(self, vm_name: str, source: str, tag: str) -> WriteAnswer:
        """Put the manifest behind ``source`` under ``tag`` too, byte for byte, and verify it.

        Three steps, each within ``Patience.total``: fetch (retried), put (one request), ask for the tag's digest (retried).
        """
        try:
            target = self._target(vm_name, tag)
            origin = self._target(vm_name, source)
            if is_digest(tag):
                return Refused(f"{target.name} is not a tag")
            manifest = await self._patience.persist(lambda: self._fetch(origin))
            if manifest is None:
                return Refused(f"{origin.name} does not exist")
            reply = await self._patience.within_total(self._write("copy", "PUT", target, manifest))
        except AuthRefusedError as error:
            return Refused(error.reason)
        except RegistryError as error:
            return Unknown(error.reason)
        if reply.status not in {200, 201, 202}:
            return _not_done(reply, refusal(reply, target, "PUT").reason)
        return _verified(target, manifest, await self.probe(vm_name, tag))

    def _target(self, vm_name: str, reference: str) -> Target:
        repository = self._address.repository(vm_name)
        if not (is_tag(reference) or is_digest(reference)):
            raise RegistryError(f"{reference!r} is neither a tag nor a sha256 digest")
        return Target(repository, reference)

    async def _answer(self, vm_name: str, reference: str, question: Callable[[Target], Awaitable[Answer]]) -> Answer:
        try:
            target = self._target(vm_name, reference)
            return await self._patience.persist(lambda: question(target))
        except RegistryError as error:
            return Unknown(error.reason)

    async def _probe(self, target: Target) -> Answer:
        reply = await self._exchange("probe", "HEAD", target)
        if reply.status == 200:
            read_length(reply, target)
            return Present(read_digest(reply, target))
        if reply.status == 404:
            # A HEAD cannot say who answers. Where its headers do not, the same question with a body does (W-09).
            return Absent() if is_registrys_own(reply) else await self._inspect(target)
        raise refusal(reply, target, "HEAD")

    async def _inspect(self, target: Target) -> Answer:
        manifest = await self._fetch(target)
        return Absent() if manifest is None else Present(manifest.digest, manifest.base_image)

    async def _fetch(self, target: Target) -> Manifest | None:
        reply = await self._exchange("inspect", "GET", target)
        if reply.status == 200:
            return read_manifest(reply, target)
        if reply.status == 404:
            if not is_registrys_own(reply):
                await self._auth.confirm_registry()
            return None
        raise refusal(reply, target, "GET")

    async def _dropped(self, target: Target, reply: Reply) -> WriteAnswer:
        if reply.status in {200, 202}:
            return Done()
        if reply.status == 404:
            return Done() if is_registrys_own(reply) else await self._gone(target)
        reason = refusal(reply, target, "DELETE").reason
        if reply.status == 405:
            reason += ": deletes are disabled in the registry, enable them there"
        return _not_done(reply, reason)

    async def _gone(self, target: Target) -> WriteAnswer:
        # A proxy's 404 taken for the registry's would leave the tag of a VM that lives on (design 4.3 rule 2).
        try:
            found = await self._patience.persist(lambda: self._probe(target))
        except RegistryError as error:
            return Unknown(error.reason)
        if isinstance(found, Absent):
            return Done()
        return Unknown(f"DELETE {target.name} was answered 404, but the tag is there")

    async def _write(self, kind: str, method: str, target: Target, manifest: Manifest | None = None) -> Reply:
        return await self._exchange(kind, method, target, manifest, actions=EVERYTHING)

    async def _exchange(
        self, kind: str, method: str, target: Target, manifest: Manifest | None = None, *, actions: str = READ
    ) -> Reply:
        """Send one request with what authorizes it; after a 401 once more, with fresh credentials, if there are any."""
        headers = {"Accept": ACCEPT} if manifest is None else {"Content-Type": manifest.content_type}
        body = None if manifest is None else manifest.body

        async def send(grant: Grant) -> Reply:
            url = URL(f"{grant.base}/v2/{target.repository}/manifests/{target.reference}", encoded=True)
            return await self._transport.send(kind, method, url, headers={**headers, **grant.headers}, body=body)

        try:
            grant = await self._auth.authorize(target.repository, actions)
            reply = await send(grant)
            if reply.status == 401:
                renewed = await self._auth.renew(grant, reply, target.repository, actions)
                reply = reply if renewed is None else await send(renewed)
        except NoAnswerError:
            self._auth.forget_handshake()
            raise
        except AuthRefusedError:
            self._auth.forget(target.repository)
            raise
        self._learn(reply, target)
        return reply

    def _learn(self, reply: Reply, target: Target) -> None:
        if reply.status in {401, 403}:
            self._auth.forget(target.repository)
        if reply.status == 400:
            # What a TLS server says to plain http, among others.
            self._auth.forget_handshake()


def _not_done(reply: Reply, reason: str) -> WriteAnswer:
    refused = 400 <= reply.status < 500 and reply.status not in _GAVE_UP
    return Refused(reason) if refused else Unknown(reason)


def _verified(target: Target, manifest: Manifest, found: Answer) -> WriteAnswer:
    match found:
        case Present(digest=digest) if digest == manifest.digest:
            return Done()
        case Present(digest=digest):
            return Unknown(f"{target.name} was put as {manifest.digest}, but is {digest}")
        case Absent():
            return Unknown(f"{target.name} was put, but is not there")
        case Unknown():
            return found
