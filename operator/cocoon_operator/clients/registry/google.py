"""Google's registries: application default credentials, then the ``gcloud`` tool (contract 8.4).

``google-auth`` is an optional extra (``gcp``) that is imported only when a Google registry is asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cocoon_operator.clients.registry.credentials import ANONYMOUS, Credential
from cocoon_operator.clients.registry.failures import CredentialsError

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
EXPIRY_SKEW: Final = 60.0
NONE_FOUND_LASTS: Final = 600.0
LOOKUP_PATIENCE: Final = 4.0
_GCLOUD_TIMEOUT: Final = 10.0
_GCLOUD: Final = ("gcloud", "config", "config-helper", "--force-auth-refresh", "--format=json(credential)")
_KEY_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_USER: Final = "_token"
_DOMAINS: Final = (".gcr.io", ".pkg.dev", ".google.com")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token and when it ends, in seconds since the epoch."""

    value: str = field(repr=False)
    expires: float


class NoGoogleCredentialsError(Exception):
    """There are none on this machine: somebody else's credentials may be tried."""


class GoogleNotReadyError(Exception):
    """There are credentials, but no token could be had with them now. The message has no secret."""


GoogleSource = Callable[[], AccessToken]


def is_google(host: str) -> bool:
    """Tell whether a registry host is one of Google's: the only ones that are shown a Google token."""
    name = host.partition(":")[0].lower()
    return name == "gcr.io" or name.endswith(_DOMAINS)


class GoogleKeychain:
    """Access tokens for Google's registries, refreshed in a thread before they expire.

    Only success is remembered as such (W-41): a source that was not ready is asked again at the next question, and *none
    found* lasts ten minutes, or until the registry refuses the anonymous. ``source`` blocks and raises one of the two
    errors above; ``clock`` gives seconds since the epoch.
    """

    def __init__(
        self,
        source: GoogleSource | None = None,
        *,
        patience: float = LOOKUP_PATIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source or DefaultCredentials()
        self._patience = patience
        self._clock = clock
        self._token: AccessToken | None = None
        self._none_until = 0.0
        self._lookup: asyncio.Task[AccessToken] | None = None

    async def resolve(self, host: str, repository: str) -> Credential:  # noqa: ARG002 - one token serves all repositories
        """See :class:`~cocoon_operator.clients.registry.credentials.Keychain`."""
        if not is_google(host) or self._clock() < self._none_until:
            return ANONYMOUS
        if self._token is None or self._clock() > self._token.expires - EXPIRY_SKEW:
            try:
                self._token = await self._look_up()
            except NoGoogleCredentialsError:
                self._none_until = self._clock() + NONE_FOUND_LASTS
                return ANONYMOUS
            except GoogleNotReadyError as error:
                raise CredentialsError(f"no Google access token: {error}", transient=True) from None
            except TimeoutError:
                raise CredentialsError(f"no Google access token within {self._patience:g} s", transient=True) from None
        return Credential(_USER, self._token.value)

    def forget(self) -> None:
        """See :class:`~cocoon_operator.clients.registry.credentials.Keychain`."""
        self._token = None
        self._none_until = 0.0

    async def _look_up(self) -> AccessToken:
        # A thread cannot be stopped: a slow lookup goes on, everybody waits for the same one, and its answer serves the next.
        if self._lookup is None:
            self._lookup = asyncio.create_task(asyncio.to_thread(self._source))
            self._lookup.add_done_callback(self._keep)
        lookup = self._lookup
        done, _ = await asyncio.wait([lookup], timeout=self._patience)
        if not done:
            raise TimeoutError
        return lookup.result()

    def _keep(self, lookup: asyncio.Task[AccessToken]) -> None:
        self._lookup = None
        if not lookup.cancelled() and lookup.exception() is None:
            self._token = lookup.result()


class DefaultCredentials:
    """The blocking source that a cluster has: ADC (workload identity, metadata server, key file), then ``gcloud``."""

    def __init__(self) -> None:
        self._credentials: Any = None  # google.auth.credentials.Credentials

    def __call__(self) -> AccessToken:
        """Return a token that is valid now."""
        try:
            from google.auth.exceptions import DefaultCredentialsError  # noqa: PLC0415 - optional extra
            from google.auth.transport.requests import Request  # noqa: PLC0415 - optional extra
        except ImportError:
            return _ask_gcloud()
        try:
            self._credentials = self._credentials or _find()
            if not self._credentials.valid:
                self._credentials.refresh(Request())
            return AccessToken(str(self._credentials.token), _epoch(self._credentials.expiry))
        except DefaultCredentialsError as error:
            if os.environ.get(_KEY_FILE):
                raise GoogleNotReadyError(f"{_KEY_FILE} names a file that cannot be used") from error
            return _ask_gcloud()
        except Exception as error:  # whatever a library of many sources raises, it is no token
            self._credentials = None
            raise GoogleNotReadyError(type(error).__name__) from error


def _find() -> Any:
    import google.auth  # noqa: PLC0415 - optional extra

    credentials, _ = google.auth.default(scopes=[SCOPE])
    return credentials


def _epoch(expiry: datetime | None) -> float:
    # google-auth keeps naive UTC; without an end the token is asked for again at the next question.
    return expiry.replace(tzinfo=UTC).timestamp() if expiry is not None else 0.0


def _ask_gcloud() -> AccessToken:
    try:
        done = subprocess.run(_GCLOUD, capture_output=True, timeout=_GCLOUD_TIMEOUT, check=True)  # noqa: S603 - fixed words
        credential: dict[str, Any] = json.loads(done.stdout)["credential"]
        expires = datetime.fromisoformat(credential["token_expiry"].replace("Z", "+00:00"))
        return AccessToken(str(credential["access_token"]), expires.timestamp())
    except FileNotFoundError:
        raise NoGoogleCredentialsError from None
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoGoogleCredentialsError from error
