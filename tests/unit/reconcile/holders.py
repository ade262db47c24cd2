"""CocoonHibernations as users handle them and as they are stored, and pods outside every set, shared by their scenario tests."""

from __future__ import annotations

from typing import Any

from cocoon_operator.api import keys
from tests.model.apiserver import Object
from tests.model.world import World
from tests.unit.reconcile.staging import hibernation, rest, up

SOLO = "vk-ns-solo"


# -- on a set ----------------------------------------------------------------------------------------------------------


async def held(world: World, **spec: Any) -> str:
    """A set that runs but for its main agent, which a CocoonHibernation put to sleep; returns the digest of the save."""
    await up(world, **spec)
    hibernation(world)
    await rest(world)
    assert phase(world) == "Hibernated"
    return str(world.tag())


def stored(world: World, name: str = "demo-0") -> Object:
    """A CocoonHibernation as stored."""
    found = world.api.get("hibernation", "ns", name)
    assert found is not None, f"CocoonHibernation {name} does not exist"
    return found


def gone(world: World, name: str = "demo-0") -> bool:
    """Whether a CocoonHibernation is gone."""
    return world.api.get("hibernation", "ns", name) is None


def phase(world: World, name: str = "demo-0") -> str:
    """Its phase, "" before the first status."""
    return str(stored(world, name)["status"].get("phase", ""))


def ready(world: World, name: str = "demo-0") -> tuple[str, str, str]:
    """Status, reason and message of its condition ``Ready``."""
    (found,) = stored(world, name)["status"]["conditions"]
    assert found["type"] == "Ready"
    return found["status"], found["reason"], found["message"]


def since(world: World, name: str = "demo-0") -> str:
    """The transition time of ``Ready``, the clock of the deadlines."""
    return str(stored(world, name)["status"]["conditions"][0]["lastTransitionTime"])


def wants(world: World, desire: str, name: str = "demo-0") -> None:
    """A user edits the desire."""
    world.api.patch("hibernation", "ns", name, {"spec": {"desire": desire}}, by="user")


def ends(world: World, name: str = "demo-0") -> None:
    """A user deletes it."""
    world.api.delete("hibernation", "ns", name, by="user")


def says(world: World, status: dict[str, Any], name: str = "demo-0") -> None:
    """Put a status into the store, as another process left it."""
    world.api.patch("hibernation", "ns", name, {"status": status}, by="go", subresource="status")


def told(world: World, name: str = "demo-0") -> list[tuple[str, str, str]]:
    """The events of a CocoonHibernation as (type, reason, message)."""
    return [(kind, reason, message) for who, kind, reason, message in world.recorder.events if who == name]


# -- outside every set -------------------------------------------------------------------------------------------------


async def solo(world: World, name: str = "solo", *, memory: str = "work") -> None:
    """A pod that no set owns, with a VM that runs and somebody's work in it."""
    vm_name = f"vk-ns-{name}"
    annotations = {keys.VM_NAME: vm_name, keys.MANAGED: "true", keys.IMAGE: "base"}
    body = {"metadata": {"name": name, "namespace": "ns", "annotations": annotations, "labels": {}}, "spec": {}}
    world.api.create("pod", body, by="user")
    world.agent.run()
    world.agent.work(vm_name, memory)


async def solo_held(world: World) -> str:
    """Such a pod, put to sleep by a CocoonHibernation of its name; returns the digest of the save."""
    await solo(world)
    hibernation(world, "solo")
    await rest(world)
    assert phase(world, "solo") == "Hibernated"
    return str(world.tag(SOLO))


# -- what is measured --------------------------------------------------------------------------------------------------


def samples(world: World) -> list[tuple[str, float, str]]:
    """The durations of hibernations and wakes as (histogram, seconds, result), in order."""
    return [
        (name, seconds, labels["result"])
        for name, seconds, labels in world.measures.durations
        if name in ("hibernate_phase_duration_seconds", "wake_phase_duration_seconds")
    ]
