"""Where the API server is and who we are to it: in a cluster the projected service account, else a kubeconfig."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import aiohttp
from yarl import URL

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The kubelet renews a projected token at 80 % of its life, which is ten minutes at least.
_TOKEN_READ_PERIOD: Final = 60.0


class ConnectionSetupError(Exception):
    """There is no usable way to the API server; the message is one sentence that says what to do."""


class Credentials(Protocol):
    """What goes into the ``Authorization`` header, kept fresh."""

    async def header(self, *, renew: bool = False) -> str | None:
        """Return the header's value, None for none. ``renew``: the last one was refused."""
        ...


class NoCredentials:
    """A client certificate, or nothing, identifies us."""

    async def header(self, *, renew: bool = False) -> str | None:  # noqa: ARG002
        return None


class TokenFile:
    """The projected service account token, read again every minute, so that it never expires in our hands."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._value = ""
        self._read_at = float("-inf")

    async def header(self, *, renew: bool = False) -> str | None:
        if renew or self._clock() - self._read_at >= _TOKEN_READ_PERIOD:
            await self._read()
        return f"Bearer {self._value}"

    async def _read(self) -> None:
        try:
            self._value = (await asyncio.to_thread(self._path.read_text)).strip()
        except OSError as error:
            if not self._value:
                raise ConnectionSetupError(f"the service account token {self._path} cannot be read: {error}") from error
        self._read_at = self._clock()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files by path; "" is none. ``insecure`` accepts any server certificate."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    insecure: bool = False


@dataclass(frozen=True)
class Connection:
    """One API server, one identity. ``source`` says where it was found; ``namespace`` is ours in a cluster, else ""."""

    server: str
    source: str
    namespace: str = ""
    tls: TlsFiles = field(default_factory=TlsFiles)
    credentials: Credentials = field(default_factory=NoCredentials)
    proxy: str = ""

    def ssl_context(self) -> ssl.SSLContext | bool:
        """Return what aiohttp wants as ``ssl``. Raises :class:`ConnectionSetupError` for unreadable files."""
        if not self.server.startswith("https://"):
            return True
        try:
            context = ssl.create_default_context(cafile=self.tls.ca or None)
            if self.tls.certificate:
                context.load_cert_chain(self.tls.certificate, self.tls.key or None)
        except OSError as error:
            raise ConnectionSetupError(f"the TLS files of {self.source} cannot be read: {error}") from error
        if self.tls.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def open_session(self, *, user_agent: str = "", limit: int = 100) -> aiohttp.ClientSession:
        """Open a session that sends our identity with every request to the API server; the caller closes it."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, ssl=self.ssl_context()),
            headers={"User-Agent": user_agent} if user_agent else None,
            middlewares=(self._authorize,),
            proxy=self.proxy or None,
        )

    @functools.cached_property
    def _origin(self) -> URL:
        return URL(self.server).origin()

    async def _authorize(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        header = await self.credentials.header() if request.url.origin() == self._origin else None
        if header is None:
            # No credentials, or a redirect to somebody else: they are for the API server alone.
            return await handler(request)
        request.headers["Authorization"] = header
        answer = await handler(request)
        if answer.status != 401:
            return answer
        renewed = await self.credentials.header(renew=True)
        if renewed is None or renewed == header:
            return answer
        answer.release()
        request.headers["Authorization"] = renewed
        return await handler(request)


async def find_connection(
    kubeconfig: str = "",
    *,
    env: Mapping[str, str] = os.environ,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Find the API server: the flag, ``KUBECONFIG``, the cluster we run in, ``~/.kube/config`` (contract 8.1).

    Raises :class:`ConnectionSetupError`.
    """
    from cocoon_operator.clients.kubernetes.kubeconfig import load_kubeconfig  # noqa: PLC0415

    named = kubeconfig or env.get("KUBECONFIG", "")
    if named:
        return await load_kubeconfig(named)
    if env.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return in_cluster(env, service_account)
    default = (home or Path.home()) / ".kube" / "config"
    if default.exists():
        return await load_kubeconfig(str(default))
    raise ConnectionSetupError("no cluster is configured: set KUBECONFIG or --kubeconfig, or run inside a cluster")


def in_cluster(env: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Connection:
    """Return the connection of a pod's service account."""
    host = env["KUBERNETES_SERVICE_HOST"]
    host = f"[{host}]" if ":" in host else host
    namespace_file = folder / "namespace"
    return Connection(
        server=f"https://{host}:{env.get('KUBERNETES_SERVICE_PORT') or '443'}",
        source="the pod's service account",
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "",
        tls=TlsFiles(ca=str(folder / "ca.crt")),
        credentials=TokenFile(folder / "token"),
    )
