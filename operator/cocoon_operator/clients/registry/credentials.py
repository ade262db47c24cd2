"""Who the operator is to the registry: docker config files and credential helpers (contract 8.4)."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from cocoon_operator.clients.registry.failures import CredentialsError
from cocoon_operator.clients.registry.helpers import HELPER_TIMEOUT, ask_helper
from cocoon_operator.clients.registry.reference import DOCKER_HUB

HELPER_ANSWER_LASTS: Final = 300.0
_HUB_KEY: Final = "https://index.docker.io/v1/"
_TOKEN_USER: Final = "<token>"  # noqa: S105 - the helper protocol's mark for an identity token
_HELPER_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Credential:
    """What can be shown to a registry. Secrets do not appear in its representation.

    ``identity_token`` is exchanged at the token service for a bearer token; ``registry_token`` is one already.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)

    @property
    def anonymous(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.username or self.password or self.identity_token or self.registry_token)

    @property
    def basic(self) -> str:
        """The value of ``Authorization`` for Basic, "" without username and password."""
        if not (self.username or self.password):
            return ""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode("ascii")


ANONYMOUS: Final = Credential()


class Keychain(Protocol):
    """A source of credentials."""

    async def resolve(self, host: str, repository: str) -> Credential:
        """Return the credential for a repository (``path/name``) of a host; :data:`ANONYMOUS` when none is configured.

        Raises :class:`CredentialsError` when one is configured but cannot be had.
        """
        ...

    def forget(self) -> None:
        """Drop what was remembered: the registry refused it."""
        ...


class Keychains:
    """Several sources; the first credential that is not anonymous wins."""

    def __init__(self, *sources: Keychain) -> None:
        self._sources = sources

    async def resolve(self, host: str, repository: str) -> Credential:
        """See :class:`Keychain`."""
        for source in self._sources:
            credential = await source.resolve(host, repository)
            if not credential.anonymous:
                return credential
        return ANONYMOUS

    def forget(self) -> None:
        """See :class:`Keychain`."""
        for source in self._sources:
            source.forget()


class DockerKeychain:
    """Credentials of a docker config file, read again whenever the file or the choice of file changes.

    ``env`` decides which file (:func:`config_path`) and is the environment of helpers. Answers of helpers are remembered
    for five minutes, until the file changes or until the registry refuses them. ``clock`` is monotonic, in seconds.
    """

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        *,
        helper_timeout: float = HELPER_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._env = os.environ if env is None else env
        self._helper_timeout = helper_timeout
        self._clock = clock
        self._seen: tuple[object, ...] = ()
        self._config = _Config()
        self._answers: dict[tuple[str, str], tuple[float, Credential]] = {}

    async def resolve(self, host: str, repository: str) -> Credential:
        """See :class:`Keychain`. Keys tried: the repository, the paths above it, the host; of each, its helper first."""
        config = self._current()
        server = _HUB_KEY if host == DOCKER_HUB else host
        for key in _keys(host, repository):
            helper = config.helpers.get(key) or (config.store if key == server else "")
            credential = await self._ask(helper, key) if helper else ANONYMOUS
            if credential.anonymous:
                credential = config.auths.get(key, ANONYMOUS)
            if not credential.anonymous:
                return credential
        return ANONYMOUS

    def forget(self) -> None:
        """See :class:`Keychain`."""
        self._answers.clear()

    async def _ask(self, helper: str, key: str) -> Credential:
        until, credential = self._answers.get((helper, key), (0.0, ANONYMOUS))
        if self._clock() < until:
            return credential
        username, secret = await ask_helper(helper, key, self._env, self._helper_timeout)
        is_token = username == _TOKEN_USER
        credential = Credential(identity_token=secret) if is_token else Credential(username, secret)
        self._answers[helper, key] = (self._clock() + HELPER_ANSWER_LASTS, credential)
        return credential

    def _current(self) -> _Config:
        path = config_path(self._env)
        seen = fingerprint(path)
        if seen != self._seen:
            self._config = _Config() if path is None else read_config(path)
            self._answers.clear()
            self._seen = seen
        return self._config


