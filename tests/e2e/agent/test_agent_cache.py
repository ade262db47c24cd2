"""Bounding the cache (contract, 4.4): what the agent reclaims by itself, and what a garbage collection costs a wake."""

from __future__ import annotations

import pytest
from node_fleet import Fleet


def kept(fleet: Fleet, *names: str) -> None:
    """Leave verified copies on the node, with a fork base beside them, and no pod."""
    for name in names:
        fleet.boot(name)
        fleet.work(name, "precious")
        fleet.boot(f"{name}-fork", fork_from=fleet.vm(name))
        fleet.hibernate(name)
        fleet.release(name)


def copies(fleet: Fleet, name: str) -> int:
    return len({fleet.vm(name), f"fork-{fleet.vm(name)}"} & set(fleet.agent.snapshots("n1")))


@pytest.mark.scenario("N124", "N125", "N126")
def test_copies_whose_tag_is_gone_or_moved_are_reclaimed(fleet: Fleet) -> None:
    kept(fleet, "gone", "moved", "valid")
    fleet.drop_tag("gone")
    fleet.put_manifest(fleet.vm("moved"), "hibernate", _other(fleet))
    fleet.agent.reclaim("n1")
    assert [copies(fleet, name) for name in ("gone", "moved", "valid")] == [0, 0, 2]


def _other(fleet: Fleet) -> dict[str, object]:
    """Save another state of the VM ``moved`` on the second node, and return its manifest."""
    fleet.boot("moved", node="n2", restore_from_hibernate="true")
    fleet.hibernate("moved")
    fleet.delete("moved")
    return fleet.the_manifest("moved")


@pytest.mark.scenario("N127", "N129")
def test_without_an_answer_copies_stay_and_imports_go(fleet: Fleet) -> None:
    kept(fleet, "demo-0")
    fleet.drop_tag("demo-0")
    unused = {f"{fleet.vm('x')}-hibernate-import", f"{fleet.vm('x')}:v2"}
    for name in unused:
        plant(fleet, name)
    fault = fleet.agent.fault("n1", "registry")
    fleet.agent.reclaim("n1")
    fleet.agent.clear("n1", fault)
    assert copies(fleet, "demo-0") == 2
    assert not unused & set(fleet.agent.snapshots("n1"))


@pytest.mark.scenario("N128", "N129", "N130")
def test_what_is_in_use_or_foreign_stays(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.hibernate("demo-0")
    fleet.drop_tag("demo-0")
    tagged = f"{fleet.vm('other')}:v2"
    fleet.agent.publish_image(tagged)
    fleet.boot("demo-1", image=tagged)
    foreign = {f"snap-{fleet.vm('demo-0')}", f"fork-{fleet.vm('nobody')}", f"ubuntu-{fleet.prefix}"}
    for name in foreign:
        plant(fleet, name)
    fleet.agent.reclaim("n1")
    assert {fleet.vm("demo-0"), tagged, *foreign} <= set(fleet.agent.snapshots("n1"))
    for name in foreign:
        fleet.agent.forget_snapshot("n1", name)


def plant(fleet: Fleet, name: str) -> None:
    """Put a local snapshot on the node under any name: a copy of the base image."""
    fleet.agent.copy_snapshot("n1", "base", name)


@pytest.mark.scenario("N120", "N123")
def test_an_evicted_copy_costs_a_pull_and_a_wake_makes_it_the_youngest(fleet: Fleet) -> None:
    kept(fleet, "first", "second")
    fleet.boot("first", restore_from_hibernate="true")
    fleet.until_gone("second")
    before = fleet.agent.snapshots("n1")
    assert before[fleet.vm("first")]["last_accessed_at"] > before[fleet.vm("second")]["last_accessed_at"]
    assert fleet.agent.snapshots("n1") == before
    fleet.agent.forget_snapshot("n1", fleet.vm("second"))
    fleet.boot("second", restore_from_hibernate="true")
    vm = fleet.the_vm("second")
    assert (vm["memory"]["work"], vm["restored_via"]) == (["precious"], "pull")


@pytest.mark.scenario("N122")
def test_the_collection_of_the_node_tells_its_victims(fleet: Fleet) -> None:
    kept(fleet, "demo-0")
    victims = fleet.agent.collect("n1", keep=0, dry_run=True)
    assert fleet.vm("demo-0") in victims
    assert fleet.local("demo-0") is not None
