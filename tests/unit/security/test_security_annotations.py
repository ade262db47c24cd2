"""Annotations and status of absurd size or content, on pods and sets: the set goes on, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.lifecycle import Lifecycle, RuntimeInfo
from cocoon_operator.api.pod import parse_int
from cocoon_operator.api.snapshot import SnapshotStatus
from tests.model.judged import JudgedWorld
from tests.unit.reconcile.staging import VM, agent_says, asleep, up

LARGE = "x" * 200_000
HOSTILE = {
    "large": LARGE,
    "nested list": "[" * 100_000,
    "nested object": '{"a":' * 30_000,
    "digits": "9" * 200_000,
    "long json": json.dumps({"n": 10**300, "main": {"count": 10**300, "lastDeleted": "9" * 300}}),
    "control characters": "a\nb\r\x1b[2J\x00\x7f",
    "unicode": "\u202e\u0663\ufeff\U0001f4a3",
    "null": "null",
    "wrong type": '{"vk-ns-demo-0": [1]}',
    "foreign names": json.dumps({"vk-ns-victim-0": "sha256:" + "b" * 64, "../../x": "sha256:" + "c" * 64}),
    "empty": "",
}
# Read from pods by decisions; what shapes the VM (image, mode, ...) is drift and is tested there.
POD_KEYS = [
    keys.VM_ID,
    keys.VM_IP,
    keys.VNC_PORT,
    keys.LIFECYCLE_STATE,
    keys.LIFECYCLE_GENERATION,
    keys.LIFECYCLE_MESSAGE,
    keys.GENERATION,
    keys.SNAPSHOT_REQUEST,
    keys.SNAPSHOT_STATUS,
]
SET_KEYS = [
    keys.SNAPSHOT_DIGESTS,
    keys.REBUILD_HISTORY,
    keys.TOOLBOX_REBUILD_HISTORY,
    keys.DELETE_VM_NAMES,
    keys.REMOVING_VM_NAMES,
    keys.START_FRESH,
]
CONDITION_LIMIT = 32_768
STATUS_LIMIT = 64 * 1024


async def settle(world: JudgedWorld) -> None:
    """The judge raises for a lost VM, a tag of somebody else's and a pod deleted unsaved; what is left is asked here."""
    await world.settle()
    assert world.outcome.error is None
    assert_small(world.set()["status"])


def assert_small(status: dict[str, Any]) -> None:
    assert all(len(entry["message"]) <= CONDITION_LIMIT for entry in status["conditions"])
    assert len(json.dumps(status)) <= STATUS_LIMIT


@pytest.mark.asyncio
@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("key", POD_KEYS)
async def test_whatever_a_pod_says_the_set_lives_on(key: str, content: str) -> None:
    world = JudgedWorld()
    await up(world)
    before = world.pod()
    assert before is not None
    agent_says(world, {key: content})
    await settle(world)
    world.edit(suspend=True)
    await settle(world)
    left = world.pod()
    assert left is not None
    assert left["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.asyncio
@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("key", SET_KEYS)
@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_whatever_a_set_is_annotated_with_the_vm_comes_back(key: str, content: str, policy: str) -> None:
    world = JudgedWorld()
    digest = await asleep(world, hibernatePolicy=policy)
    world.registry.push("vk-ns-victim-0", "hibernate", {"memory": ["another's"], "image": "base", "id": "vm-7"})
    world.annotate({key: content})
    await settle(world)
    world.edit(suspend=False)
    await settle(world)
    assert world.phase == "Running"
    assert world.tag("vk-ns-victim-0") is not None
    if key == keys.DELETE_VM_NAMES and policy == "release":
        # Who empties this list disowns the snapshot (rule 3): it is put aside, whole.
        assert {
            digest for (vm, tag), digest in world.registry.tags.items() if vm == VM and tag.startswith("orphan-")
        } == {digest}
    else:
        assert world.memory() == ["work"]


@pytest.mark.asyncio
@pytest.mark.parametrize("state", ["failed", "hibernating", "hibernated", LARGE])
@pytest.mark.parametrize("message", [LARGE, "hibernate: " + LARGE, "[" * 100_000])
@pytest.mark.parametrize("edit", [{}, {"suspend": True}, {"nodeName": "node-b"}], ids=["", "suspend", "migrate"])
async def test_a_long_message_leaves_a_status_that_can_be_written(
    state: str, message: str, edit: dict[str, Any]
) -> None:
    world = JudgedWorld()
    await up(world)
    world.edit(**edit)
    agent_says(world, {keys.LIFECYCLE_STATE: state, keys.LIFECYCLE_MESSAGE: message})
    for _ in range(4):
        await world.run()
        assert world.outcome.error is None
        assert_small(world.set()["status"])
    assert all(len(text) < 2048 for *_, text in world.recorder.events)


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_every_reader_of_an_annotation_answers(content: str) -> None:
    annotations = dict.fromkeys([*POD_KEYS, *SET_KEYS], content)
    assert parse_int(content) == 0
    assert Lifecycle.read(annotations).observed_generation == 0
    assert RuntimeInfo.read(annotations).vnc_port == 0
    assert SnapshotStatus.parse(annotations) == SnapshotStatus()
