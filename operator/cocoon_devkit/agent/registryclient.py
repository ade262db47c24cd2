"""The agent's registry client: push, pull, verify, untag (contract, section 5).

A double of the node agent's own client, so it shares nothing with the operator's. Every request is journaled and can be
made to fail.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import aiohttp
from yarl import URL

from cocoon_devkit.agent import manifest as shapes
from cocoon_devkit.agent import wire
from cocoon_devkit.agent.faults import FaultError, Faults
from cocoon_devkit.agent.journal import NodeJournal
from cocoon_devkit.agent.records import SnapshotRecord
from cocoon_devkit.agent.settings import Speeds
from cocoon_devkit.agent.wire import Obj

_ACCEPT: Final = ", ".join((wire.MANIFEST, wire.INDEX, wire.DOCKER_MANIFEST, wire.DOCKER_LIST))


class RegistryError(Exception):
    """No answer that says anything, or a refusal: never read as "absent"."""


class ManifestNotFoundError(RegistryError):
    """404 of a manifest request, the only answer that means absent (5.5)."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A manifest as the registry has it."""

    body: Obj
    digest: str


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    headers: dict[str, str]
    body: bytes


class RegistryClient:
    """Talks to ``address`` = ``host:port[/prefix]``; repositories are relative to the prefix. A ``ca`` file means https."""

    def __init__(
        self,
        address: str,
        *,
        username: str = "",
        password: str = "",
        tls: bool = False,
        ca: Path | None = None,
        speeds: Speeds | None = None,
        faults: Faults | None = None,
        journal: NodeJournal | None = None,
    ) -> None:
        host, _, prefix = address.partition("/")
        self._base = f"{'https' if tls or ca else 'http'}://{host}"
        self._prefix = f"{prefix.strip('/')}/" if prefix else ""
        self._login = {"Authorization": aiohttp.encode_basic_auth(username, password)} if username else {}
        self._speeds = speeds or Speeds()
        self._faults = faults or Faults()
        self._journal = journal
        self._ca = ca
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # -- reading ----------------------------------------------------------------------------------------------------

    async def fetch(self, repository: str, reference: str) -> Fetched:
        """GET a manifest. Raises :class:`ManifestNotFoundError` on 404, else :class:`RegistryError`."""
        reply = await self._call("GET", self._manifest_url(repository, reference), headers={"Accept": _ACCEPT})
        if reply.status == 404:
            raise ManifestNotFoundError(f"{repository}:{reference} is not in the registry")
        self._demand(reply, {200}, f"reading {repository}:{reference}")
        try:
            body = json.loads(reply.body)
        except ValueError as error:
            raise RegistryError(f"{repository}:{reference}: the manifest is not JSON") from error
        if not isinstance(body, dict):
            raise RegistryError(f"{repository}:{reference}: the manifest is not an object")
        return Fetched(body, shapes.digest_of(reply.body))

    async def saved_id(self, repository: str, fetched: Fetched) -> str:
        """Return the ``snapshotId`` behind a manifest. Raises :class:`RegistryError`: fail closed, not stale (R5.7)."""
        config: Obj = fetched.body.get("config") or {}
        if config.get("mediaType") != wire.SNAPSHOT_CONFIG:
            raise RegistryError(f"{repository}: config of type {config.get('mediaType')!r}")
        if int(config.get("size", 0)) > shapes.CONFIG_LIMIT:
            raise RegistryError(f"{repository}: config blob too long")
        data = await self.blob(repository, str(config.get("digest")))
        try:
            return shapes.snapshot_id(config, data)
        except shapes.FormatError as error:
            raise RegistryError(f"{repository}: {error}") from error

    async def pull(self, repository: str, reference: str, name: str, vm: str = "") -> SnapshotRecord:
        """Download a snapshot as a local one called ``name``. Raises :class:`RegistryError`."""
        await self._suffer("pull", vm)
        await asyncio.sleep(self._speeds.pull)
        fetched = await self._resolve(repository, reference)
        try:
            parsed = shapes.parse(fetched.body)
            config = shapes.read_config(parsed.config, await self.blob(repository, str(parsed.config.get("digest"))))
        except shapes.FormatError as error:
            raise RegistryError(f"{repository}:{reference}: {error}") from error
        files = {
            layer["annotations"][wire.TITLE]: await self.blob(repository, layer["digest"], kind="layer")
            for layer in parsed.layers
        }
        return shapes.imported(name, config, files, fetched.digest)

    async def _resolve(self, repository: str, reference: str) -> Fetched:
        """Follow an index to its linux/amd64 child, else to the first (R5.12)."""
        fetched = await self.fetch(repository, reference)
        children: list[Obj] = fetched.body.get("manifests") or []
        if not children:
            return fetched
        wanted = {"os": "linux", "architecture": "amd64"}
        matching = [child for child in children if wanted.items() <= (child.get("platform") or {}).items()]
        return await self.fetch(repository, str((matching or children)[0]["digest"]))

    async def blob(self, repository: str, digest: str, *, kind: str = "config") -> bytes:
        """Download a blob and compare its digest; ``kind`` is what the journal says. Raises :class:`RegistryError`."""
        url = f"{self._repository_url(repository)}/blobs/{digest}"
        reply = await self._call("GET", url, target="blob", blob=kind)
        self._demand(reply, {200}, f"reading {repository}@{digest}")
        if shapes.digest_of(reply.body) != digest:
            raise RegistryError(f"{repository}@{digest}: the content is another")
        return reply.body

    # -- writing ----------------------------------------------------------------------------------------------------

    async def push(
        self, repository: str, tag: str, snapshot: SnapshotRecord, *, base_image: str = "", node: str = "", vm: str = ""
    ) -> str:
        """Upload layers, config and, last, the manifest; then put it again with the node's name, at best effort (R5.3).

        A failure before the first manifest PUT leaves the tag where it was. Returns the digest behind the tag at the end.
        Raises :class:`RegistryError`.
        """
        await self._suffer("push.start", vm)
        await asyncio.sleep(self._speeds.push)
        layers = shapes.layers_of(snapshot)
        config = shapes.config_of(snapshot, layers)
        for layer in layers:
            await self._suffer("push.blob", vm)
            await self._upload(repository, layer)
        await self._suffer("push.config", vm)
        await self._upload(repository, config)
        await self._suffer("push.manifest", vm)
        body = shapes.manifest_of(config, layers, base_image)
        digest = await self.put_manifest(repository, tag, body)
        digest = await self._note_node(repository, tag, node) or digest
        await self._suffer("push.report", vm)
        return digest

    async def _note_node(self, repository: str, tag: str, node: str) -> str:
        if not node:
            return ""
        try:
            fetched = await self.fetch(repository, tag)
            notes = {**(fetched.body.get("annotations") or {}), wire.FROM_NODE: node}
            return await self.put_manifest(repository, tag, {**fetched.body, "annotations": notes})
        except RegistryError:
            return ""

    async def put_manifest(self, repository: str, tag: str, body: Obj) -> str:
        """PUT a manifest by tag; returns its digest. Raises :class:`RegistryError`."""
        data = shapes.encode(body)
        headers = {"Content-Type": str(body.get("mediaType", wire.MANIFEST))}
        reply = await self._call("PUT", self._manifest_url(repository, tag), headers=headers, data=data)
        self._demand(reply, {200, 201, 202}, f"writing {repository}:{tag}")
        return shapes.digest_of(data)

    async def upload(self, repository: str, data: bytes, media_type: str, title: str = "") -> Obj:
        """Upload bytes; returns their descriptor. Raises :class:`RegistryError`."""
        descriptor: Obj = {"mediaType": media_type, "digest": shapes.digest_of(data), "size": len(data)}
        if title:
            descriptor["annotations"] = {wire.TITLE: title}
        await self._upload(repository, shapes.Blob(data, descriptor))
        return descriptor

    async def _upload(self, repository: str, blob: shapes.Blob) -> None:
        base = self._repository_url(repository)
        head = await self._call("HEAD", f"{base}/blobs/{blob.digest}", target="blob")
        if head.status == 200:
            return
        self._demand(head, {404}, f"asking for {repository}@{blob.digest}")
        start = await self._call("POST", f"{base}/blobs/uploads/", target="blob")
        self._demand(start, {202}, f"starting an upload to {repository}")
        location = urljoin(self._base, start.headers.get("location", ""))
        separator = "&" if "?" in location else "?"
        headers = {"Content-Type": "application/octet-stream"}
        url = f"{location}{separator}digest={blob.digest}"
        done = await self._call("PUT", url, target="blob", headers=headers, data=blob.data)
        self._demand(done, {201}, f"uploading to {repository}")

    async def drop(self, repository: str, tag: str) -> None:
        """Untag; an absent tag is success (N202). Raises :class:`RegistryError`."""
        reply = await self._call("DELETE", self._manifest_url(repository, tag))
        self._demand(reply, {202, 404}, f"dropping {repository}:{tag}")

    # -- transport --------------------------------------------------------------------------------------------------

    def _repository_url(self, repository: str) -> str:
        return f"{self._base}/v2/{self._prefix}{repository}"

    def _manifest_url(self, repository: str, reference: str) -> str:
        return f"{self._repository_url(repository)}/manifests/{reference}"

    async def _call(
        self,
        method: str,
        url: str,
        *,
        target: str = "manifest",
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
        blob: str = "",
    ) -> _Reply:
        path = url.removeprefix(self._base)
        await self._suffer(f"registry.{method.lower()}.{target}")
        if self._session is None:
            self._session = self._open()
        try:
            async with self._session.request(method, URL(url, encoded=True), headers=headers, data=data) as response:
                body = b"" if method == "HEAD" else await response.read()
                lowered = {key.lower(): value for key, value in response.headers.items()}
                reply = _Reply(response.status, lowered, body)
        except (aiohttp.ClientError, TimeoutError) as error:
            self._note(method, path, target, 0, blob)
            raise RegistryError(f"{method} {path}: {type(error).__name__}") from error
        self._note(method, path, target, reply.status, blob)
        return reply

    def _open(self) -> aiohttp.ClientSession:
        trust = ssl.create_default_context(cafile=self._ca) if self._ca else True
        connector = aiohttp.TCPConnector(ssl=trust)
        timeout = aiohttp.ClientTimeout(total=30)
        return aiohttp.ClientSession(headers=self._login, timeout=timeout, connector=connector)

    def _note(self, method: str, path: str, target: str, status: int, blob: str) -> None:
        if self._journal is not None:
            self._journal.registry(method, path=path, target=target, status=status, blob=blob)

    def _demand(self, reply: _Reply, wanted: set[int], what: str) -> None:
        if reply.status not in wanted:
            raise RegistryError(f"{what}: the registry answered {reply.status}")

    async def _suffer(self, point: str, vm: str = "") -> None:
        try:
            await self._faults.hit(point, vm)
        except FaultError as fault:
            raise RegistryError(str(fault)) from fault