def config_path(env: Mapping[str, str]) -> Path | None:
    """Return the file that holds the credentials, in the order of contract 8.4; None when there is none.

    As there, a docker config that exists in ``$HOME`` makes ``$DOCKER_CONFIG`` the place to look, even if that has none.
    """
    in_home = _file(env.get("HOME"), ".docker", "config.json")
    named = _file(env.get("DOCKER_CONFIG"), "config.json")
    if in_home or named:
        return named if env.get("DOCKER_CONFIG") else in_home
    return _file(env.get("REGISTRY_AUTH_FILE")) or _file(env.get("XDG_RUNTIME_DIR"), "containers", "auth.json")


def _file(directory: str | None, *parts: str) -> Path | None:
    path = Path(directory, *parts) if directory else None
    return path if path is not None and path.exists() else None


@dataclass(frozen=True, slots=True)
class _Config:
    auths: Mapping[str, Credential] = field(default_factory=dict)
    helpers: Mapping[str, str] = field(default_factory=dict)
    store: str = ""


def read_config(path: Path) -> _Config:
    """Read a docker config file; :class:`CredentialsError` when it is broken, which is not the same as empty."""
    try:
        document = json.loads(path.read_bytes() or b"{}")
    except OSError as error:
        raise CredentialsError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise CredentialsError(f"{path} is not JSON: repair it, it holds the registry's credentials") from None
    try:
        return _Config(
            auths={_plain_key(key): _parse_auth(entry) for key, entry in _mapping(document, "auths").items()},
            helpers={key: _helper_name(value) for key, value in _mapping(document, "credHelpers").items()},
            store=_helper_name(document.get("credsStore") or ""),
        )
    except (ValueError, AttributeError) as error:
        raise CredentialsError(f"{path} is broken: {error}") from None


def _mapping(document: Any, name: str) -> dict[str, Any]:
    value = document.get(name) if isinstance(document, dict) else document
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object" if isinstance(document, dict) else "it is not an object")  # noqa: TRY004
    return value


def _helper_name(value: object) -> str:
    if value == "":
        return ""
    if not isinstance(value, str) or not _HELPER_NAME.fullmatch(value):
        raise ValueError("a credential helper's name must be the part behind docker-credential-")
    return value


def _parse_auth(entry: object) -> Credential:
    if not isinstance(entry, dict):
        raise ValueError("an entry of auths is not an object")  # noqa: TRY004
    fields = {
        name: entry.get(name) or "" for name in ("auth", "username", "password", "identitytoken", "registrytoken")
    }
    if not all(isinstance(value, str) for value in fields.values()):
        raise ValueError("an entry of auths has a field that is not a string")
    username, password = fields["username"], fields["password"]
    if fields["auth"]:
        username, password = _decode_auth(fields["auth"])
    return Credential(username, password, fields["identitytoken"], fields["registrytoken"])


def _decode_auth(text: str) -> tuple[str, str]:
    try:
        username, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("an auth of auths is not base64 of user:password") from None
    if not colon:
        raise ValueError("an auth of auths is not base64 of user:password")
    return username, password.rstrip("\0")


def _plain_key(key: str) -> str:
    """Docker once wrote keys as addresses (``https://host/v1/``); they mean the host. Docker Hub's is still one."""
    if key == _HUB_KEY:
        return key
    scheme, found, rest = key.partition("://")
    return rest.partition("/")[0] if found else scheme.rstrip("/")


def _keys(host: str, repository: str) -> Iterator[str]:
    parts = repository.split("/")
    for length in range(len(parts), 0, -1):
        yield "/".join([host, *parts[:length]])
    if host == DOCKER_HUB:
        yield _HUB_KEY
    yield host


def fingerprint(path: Path | None) -> tuple[object, ...]:
    """Return what differs when the file is another: a mounted Secret is swapped as a whole, with a new inode.

    Raises :class:`CredentialsError` when it cannot be looked at.
    """
    if path is None:
        return (None,)
    try:
        found = path.stat()
    except OSError as error:
        raise CredentialsError(f"cannot read {path}: {error.strerror}") from None
    return (str(path), found.st_ino, found.st_mtime_ns, found.st_size)
