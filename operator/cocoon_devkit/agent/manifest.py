"""Registry objects of a snapshot: manifest and config blob, written and read (contract 5.3, 5.4)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cocoon_devkit.agent import wire
from cocoon_devkit.agent.records import Memory, SnapshotRecord
from cocoon_devkit.agent.wire import Obj

CONFIG_LIMIT: Final = 64 << 20
"""A config blob longer than this (bytes) is an error, not a stale answer (R5.7)."""

_LAYER_TYPES: Final = {
    "config.json": "application/vnd.cocoonstack.vm.config+json",
    "state.json": "application/vnd.cocoonstack.vm.state+json",
    "memory-ranges": "application/vnd.cocoonstack.vm.memory",
    "cidata.img": "application/vnd.cocoonstack.vm.cidata",
}
_KNOWN_TYPES: Final = frozenset(_LAYER_TYPES.values()) | {
    "application/vnd.cocoonstack.disk.qcow2",
    "application/vnd.cocoonstack.disk.raw",
    "application/octet-stream",
}


class FormatError(Exception):
    """A manifest or config blob that is not a snapshot's."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes and what the manifest says about them."""

    data: bytes
    descriptor: Obj

    @property
    def digest(self) -> str:
        return str(self.descriptor["digest"])


@dataclass(frozen=True, slots=True)
class Parsed:
    """A snapshot manifest, read. ``config`` and ``layers`` are descriptors."""

    annotations: dict[str, str]
    config: Obj
    layers: list[Obj]

    @property
    def base_image(self) -> str:
        return self.annotations.get(wire.BASE_IMAGE, "")


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def layer_type(title: str) -> str:
    """Return the media type of an exported file by its name."""
    if title.endswith(".qcow2"):
        return "application/vnd.cocoonstack.disk.qcow2"
    if title.endswith(".raw"):
        return "application/vnd.cocoonstack.disk.raw"
    return _LAYER_TYPES.get(title, "application/octet-stream")


def layers_of(snapshot: SnapshotRecord) -> list[Blob]:
    """Return the exported files in archive order. The guest's memory is the modelled payload."""
    memory = snapshot.memory
    payload = {"bootId": memory.boot_id, "work": memory.work, "ticks": memory.ticks, "history": memory.history}
    files = {
        "config.json": {"cpus": snapshot.cpu, "memory": snapshot.memory_bytes, "image": snapshot.image},
        "state.json": {"state": "paused", "nics": snapshot.nics},
        "memory-ranges": payload,
        "overlay.qcow2": {"disk": snapshot.storage_bytes, "written": memory.work},
    }
    return [_blob(json.dumps(body).encode(), layer_type(title), title) for title, body in files.items()]


def config_of(snapshot: SnapshotRecord, layers: list[Blob]) -> Blob:
    """Return the config blob; ``snapshotId`` is the id of the local snapshot that is exported (R5.5, R5.6)."""
    body: Obj = {
        "schemaVersion": "v1",
        "snapshotId": snapshot.id,
        "image": snapshot.image,
        "hypervisor": snapshot.hypervisor,
        "cpu": snapshot.cpu,
        "memory": snapshot.memory_bytes,
        "storage": snapshot.storage_bytes,
        "nics": snapshot.nics,
        "files": {
            layer.descriptor["annotations"][wire.TITLE]: {"mode": 0o644, "size": len(layer.data)} for layer in layers
        },
        "createdAt": _now(),
    }
    kept = {key: value for key, value in body.items() if value or key in {"schemaVersion", "snapshotId"}}
    return _blob(json.dumps(kept).encode(), wire.SNAPSHOT_CONFIG)


def manifest_of(config: Blob, layers: list[Blob], base_image: str) -> Obj:
    """Return the manifest of a version 1 snapshot (5.3)."""
    annotations = {wire.CREATED: _now()}
    if base_image:
        annotations[wire.BASE_IMAGE] = base_image
    return {
        "schemaVersion": 2,
        "mediaType": wire.MANIFEST,
        "artifactType": wire.SNAPSHOT_V1,
        "config": config.descriptor,
        "layers": [layer.descriptor for layer in layers],
        "annotations": annotations,
    }


