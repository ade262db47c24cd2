"""What the Go operator leaves behind living VMs goes once: tags, a hint without a wake (W-17, W-46; design 4.3 rule 2)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    DROP,
    asked,
    built_main,
    built_sub,
    made_by_go,
    rest,
    running_status,
    saved,
    set_object,
    stand,
    up,
)

pytestmark = pytest.mark.asyncio


async def test_w46_a_hint_without_a_wake_goes_with_the_stale_tag(world: World) -> None:
    made_by_go(world, {"phase": "Running"}, {keys.HINT_NODE: "node-a"})
    stand(world, built_main(set_object()), annotations=AWAKE, status=running_status())
    saved(world)
    await world.run()
    assert world.tag() is None
    assert keys.HINT_NODE not in world.set()["metadata"].get("annotations", {})
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


async def test_a_dead_letter_is_not_waited_for(world: World) -> None:
    """It never gets ready, and the others would be asked about again and again."""
    made_by_go(world, {"phase": "Scaling"}, agent={"replicas": 1})
    target = set_object(agent={"replicas": 1})
    stand(world, built_main(target), annotations=AWAKE, status=running_status())
    letter = {keys.DEAD_LETTER: "true", keys.LIFECYCLE_STATE: "failed"}
    stand(world, built_sub(target), annotations=letter, status={"phase": "Pending"})
    saved(world)
    await rest(world)
    assert asked(world).count(DROP) == 1
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert world.tag() is None


async def test_w17_a_set_that_was_with_the_go_operator_in_between_is_swept_again(world: World) -> None:
    """It suspended and woke the set, kept our condition, and left a tag that would be restored one day."""
    await up(world)
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    world.edit(suspend=True)
    world.edit(suspend=False)
    generation = world.set()["metadata"]["generation"]
    saved(world)
    world.api.patch("set", "ns", "demo", {"status": {"observedGeneration": generation}}, by="go", subresource="status")
    await rest(world)
    assert world.tag() is None
    snapshot = world.condition("SnapshotCurrent")
    assert (snapshot["reason"], snapshot["observedGeneration"]) == ("NoSnapshot", generation)
    assert world.memory() == ["work"]
