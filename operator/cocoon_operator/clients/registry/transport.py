"""One HTTP request, once: the only place of this package that touches the network.

Contract 8.4 and S322: HTTP/1.1, TLS 1.2 or newer with verified certificates, 32 connections per host. ``SSL_CERT_FILE``
and ``SSL_CERT_DIR`` name other authorities than the system's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from cocoon_operator.clients.registry.failures import NoAnswerError, RegistryError
from cocoon_operator.clients.registry.proxies import proxy_for
from cocoon_operator.clients.registry.tls import ClientCertificate, default_tls

CONNECTIONS_PER_HOST: Final = 32
MANIFEST_LIMIT: Final = 4 * 1024 * 1024
ANSWER_LIMIT: Final = 256 * 1024
"""Bytes of every other answer: a token, an error."""

RequestHook: TypeAlias = Callable[[str, "int | str", float], None]


class _ConnectionLostError(aiohttp.ClientConnectionError):
    """The connection broke before an answer. Not one of the errors after which aiohttp sends a request again."""


async def _never_send_again(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    # aiohttp silently repeats GET, HEAD, PUT and DELETE once when a connection breaks before the answer. A drop must be
    # sent once (design 4.3 rule 2), and the tries of a read are counted by Patience.
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _ConnectionLostError("the connection broke") from error


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer, read to its end. ``body`` is empty for HEAD. It may hold a token, so its representation is the status."""

    status: int
    headers: CIMultiDictProxy[str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)


class Transport:
    """A lazily opened session. ``attempt`` bounds one request in seconds, waiting for a free connection included.

    ``on_request(kind, code, seconds)`` is called once for every request that was tried; ``code`` is the status or the kind of
    a :class:`NoAnswerError`, or ``cancelled`` where the time of the whole question ran out first. A ``client_certificate``
    brings TLS settings of its own, in place of ``tls``.
    """

    def __init__(
        self,
        *,
        attempt: float,
        on_request: RequestHook | None = None,
        tls: ssl.SSLContext | None = None,
        client_certificate: ClientCertificate | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._attempt = attempt
        self._on_request = on_request
        self._tls = tls
        self._client_certificate = client_certificate
        self._env = os.environ if env is None else env
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def send(
        self,
        kind: str,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | Sequence[tuple[str, str]] | None = None,
    ) -> Reply:
        """Send one request and read its answer. Redirects are answers: credentials never follow one.

        Raises :class:`NoAnswerError`, :class:`RegistryError` for an answer that is too large to be one or packed, and
        :class:`CredentialsError` without a request where the client certificate cannot be used.
        """
        if self._closed:
            raise RegistryError("the registry client is closed")
        tls = self._current_tls()
        code: int | str = "cancelled"
        limit = MANIFEST_LIMIT if kind == "inspect" else ANSWER_LIMIT
        started = time.monotonic()
        try:
            reply = await self._exchange(method, url, headers or {}, body, limit, tls=tls)
            code = reply.status
        except (aiohttp.ClientError, OSError, ValueError) as error:
            code, reason = _describe(error, url, self._attempt)
            raise NoAnswerError(reason, code) from error
        finally:
            if self._on_request is not None:
                self._on_request(kind, code, time.monotonic() - started)
        if len(reply.body) > limit:
            raise RegistryError(f"{url.raw_host} answered with more than {_size(limit)}")
        if reply.body and reply.headers.get("Content-Encoding", "identity") != "identity":
            raise RegistryError(f"{url.raw_host} answered in an encoding that was not asked for")
        return reply

    async def _exchange(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | Sequence[tuple[str, str]] | None,
        limit: int,
        *,
        tls: ssl.SSLContext,
    ) -> Reply:
        data = body if body is None or isinstance(body, bytes) else aiohttp.FormData(body)
        async with self._open().request(
            method,
            url,
            headers=headers,
            data=data,
            allow_redirects=False,
            # A connection is used again with the settings it was made with only: none outlives a change of the certificate.
            ssl=tls,
            proxy=proxy_for(url, self._env),
            timeout=aiohttp.ClientTimeout(total=self._attempt),
        ) as response:
            return Reply(response.status, response.headers, await _read(response, limit))

    @property
    def identifies_itself(self) -> bool:
        """Whether the registry is shown a client certificate."""
        return self._client_certificate is not None

    def _current_tls(self) -> ssl.SSLContext:
        if self._client_certificate is not None:
            return self._client_certificate.tls()
        if self._tls is None:
            self._tls = default_tls()
        return self._tls

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=CONNECTIONS_PER_HOST),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "cocoon-operator", "Accept-Encoding": "identity"},
                middlewares=(_never_send_again,),
                # What was not asked for is not unpacked: a few kilobytes could become gigabytes.
                auto_decompress=False,
            )
        return self._session

    async def close(self) -> None:
        """Close all connections; every later request is an error."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > limit:
            response.close()
            break
    return bytes(body)


def _size(limit: int) -> str:
    return f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"


def _describe(error: Exception, url: URL, attempt: float) -> tuple[str, str]:
    """Return the kind and the reason of a request without an answer, from our words and the operating system's only."""
    where = f"{url.raw_host}:{url.port}"
    if isinstance(error, asyncio.TimeoutError):
        return "timeout", f"{where} did not answer within {attempt:g} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        detail = getattr(error.certificate_error, "verify_message", "") or "it is not valid"
        return "certificate", f"the certificate of {where} is not trusted: {detail}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "tls", f"{where} does not speak TLS as expected"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connect", f"cannot connect to {where}: {_cause(error.os_error)}"
    if isinstance(error, (_ConnectionLostError, aiohttp.ClientPayloadError, OSError)):
        return "lost", f"{where} broke the connection off"
    return "invalid", f"{where} did not answer in HTTP ({type(error).__name__})"


def _cause(error: OSError) -> str:
    # asyncio puts the address into the text; a failed name lookup has an error number of its own.
    number = error.errno or 0
    return os.strerror(number) if number in errno.errorcode else "its name is not known"
