"""Registry objects of a snapshot, read and refused (contract, 5.3 and 5.4)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_devkit.agent import manifest, wire
from cocoon_devkit.agent.records import Memory, SnapshotRecord

Obj = dict[str, Any]


def snapshot(memory: Memory | None = None) -> SnapshotRecord:
    return SnapshotRecord(
        name="v",
        id="a" * 26,
        origin="a" * 26,
        size=1,
        created_at=0,
        last_accessed_at=0,
        hypervisor="cloud-hypervisor",
        image="base",
        cpu=2,
        memory_bytes=1 << 30,
        storage_bytes=10 << 30,
        memory=memory or Memory("boot", ["work"], 3, ["booted"]),
    )


def written(base_image: str = "") -> Obj:
    layers = manifest.layers_of(snapshot())
    return manifest.manifest_of(manifest.config_of(snapshot(), layers), layers, base_image)


@pytest.mark.scenario("N198")
def test_what_is_written_is_read_back() -> None:
    parsed = manifest.parse(written("image:v1"))
    assert parsed.base_image == "image:v1"
    assert [layer["annotations"][wire.TITLE] for layer in parsed.layers] == [
        "config.json",
        "state.json",
        "memory-ranges",
        "overlay.qcow2",
    ]
    assert manifest.parse(written()).base_image == ""


@pytest.mark.scenario("N198")
@pytest.mark.parametrize(
    ("title", "media_type"),
    [
        ("config.json", "application/vnd.cocoonstack.vm.config+json"),
        ("state.json", "application/vnd.cocoonstack.vm.state+json"),
        ("memory-ranges", "application/vnd.cocoonstack.vm.memory"),
        ("cidata.img", "application/vnd.cocoonstack.vm.cidata"),
        ("root.qcow2", "application/vnd.cocoonstack.disk.qcow2"),
        ("root.raw", "application/vnd.cocoonstack.disk.raw"),
        ("notes.txt", "application/octet-stream"),
    ],
)
def test_a_files_name_gives_its_layer_type(title: str, media_type: str) -> None:
    assert manifest.layer_type(title) == media_type


@pytest.mark.scenario("N033", "N198")
@pytest.mark.parametrize(
    "change",
    [
        {"artifactType": None},
        {"artifactType": wire.OS_IMAGE},
        {"layer": {"mediaType": "application/vnd.unknown"}},
        {"layer": {"mediaType": "application/vnd.cocoonstack.vm.memory+zstd"}},
        {"layer": {"annotations": {}}},
        {"layer": {"annotations": {wire.TITLE: "x", "cocoonstack.chunk.index": "0"}}},
        {"layer": {"size": -1}},
    ],
)
def test_what_nobody_can_restore_is_refused(change: Obj) -> None:
    body = copy.deepcopy(written())
    layer = change.pop("layer", {})
    body.update(change)
    body["layers"][0].update(layer)
    with pytest.raises(manifest.FormatError):
        manifest.parse(body)


@pytest.mark.scenario("N198")
def test_compressed_layers_are_read_in_version_two() -> None:
    body = written()
    body["artifactType"] = wire.SNAPSHOT_V2
    body["layers"][2]["mediaType"] += "+zstd"
    assert len(manifest.parse(body).layers) == 4


@pytest.mark.scenario("N085")
@pytest.mark.parametrize(
    ("descriptor", "data"),
    [
        ({"mediaType": "application/json"}, b"{}"),
        ({}, b"{}"),
        ({"mediaType": wire.SNAPSHOT_CONFIG}, b"not json"),
        ({"mediaType": wire.SNAPSHOT_CONFIG}, b"[]"),
    ],
)
def test_a_config_blob_that_is_none_is_an_error(descriptor: Obj, data: bytes) -> None:
    with pytest.raises(manifest.FormatError):
        manifest.snapshot_id(descriptor, data)


@pytest.mark.scenario("N066", "N198")
def test_the_config_names_the_exported_snapshot_and_omits_what_is_empty() -> None:
    record = snapshot()
    record.nics = 0
    blob = manifest.config_of(record, manifest.layers_of(record))
    body = json.loads(blob.data)
    assert manifest.snapshot_id(blob.descriptor, blob.data) == record.id
    assert "nics" not in body
    assert all(body.values())


@pytest.mark.scenario("N082", "N088")
@given(st.lists(st.text(), max_size=5), st.integers(0, 2**60), st.text())
def test_memory_comes_back_as_it_was_saved(work: list[str], ticks: int, boot_id: str) -> None:
    memory = Memory(boot_id, work, ticks, ["booted", *work])
    layers = {layer.descriptor["annotations"][wire.TITLE]: layer.data for layer in manifest.layers_of(snapshot(memory))}
    assert manifest.imported("x", {}, layers, "").memory == memory


@pytest.mark.scenario("N034")
@given(st.binary())
def test_a_foreign_memory_layer_is_no_memory_and_no_failure(data: bytes) -> None:
    assert manifest.imported("x", {}, {"memory-ranges": data}, "").memory == Memory()
