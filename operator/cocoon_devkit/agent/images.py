"""Base images for ``mode: clone``: an ordinary snapshot manifest that a test or the demo puts into the registry."""

from __future__ import annotations

import time

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.records import Memory, SnapshotRecord, new_id
from cocoon_devkit.agent.registryclient import RegistryClient


async def publish_snapshot(registry: RegistryClient, ref: str, *, hypervisor: str = "cloud-hypervisor") -> str:
    """Push a snapshot that agents can be cloned from; returns its digest. Raises ``RegistryError``."""
    repository, tag = podview.split_ref(ref)
    now = time.time()
    snapshot = SnapshotRecord(
        name=repository,
        id=new_id(),
        origin="",
        size=0,
        created_at=now,
        last_accessed_at=now,
        hypervisor=hypervisor,
        image="",
        cpu=2,
        memory_bytes=1 << 30,
        storage_bytes=10 << 30,
        memory=Memory(boot_id=new_id(), history=[f"image {ref}"]),
    )
    return await registry.push(repository, tag, snapshot)


async def publish_os_image(registry: RegistryClient, ref: str) -> str:
    """Push a cloud image that ``mode: run`` boots (R2.8); returns its digest. Raises ``RegistryError``."""
    repository, tag = podview.split_ref(ref)
    config = await registry.upload(repository, b"{}", "application/vnd.oci.empty.v1+json")
    layer = await registry.upload(repository, ref.encode(), "application/octet-stream", "disk.img")
    body = {
        "schemaVersion": 2,
        "mediaType": wire.MANIFEST,
        "artifactType": wire.OS_IMAGE,
        "config": config,
        "layers": [layer],
    }
    return await registry.put_manifest(repository, tag, body)
