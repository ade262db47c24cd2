"""How a request gets its ``Authorization``: one handshake for the registry, one token for a repository (contract 8.4).

Only what worked is remembered (W-08). What was remembered is dropped as soon as the registry refuses it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from yarl import URL

from cocoon_operator.clients.registry.challenge import Challenge, choose_challenge
from cocoon_operator.clients.registry.credentials import Credential, Keychain
from cocoon_operator.clients.registry.failures import AuthRefusedError, NoAnswerError, RegistryError
from cocoon_operator.clients.registry.patience import TRANSIENT_STATUSES, parse_retry_after
from cocoon_operator.clients.registry.reference import RegistryAddress
from cocoon_operator.clients.registry.tokens import TokenCache, TokenService, authorization, parse_service
from cocoon_operator.clients.registry.transport import Reply, Transport

_NO_TLS_THERE: Final = frozenset({"tls", "connect", "lost"})


@dataclass(frozen=True, slots=True)
class Handshake:
    """What ``GET /v2/`` told: the scheme that works and what the registry asks for.

    ``service`` sells the tokens that it asks for. Without one, credentials are shown as Basic, also to a registry that lets
    strangers in: it may hide from them what exists.
    """

    base: str
    service: TokenService | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """What to send a request with. ``headers`` carries the secret."""

    base: str
    headers: dict[str, str] = field(repr=False)


class Authorizer:
    """The authentication of one registry."""

    def __init__(self, address: RegistryAddress, keychain: Keychain, tokens: TokenCache, transport: Transport) -> None:
        self._address = address
        self._keychain = keychain
        self._tokens = tokens
        self._transport = transport
        self._known: Handshake | None = None
        self._shaking = asyncio.Lock()

    async def authorize(self, repository: str, actions: str) -> Grant:
        """Return a grant for actions on a repository; raises :class:`RegistryError` in all its kinds."""
        credential = await self._keychain.resolve(self._address.host, repository)
        known = self._known or await self._first_handshake()
        return await self._grant(known, credential, repository, actions)

    async def renew(self, grant: Grant, refusal: Reply, repository: str, actions: str) -> Grant | None:
        """Return another grant after a 401, from fresh credentials and the challenge that came with it.

        None when there is nothing else to show.
        """
        self.forget(repository)
        known = self._known or Handshake(grant.base)
        challenge = choose_challenge(refusal.headers.getall("WWW-Authenticate", ()))
        if challenge is not None:
            known = _met_by(challenge, known.base)
        credential = await self._keychain.resolve(self._address.host, repository)
        also = challenge.get("scope") if challenge is not None else ""
        renewed = await self._grant(known, credential, repository, actions, also=also)
        self._known = known
        return renewed if renewed.headers != grant.headers else None

    def forget(self, repository: str) -> None:
        """Drop what was remembered of credentials and tokens: the registry refused them."""
        self._tokens.forget(repository)
        self._keychain.forget()

    def forget_handshake(self) -> None:
        """Shake hands again before the next request: what answers there may be something else by then."""
        self._known = None

    async def confirm_registry(self) -> None:
        """Raise :class:`RegistryError` unless a registry answers at ``/v2/`` right now (W-09)."""
        async with self._shaking:
            self._known = None
            self._known = await self._shake_hands()

    async def _first_handshake(self) -> Handshake:
        async with self._shaking:
            if self._known is None:
                self._known = await self._shake_hands()
            return self._known

    async def _shake_hands(self) -> Handshake:
        # Who configures a certificate expects TLS: another listener must not be shown the login instead.
        *others, last = ("https",) if self._transport.identifies_itself else self._address.schemes
        for scheme in others:
            try:
                return await self._greet(scheme)
            except NoAnswerError as error:
                if error.kind not in _NO_TLS_THERE:
                    raise
        return await self._greet(last)

    async def _greet(self, scheme: str) -> Handshake:
        base = f"{scheme}://{self._address.host}"
        reply = await self._transport.send("handshake", "GET", URL(f"{base}/v2/", encoded=True))
        if reply.status == 200:
            return Handshake(base)
        if reply.status == 401:
            challenge = choose_challenge(reply.headers.getall("WWW-Authenticate", ()))
            if challenge is None:
                raise RegistryError(f"{self._address.host} asks for an authentication other than Bearer and Basic")
            return _met_by(challenge, base)
        raise self._no_handshake(reply)

    def _no_handshake(self, reply: Reply) -> RegistryError:
        host = self._address.host
        if reply.status == 403:
            return AuthRefusedError(f"{host} refuses everybody (403)")
        if reply.status == 404:
            return RegistryError(
                f"{host} answers 404 to /v2/, so no registry answers there: check OCI_REGISTRY and proxies"
            )
        return RegistryError(
            f"{host} answered {reply.status} to /v2/",
            transient=reply.status in TRANSIENT_STATUSES,
            retry_after=parse_retry_after(reply.headers.get("Retry-After")),
        )

    async def _grant(
        self, known: Handshake, credential: Credential, repository: str, actions: str, *, also: str = ""
    ) -> Grant:
        if credential.registry_token:
            return Grant(known.base, authorization(f"Bearer {credential.registry_token}"))
        if known.service is None:
            return Grant(known.base, authorization(credential.basic))
        token = await self._tokens.get(known.service, repository, credential, actions, also=also)
        return Grant(known.base, authorization(f"Bearer {token}"))


def _met_by(challenge: Challenge, base: str) -> Handshake:
    if challenge.scheme == "basic":
        return Handshake(base)
    return Handshake(base, service=parse_service(challenge, secure=base.startswith("https:")))
