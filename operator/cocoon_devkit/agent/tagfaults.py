"""Tags that a test changes behind everybody's back (F-9): gone, another's, or in front of a config nobody can read."""

from __future__ import annotations

import json
from typing import Final

from cocoon_devkit.agent import manifest as shapes
from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.registryclient import RegistryClient
from cocoon_devkit.agent.wire import Obj

CHANGES: Final = ("delete", "replace", "no-id", "config-type", "config-size")


async def change_tag(registry: RegistryClient, ref: str, change: str, *, source: str = "") -> None:
    """Change what is behind ``ref``: delete the tag, or replace it by ``source``'s manifest or by a spoilt one of its own.

    ``no-id`` leaves the snapshot's id out of the config blob (stale), ``config-type`` and ``config-size`` make the config
    unreadable (fail closed, R5.7). Raises ``RegistryError``, and :class:`ValueError` for another change.
    """
    repository, tag = podview.split_ref(ref)
    if change == "delete":
        await registry.drop(repository, tag)
        return
    if change not in CHANGES:
        raise ValueError(f"a change is one of {', '.join(CHANGES)}, not {change!r}")
    if change == "replace":
        origin, origin_tag = podview.split_ref(source)
        body = await _carried_over(registry, origin, origin_tag, repository)
    else:
        body = (await registry.fetch(repository, tag)).body
        body = {**body, "config": await _spoilt_config(registry, repository, body["config"], change)}
    await registry.put_manifest(repository, tag, body)


async def _carried_over(registry: RegistryClient, origin: str, tag: str, repository: str) -> Obj:
    """Return a manifest whose blobs are in another repository too."""
    body = (await registry.fetch(origin, tag)).body
    for blob in (body["config"], *body["layers"]):
        await registry.upload(repository, await registry.blob(origin, blob["digest"]), blob["mediaType"])
    return body


async def _spoilt_config(registry: RegistryClient, repository: str, config: Obj, change: str) -> Obj:
    if change == "config-type":
        return {**config, "mediaType": "application/json"}
    if change == "config-size":
        return {**config, "size": shapes.CONFIG_LIMIT + 1}
    content = json.loads(await registry.blob(repository, config["digest"]))
    data = json.dumps({**content, "snapshotId": ""}).encode()
    return await registry.upload(repository, data, wire.SNAPSHOT_CONFIG)
