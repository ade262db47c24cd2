"""Bearer tokens of a registry's token service (contract 8.4, W-40)."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from yarl import URL

from cocoon_operator.clients.registry.challenge import Challenge
from cocoon_operator.clients.registry.credentials import Credential
from cocoon_operator.clients.registry.failures import AuthRefusedError, RegistryError
from cocoon_operator.clients.registry.patience import TRANSIENT_STATUSES, parse_retry_after
from cocoon_operator.clients.registry.reference import is_loopback
from cocoon_operator.clients.registry.transport import Reply, Transport

READ: Final = "pull"
EVERYTHING: Final = "pull,push,delete"
TOKENS_KEPT: Final = 1024

_LIFETIME_UNTOLD: Final = 60.0
_LONGEST_LIFETIME: Final = 86_400.0
_LARGEST_SKEW: Final = 60.0
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_CLIENT_ID: Final = "cocoon-operator"
_HOSTNAME: Final = re.compile(r"[0-9A-Za-z.:_-]{1,253}")
_OWN_SCOPE: Final = re.compile(r"repository(?:\([a-z]+\))?:(?P<repository>[^:]+):(?:\*|[a-z_]+(?:,[a-z_]+)*)")


class _Answer(msgspec.Struct):
    token: str | None = None
    access_token: str | None = None
    expires_in: object = None


_DECODER: Final = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True, slots=True)
class _Entry:
    token: str = field(repr=False)
    actions: str
    credential: Credential
    until: float


@dataclass(frozen=True, slots=True)
class TokenService:
    """Where a Bearer challenge sends its client: the realm, and the name that the registry has there."""

    realm: URL
    name: str = ""


def parse_service(challenge: Challenge, *, secure: bool) -> TokenService:
    """Read a Bearer challenge. A registry reached by TLS (``secure``) must not send credentials to a plain http service.

    Raises :class:`RegistryError`.
    """
    try:
        realm = URL(challenge.get("realm"))
    except ValueError:
        raise RegistryError("the registry names a token service that is no address") from None
    host = realm.raw_host or ""
    if realm.scheme not in {"http", "https"} or not _HOSTNAME.fullmatch(host):
        raise RegistryError("the registry names a token service that is no http address")
    if realm.raw_user is not None or realm.raw_password is not None:
        raise RegistryError(f"the registry names the token service {host} with credentials of its own")
    if secure and realm.scheme == "http" and not is_loopback(host):
        raise RegistryError(f"the registry names the token service {host} without TLS: credentials are not sent there")
    return TokenService(realm, challenge.get("service"))


class TokenCache:
    """Tokens by repository, each for all actions, so that a probe's token serves the drop that follows it.

    At most ``limit`` are kept, the least recently used goes first. A token counts as expired a fifth of its life early (60 s
    at most), and as soon as the credential it was bought with is another. ``clock`` is monotonic, in seconds.
    """

    def __init__(
        self, transport: Transport, *, limit: int = TOKENS_KEPT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._transport = transport
        self._limit = limit
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._reads_only = False

    def __len__(self) -> int:
        return len(self._entries)

    async def get(
        self, service: TokenService, repository: str, credential: Credential, actions: str, *, also: str = ""
    ) -> str:
        """Return a token for ``actions`` (:data:`READ` or :data:`EVERYTHING`); ``also`` is what the registry named as scope.

        Of ``also``, only what is for this very repository is asked for: a token for another one would be shown to this registry.
        A service that refuses everything to credentials that may only read is asked for reading alone. Raises
        :class:`AuthRefusedError` or :class:`RegistryError`.
        """
        entry = self._entries.get(repository)
        if entry is not None and self._serves(entry, credential, actions):
            self._entries.move_to_end(repository)
            return entry.token
        if actions == READ:
            entry = await self._fetch_for_reading(service, repository, credential, also)
        else:
            entry = await self._fetch(service, repository, credential, EVERYTHING, also)
        self._keep(repository, entry)
        return entry.token

    def forget(self, repository: str) -> None:
        """Drop a token that the registry refused."""
        self._entries.pop(repository, None)

    def _serves(self, entry: _Entry, credential: Credential, actions: str) -> bool:
        enough = actions == READ or entry.actions == EVERYTHING
        return enough and entry.credential == credential and self._clock() < entry.until

    def _keep(self, repository: str, entry: _Entry) -> None:
        self._entries[repository] = entry
        self._entries.move_to_end(repository)
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    async def _fetch_for_reading(
        self, service: TokenService, repository: str, credential: Credential, also: str
    ) -> _Entry:
        if self._reads_only:
            return await self._fetch(service, repository, credential, READ, also)
        try:
            return await self._fetch(service, repository, credential, EVERYTHING, also)
        except AuthRefusedError:
            entry = await self._fetch(service, repository, credential, READ, also)
            self._reads_only = True
            return entry

    async def _fetch(
        self, service: TokenService, repository: str, credential: Credential, actions: str, also: str
    ) -> _Entry:
        scopes = [f"repository:{repository}:{actions}", *_own(also, repository)]
        reply = await self._ask(service, scopes, credential)
        host = service.realm.raw_host
        if reply.status in {401, 403}:
            who = "anonymous requests" if credential.anonymous else "the credentials"
            raise AuthRefusedError(f"the token service {host} refuses {who} ({reply.status}) for {repository}")
        if reply.status != 200:
            raise RegistryError(
                f"the token service {host} answered {reply.status}",
                transient=reply.status in TRANSIENT_STATUSES,
                retry_after=parse_retry_after(reply.headers.get("Retry-After")),
            )
        token, lifetime = parse_token(reply.body, f"{host}")
        if actions == EVERYTHING:
            self._reads_only = False
        until = self._clock() + lifetime - min(_LARGEST_SKEW, lifetime / 5)
        return _Entry(token, actions, credential, until)

    async def _ask(self, service: TokenService, scopes: list[str], credential: Credential) -> Reply:
        name = [("service", service.name)] if service.name else []
        if credential.identity_token:
            form = [
                ("grant_type", "refresh_token"),
                ("refresh_token", credential.identity_token),
                ("client_id", _CLIENT_ID),
                *name,
                ("scope", " ".join(scopes)),
            ]
            return await self._transport.send("token", "POST", service.realm, body=form)
        url = service.realm.extend_query([*name, *(("scope", scope) for scope in scopes)])
        return await self._transport.send("token", "GET", url, headers=authorization(credential.basic))


def authorization(value: str) -> dict[str, str]:
    """Return the header that carries ``value``; none for ""."""
    return {"Authorization": value} if value else {}


def parse_token(body: bytes, host: str) -> tuple[str, float]:
    """Read a token service's answer: the token and its life in seconds, at most a day. Raises :class:`RegistryError`."""
    try:
        answer = _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        answer = _Answer()
    token = answer.token or answer.access_token or ""
    if not _VISIBLE.fullmatch(token):
        raise RegistryError(f"the token service {host} answered without a token")
    lifetime = answer.expires_in
    if isinstance(lifetime, bool) or not isinstance(lifetime, (int, float)) or not lifetime >= 0:
        lifetime = _LIFETIME_UNTOLD
    return token, float(min(lifetime, _LONGEST_LIFETIME))


def _own(scope: str, repository: str) -> list[str]:
    """Return the parts of a scope that are for this repository."""
    found = ((word, _OWN_SCOPE.fullmatch(word)) for word in scope.split(" "))
    return [word for word, match in found if match is not None and match["repository"] == repository]