def encode(manifest: Obj) -> bytes:
    return json.dumps(manifest, separators=(",", ":")).encode()


def parse(manifest: Obj) -> Parsed:
    """Read a snapshot manifest. Raises :class:`FormatError` for other artifacts and for layers that nobody can read (R2.7)."""
    kind = manifest.get("artifactType")
    if kind not in {wire.SNAPSHOT_V1, wire.SNAPSHOT_V2}:
        raise FormatError(f"artifact type {kind!r} is not a snapshot")
    layers: list[Obj] = manifest.get("layers") or []
    for layer in layers:
        _check_layer(layer, compressed_allowed=kind == wire.SNAPSHOT_V2)
    return Parsed(manifest.get("annotations") or {}, manifest.get("config") or {}, layers)


def _check_layer(layer: Obj, *, compressed_allowed: bool) -> None:
    notes = layer.get("annotations") or {}
    media_type = str(layer.get("mediaType", ""))
    compressed = media_type.endswith("+zstd") or "cocoonstack.chunk.index" in notes
    if compressed and not compressed_allowed:
        raise FormatError("a compressed or chunked layer in a version 1 manifest")
    if media_type.removesuffix("+zstd") not in _KNOWN_TYPES:
        raise FormatError(f"unknown layer type {media_type!r}")
    if not notes.get(wire.TITLE):
        raise FormatError("a layer without a title")
    if int(layer.get("size", -1)) < 0:
        raise FormatError("a layer with a negative size")


def snapshot_id(config: Obj, data: bytes) -> str:
    """Return the id that a config blob names. Raises :class:`FormatError` on another type, size or content (R5.7)."""
    body = read_config(config, data)
    return str(body.get("snapshotId", ""))


def read_config(config: Obj, data: bytes) -> Obj:
    """Decode a config blob. Raises :class:`FormatError`."""
    if config.get("mediaType") != wire.SNAPSHOT_CONFIG:
        raise FormatError(f"config of type {config.get('mediaType')!r}")
    if len(data) > CONFIG_LIMIT:
        raise FormatError("config blob too long")
    try:
        body = json.loads(data)
    except ValueError as error:
        raise FormatError("config blob is not JSON") from error
    if not isinstance(body, dict):
        raise FormatError("config blob is not an object")
    return body


def imported(name: str, config: Obj, files: dict[str, bytes], digest: str) -> SnapshotRecord:
    """Make a local snapshot of downloaded parts. ``files`` are the layers by title; foreign ones carry no memory."""
    now = datetime.now(UTC).timestamp()
    payload = _payload(files.get("memory-ranges", b""))
    return SnapshotRecord(
        name=name,
        id="",
        origin=str(config.get("snapshotId", "")),
        size=sum(map(len, files.values())) + (64 << 20),
        created_at=now,
        last_accessed_at=now,
        hypervisor=str(config.get("hypervisor") or "cloud-hypervisor"),
        image=str(config.get("image") or ""),
        cpu=int(config.get("cpu") or 1),
        memory_bytes=int(config.get("memory") or 1 << 30),
        storage_bytes=int(config.get("storage") or 10 << 30),
        memory=payload,
        nics=int(config.get("nics") or 0),
        digest=digest,
    )


def _payload(data: bytes) -> Memory:
    try:
        body: Any = json.loads(data)
        return Memory(str(body["bootId"]), list(body["work"]), int(body["ticks"]), list(body["history"]))
    except (ValueError, KeyError, TypeError):
        return Memory()


def _blob(data: bytes, media_type: str, title: str = "") -> Blob:
    descriptor: Obj = {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}
    if title:
        descriptor["annotations"] = {wire.TITLE: title}
    return Blob(data, descriptor)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
