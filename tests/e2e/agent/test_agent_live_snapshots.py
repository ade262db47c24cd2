"""Live snapshots (contract, 3.5): asked for on the pod, pushed while the VM runs, answered once.

The answers are read with the package's typed contract, which shares nothing with the agent.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_fleet import ID, IP, LIFECYCLE, Fleet, Obj, note, ready

from cocoon_operator.api import keys
from cocoon_operator.api.snapshot import FAILED, PUSHED, SnapshotStatus, parse_reference


@pytest.fixture
def strict(fleet: Fleet) -> Iterator[Fleet]:
    """The nodes with the switch ``strict``."""
    fleet.agent.settings("n1", live_snapshot="strict")
    yield fleet
    fleet.agent.settings("n1", live_snapshot="deferred")


def ref(fleet: Fleet, tag: str = "s1") -> str:
    """A reference that no other test uses."""
    return f"team/{fleet.prefix}:{tag}"


def ask(fleet: Fleet, reference: str, name: str = "demo-0") -> None:
    fleet.annotate(name, snapshot=reference)


def answer(fleet: Fleet, name: str = "demo-0") -> SnapshotStatus:
    return SnapshotStatus.parse(fleet.the_pod(name)["metadata"].get("annotations"))


def until_answer(fleet: Fleet, reference: str, name: str = "demo-0") -> SnapshotStatus:
    fleet.until(lambda: answer(fleet, name).answers(reference), f"the answer to {reference}")
    return answer(fleet, name)


def manifest(fleet: Fleet, reference: str) -> Obj | None:
    where = parse_reference(reference)
    return fleet.manifest(where.repo, where.tag)


def pushed_id(fleet: Fleet, reference: str) -> str:
    where = parse_reference(reference)
    return str(fleet.config(where.repo, where.tag)["snapshotId"])


def snap(fleet: Fleet, name: str = "demo-0") -> str:
    """The local name of a live snapshot."""
    return f"snap-{fleet.vm(name)}"


def answers_written(fleet: Fleet, since: int | None = None) -> list[Obj]:
    """The agent's writes of answers."""
    return [each for each in fleet.writes("demo-0", since) if keys.SNAPSHOT_STATUS in each.get("changes", {})]


def saves(fleet: Fleet, since: int | None = None) -> list[str]:
    """The local names under which the VM was saved."""
    return [str(each["snapshot"]) for each in fleet.engine("save", "demo-0", since)]


def touch(fleet: Fleet, value: str) -> None:
    """An update that has nothing to do with the request, taken in by the agent."""
    since = fleet.agent.mark()
    fleet.annotate("demo-0", network=value)
    fleet.until(lambda: "update" in fleet.calls("demo-0", since), "the update is taken in")
    fleet.settle(0.2)


# -- what is pushed ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("N131", "N133", "N134")
def test_a_running_vm_is_pushed_and_runs_on(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.hibernate("demo-0")
    before = fleet.wake("demo-0")
    vm, local, slept = fleet.the_vm("demo-0"), fleet.local_id("demo-0"), fleet.tag_id("demo-0")
    since = fleet.agent.mark()
    ask(fleet, ref(fleet))
    assert until_answer(fleet, ref(fleet)) == SnapshotStatus(ref(fleet), PUSHED)
    fleet.settle(0.2)
    pod = fleet.the_pod("demo-0")
    for key in (ID, IP, LIFECYCLE):
        assert note(pod, key) == note(before, key)
    assert pod["status"] == fleet.until_pod("demo-0", ready, "it is ready")["status"]
    assert [each["op"] for each in fleet.writes("demo-0", since)] == ["annotate"], "the answer, and nothing else"
    assert manifest(fleet, ref(fleet)) is not None
    assert snap(fleet) not in fleet.agent.snapshots("n1")
    # The pushed state has an id of its own; the cache keeps the one that the tag names.
    assert [each["snapshot"] for each in fleet.engine("saved", "demo-0", since)] == [snap(fleet)]
    assert pushed_id(fleet, ref(fleet)) == fleet.engine("saved", "demo-0", since)[0]["id"]
    assert pushed_id(fleet, ref(fleet)) not in {local, slept}
    assert fleet.local_id("demo-0") == local == slept
    after = fleet.the_vm("demo-0")
    assert (after["id"], after["boot_id"], after["state"]) == (vm["id"], vm["boot_id"], "running")
    fleet.release("demo-0")
    fleet.boot("demo-0", restore_from_hibernate="true")
    assert fleet.the_vm("demo-0")["restored_via"] == "local"


@pytest.mark.scenario("N132")
def test_without_a_tag_latest_is_pushed_and_the_answer_repeats_what_was_asked(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    asked = f"team/{fleet.prefix}"
    ask(fleet, asked)
    assert until_answer(fleet, asked).ref == asked
    assert fleet.manifest(asked, "latest") is not None


@pytest.mark.scenario("N135")
def test_the_push_is_an_image_that_boots_with_a_network(fleet: Fleet) -> None:
    """A Windows guest loses its NIC when it is hibernated, and keeps it here."""
    fleet.boot("demo-0", os="windows")
    fleet.work("demo-0", "precious")
    ask(fleet, ref(fleet))
    until_answer(fleet, ref(fleet))
    fleet.hibernate("demo-0")
    assert fleet.config(f"team/{fleet.prefix}", "s1")["nics"] == 1
    assert "nics" not in fleet.config(fleet.vm("demo-0"), "hibernate")
    pod = fleet.boot("demo-1", image=ref(fleet), os="windows")
    vm = fleet.the_vm("demo-1")
    assert vm["memory"]["work"] == ["precious"]
    assert note(pod, IP) == vm["ip"] != ""


@pytest.mark.scenario("N157", "N158")
def test_the_vms_own_repository_is_as_good_as_any(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "slept")
    fleet.hibernate("demo-0")
    fleet.wake("demo-0")
    slept, local = fleet.the_manifest("demo-0"), fleet.local_id("demo-0")
    own = f"{fleet.vm('demo-0')}:snap1"
    ask(fleet, own)
    until_answer(fleet, own)
    assert manifest(fleet, own) is not None
    assert fleet.the_manifest("demo-0") == slept
    assert fleet.local_id("demo-0") == local
    # Under the tag of hibernation it takes the place of the saved state: the kept copy is stale, and evidence sees it.
    fleet.work("demo-0", "snapped")
    ask(fleet, f"{fleet.vm('demo-0')}:hibernate")
    until_answer(fleet, f"{fleet.vm('demo-0')}:hibernate")
    assert fleet.tag_id("demo-0") != fleet.local_id("demo-0") == local
    fleet.release("demo-0")
    fleet.boot("demo-0")
    fleet.until_event("demo-0", "HibernateSnapshotExists")
    vm = fleet.the_vm("demo-0")
    assert (vm["memory"]["work"], vm["restored_via"]) == (["slept", "snapped"], "pull")


@pytest.mark.scenario("N159")
def test_the_end_of_the_pod_pushes_latest_all_the_same(fleet: Fleet) -> None:
    fleet.boot("demo-0", snapshot_policy="always")
    ask(fleet, ref(fleet))
    until_answer(fleet, ref(fleet))
    fleet.work("demo-0", "later")
    fleet.delete("demo-0")
    assert saves(fleet) == [snap(fleet), fleet.vm("demo-0")]
    assert fleet.tag_id("demo-0", "latest") == fleet.engine("saved", "demo-0")[1]["id"]
    assert pushed_id(fleet, ref(fleet)) == fleet.engine("saved", "demo-0")[0]["id"]


# -- what fails --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("N138", "N139", "N140", "N141", "N142")
@pytest.mark.parametrize("point", ["snapshot.save", "push.blob", "push.manifest", "push.report"])
def test_a_failure_is_an_answer_and_a_new_tag_a_new_request(fleet: Fleet, point: str) -> None:
    fleet.boot("demo-0")
    fault = fleet.agent.fault("n1", point, vm=fleet.vm("demo-0"), message="out of space")
    ask(fleet, ref(fleet))
    assert until_answer(fleet, ref(fleet)) == SnapshotStatus(ref(fleet), FAILED, "out of space")
    assert (manifest(fleet, ref(fleet)) is not None) == (point == "push.report")
    assert snap(fleet) not in fleet.agent.snapshots("n1")
    assert fleet.the_vm("demo-0")["state"] == "running"
    assert note(fleet.the_pod("demo-0"), LIFECYCLE) == "ready"
    fleet.agent.clear("n1", fault)
    since = fleet.agent.mark()
    touch(fleet, "other")
    ask(fleet, ref(fleet))
    fleet.settle(0.2)
    assert saves(fleet, since) == []
    assert answer(fleet).state == FAILED
    barrier = fleet.agent.barrier("n1", "push.manifest", vm=fleet.vm("demo-0"))
    ask(fleet, ref(fleet, "s2"))
    fleet.agent.wait_at_barrier("n1", barrier)
    assert answer(fleet).answers(ref(fleet))
    assert not answer(fleet).answers(ref(fleet, "s2"))
    fleet.agent.release("n1", barrier)
    assert until_answer(fleet, ref(fleet, "s2")).state == PUSHED
    assert manifest(fleet, ref(fleet, "s2")) is not None


@pytest.mark.scenario("N139", "N141")
def test_a_registry_that_is_down_is_a_failure_and_loses_nothing(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "precious")
    fleet.registry.stop()
    try:
        ask(fleet, ref(fleet))
        assert until_answer(fleet, ref(fleet)).state == FAILED
    finally:
        fleet.registry.start()
    assert snap(fleet) not in fleet.agent.snapshots("n1")
    assert manifest(fleet, ref(fleet)) is None
    ask(fleet, ref(fleet, "s2"))
    assert until_answer(fleet, ref(fleet, "s2")).state == PUSHED
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious"]


@pytest.mark.scenario("N156")
@pytest.mark.parametrize("illegal", ["host:5000/x", "x@sha256:0123", "X/y", "x:", ":t", "a//b"])
def test_what_is_no_reference_fails_without_a_save(fleet: Fleet, illegal: str) -> None:
    fleet.boot("demo-0", node="n2")
    ask(fleet, illegal)
    found = until_answer(fleet, illegal)
    assert found.state == FAILED
    assert illegal in found.message
    assert saves(fleet) == []


@pytest.mark.scenario("N143")
@pytest.mark.parametrize("malformed", ["xx", "[]", '{"ref": 1}', ""])
def test_an_answer_that_cannot_be_read_is_none(fleet: Fleet, malformed: str) -> None:
    fleet.boot("demo-0", node="n2", snapshot_status=malformed)
    assert answer(fleet) == SnapshotStatus()
    ask(fleet, ref(fleet))
    assert until_answer(fleet, ref(fleet)).state == PUSHED


# -- once --------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("N144")
def test_an_old_copy_of_the_pod_gets_the_old_answer_again(strict: Fleet) -> None:
    fleet = strict
    fleet.boot("demo-0")
    barrier = fleet.agent.barrier("n1", "push.manifest", vm=fleet.vm("demo-0"))
    ask(fleet, ref(fleet))
    fleet.agent.wait_at_barrier("n1", barrier)
    unanswered = fleet.the_pod("demo-0")["metadata"]["resourceVersion"]
    fleet.agent.release("n1", barrier)
    until_answer(fleet, ref(fleet))
    fleet.agent.replay("n1", f"{fleet.namespace}/{fleet.full('demo-0')}", unanswered)
    fleet.until(lambda: len(answers_written(fleet)) == 2, "the answer is written again")
    assert len({each["changes"][keys.SNAPSHOT_STATUS] for each in answers_written(fleet)}) == 1
    assert saves(fleet) == [snap(fleet)]


def test_an_old_copy_of_the_pod_is_read_with_the_agents_own_answer(fleet: Fleet) -> None:
    """Deferred: nothing is remembered but what was written, and that is enough against a copy that is late."""
    fleet.boot("demo-0")
    barrier = fleet.agent.barrier("n1", "push.manifest", vm=fleet.vm("demo-0"))
    ask(fleet, ref(fleet))
    fleet.agent.wait_at_barrier("n1", barrier)
    unanswered = fleet.the_pod("demo-0")["metadata"]["resourceVersion"]
    fleet.agent.release("n1", barrier)
    until_answer(fleet, ref(fleet))
    since = fleet.agent.mark()
    fleet.agent.replay("n1", f"{fleet.namespace}/{fleet.full('demo-0')}", unanswered)
    fleet.until(lambda: "update" in fleet.calls("demo-0", since), "the old copy is taken in")
    fleet.settle(0.2)
    assert saves(fleet) == [snap(fleet)]
    assert len(answers_written(fleet)) == 1


@pytest.mark.scenario("N145")
def test_an_answer_that_got_lost_is_written_without_a_second_save(strict: Fleet) -> None:
    fleet = strict
    fleet.boot("demo-0")
    fault = fleet.agent.fault("n1", "patch.annotations.other", vm=fleet.vm("demo-0"), times=1)
    ask(fleet, ref(fleet))
    fleet.agent.wait_for_hit("n1", fault)
    assert manifest(fleet, ref(fleet)) is not None
    touch(fleet, "other")
    assert until_answer(fleet, ref(fleet)).state == PUSHED
    assert saves(fleet) == [snap(fleet)]


@pytest.mark.scenario("N146")
def test_a_new_incarnation_is_served_anew(strict: Fleet) -> None:
    fleet = strict
    fleet.boot("demo-0")
    ask(fleet, ref(fleet))
    until_answer(fleet, ref(fleet))
    first = pushed_id(fleet, ref(fleet))
    fleet.delete("demo-0")
    fleet.boot("demo-0", snapshot=ref(fleet))
    assert until_answer(fleet, ref(fleet)).state == PUSHED
    assert pushed_id(fleet, ref(fleet)) != first
    assert len(saves(fleet)) == 2


@pytest.mark.scenario("N147")
@pytest.mark.parametrize("switch", ["deferred", "strict"])
def test_a_restart_saves_again_only_what_was_never_answered(fleet: Fleet, switch: str) -> None:
    fleet.agent.settings("n1", live_snapshot=switch)
    try:
        fleet.boot("demo-0")
        ask(fleet, ref(fleet))
        until_answer(fleet, ref(fleet))
        fleet.agent.restart_node("n1")
        touch(fleet, "other")
        assert saves(fleet) == [snap(fleet)]
        fault = fleet.agent.fault("n1", "patch.annotations.other", vm=fleet.vm("demo-0"), times=1)
        ask(fleet, ref(fleet, "s2"))
        fleet.agent.wait_for_hit("n1", fault)
        assert not answer(fleet).answers(ref(fleet, "s2"))
        fleet.agent.restart_node("n1")
        touch(fleet, "another")
        assert until_answer(fleet, ref(fleet, "s2")).state == PUSHED
        assert saves(fleet) == [snap(fleet)] * 3
    finally:
        fleet.agent.settings("n1", live_snapshot="deferred")


@pytest.mark.scenario("N155")
def test_the_agents_own_answer_is_no_news_for_it(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    ask(fleet, ref(fleet))
    until_answer(fleet, ref(fleet))
    since = fleet.agent.mark()
    fleet.settle()
    touch(fleet, "other")
    assert fleet.writes("demo-0", since) == []
    assert saves(fleet, since) == []


# -- a VM that does not run --------------------------------------------------------------------------------------------


def stop_vm(fleet: Fleet) -> int:
    """Let the VM stop, and its restart wait: nobody may know yet. Returns the barrier."""
    barrier = fleet.agent.fault("n1", "vm.inspect", vm=fleet.vm("demo-0"), fail=False, hold=True, times=1)
    fleet.agent.crash_vm("n1", fleet.vm("demo-0"))
    fleet.agent.wait_at_barrier("n1", barrier)
    return barrier


def restart_vm(fleet: Fleet, barrier: int) -> None:
    fleet.agent.release("n1", barrier)
    fleet.until(lambda: fleet.the_vm("demo-0")["state"] == "running", "it runs again")


@pytest.mark.scenario("N148")
def test_strict_a_vm_that_stopped_fails_at_once_and_for_good(strict: Fleet) -> None:
    fleet = strict
    fleet.boot("demo-0")
    barrier = stop_vm(fleet)
    ask(fleet, ref(fleet))
    assert until_answer(fleet, ref(fleet)).state == FAILED
    restart_vm(fleet, barrier)
    touch(fleet, "other")
    assert answer(fleet).state == FAILED
    assert saves(fleet) == []


@pytest.mark.scenario("N149")
def test_deferred_a_vm_that_stopped_is_served_with_the_next_update(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    barrier = stop_vm(fleet)
    since = fleet.agent.mark()
    ask(fleet, ref(fleet))
    fleet.until(lambda: "update" in fleet.calls("demo-0", since), "the update is taken in")
    fleet.settle(0.2)
    assert fleet.writes("demo-0", since) == []
    restart_vm(fleet, barrier)
    fleet.annotate("demo-0", network="other")
    assert until_answer(fleet, ref(fleet)).state == PUSHED


@pytest.mark.scenario("N150")
def test_strict_a_sleeping_vm_is_not_woken_for_it(strict: Fleet) -> None:
    fleet = strict
    fleet.boot("demo-0")
    fleet.hibernate("demo-0")
    ask(fleet, ref(fleet))
    assert until_answer(fleet, ref(fleet)).state == FAILED
    assert fleet.find_vm("demo-0") is None
    assert note(fleet.the_pod("demo-0"), LIFECYCLE) == "hibernated"


@pytest.mark.scenario("N151")
def test_strict_sleep_in_the_same_update_comes_after_the_refusal(strict: Fleet) -> None:
    fleet = strict
    fleet.boot("demo-0")
    fleet.work("demo-0", "precious")
    since = fleet.agent.mark()
    fleet.annotate("demo-0", snapshot=ref(fleet), hibernate="true")
    fleet.until_state("demo-0", "hibernated")
    told = [each["changes"] for each in fleet.writes("demo-0", since) if "changes" in each]
    order = [change.get(LIFECYCLE) or ("answer" if keys.SNAPSHOT_STATUS in change else "ids") for change in told]
    assert order == ["answer", "hibernating", "ids", "hibernated"]
    assert answer(fleet).state == FAILED
    assert saves(fleet) == [fleet.vm("demo-0")]


@pytest.mark.scenario("N152")
def test_deferred_sleep_in_the_same_update_comes_alone_and_the_request_after_the_wake(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.annotate("demo-0", snapshot=ref(fleet), hibernate="true")
    fleet.until_state("demo-0", "hibernated")
    assert answer(fleet) == SnapshotStatus()
    assert saves(fleet) == [fleet.vm("demo-0")]
    fleet.wake("demo-0")
    assert until_answer(fleet, ref(fleet)).state == PUSHED
    assert saves(fleet) == [fleet.vm("demo-0"), snap(fleet)]


@pytest.mark.scenario("N153")
@pytest.mark.parametrize("switch", ["deferred", "strict"])
def test_sleep_that_is_asked_for_during_the_push_waits_for_it(fleet: Fleet, switch: str) -> None:
    fleet.agent.settings("n1", live_snapshot=switch)
    try:
        fleet.boot("demo-0")
        barrier = fleet.agent.barrier("n1", "push.manifest", vm=fleet.vm("demo-0"))
        ask(fleet, ref(fleet))
        fleet.agent.wait_at_barrier("n1", barrier)
        fleet.annotate("demo-0", hibernate="true")
        fleet.settle()
        assert note(fleet.the_pod("demo-0"), LIFECYCLE) == "ready"
        fleet.agent.clear("n1", barrier)
        fleet.until_state("demo-0", "hibernated")
        assert answer(fleet) == SnapshotStatus(ref(fleet), PUSHED)
        assert saves(fleet) == [snap(fleet), fleet.vm("demo-0")]
    finally:
        fleet.agent.settings("n1", live_snapshot="deferred")


@pytest.mark.scenario("N154")
def test_strict_a_request_during_the_bring_up_fails_at_once(strict: Fleet) -> None:
    fleet = strict
    barrier = fleet.agent.barrier("n1", "vm.boot", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0")
    fleet.agent.wait_at_barrier("n1", barrier)
    ask(fleet, ref(fleet))
    assert until_answer(fleet, ref(fleet)).state == FAILED
    assert note(fleet.the_pod("demo-0"), LIFECYCLE) == "creating"
    fleet.agent.release("n1", barrier)
    fleet.until_state("demo-0", "ready")
    touch(fleet, "other")
    assert saves(fleet) == []
    ask(fleet, ref(fleet, "s2"))
    assert until_answer(fleet, ref(fleet, "s2")).state == PUSHED


@pytest.mark.scenario("N154")
def test_deferred_a_request_during_the_bring_up_waits_for_the_vm(fleet: Fleet) -> None:
    barrier = fleet.agent.barrier("n1", "vm.boot", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0")
    fleet.agent.wait_at_barrier("n1", barrier)
    ask(fleet, ref(fleet))
    fleet.settle(0.2)
    assert answer(fleet) == SnapshotStatus()
    fleet.agent.release("n1", barrier)
    assert until_answer(fleet, ref(fleet)).state == PUSHED


# -- switches ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("N160")
def test_switched_off_both_keys_are_ignored(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.agent.settings("n1", live_snapshot="off")
    try:
        since = fleet.agent.mark()
        fleet.annotate("demo-0", snapshot=ref(fleet), snapshot_status="xx")
        fleet.until(lambda: "update" in fleet.calls("demo-0", since), "the update is taken in")
        fleet.settle(0.2)
        assert fleet.writes("demo-0", since) == []
        assert saves(fleet) == []
        assert note(fleet.the_pod("demo-0"), keys.SNAPSHOT_STATUS) == "xx"
    finally:
        fleet.agent.settings("n1", live_snapshot="deferred")


@pytest.mark.parametrize(("switch", "told"), [("strict", FAILED), ("deferred", "")])
def test_a_vm_that_is_not_the_agents_is_not_taken(fleet: Fleet, switch: str, told: str) -> None:
    fleet.agent.settings("n1", live_snapshot=switch)
    try:
        fleet.boot("demo-0", managed=None, mode="static", id="outside", ip="10.1.1.1")
        since = fleet.agent.mark()
        ask(fleet, ref(fleet))
        fleet.until(lambda: "update" in fleet.calls("demo-0", since), "the update is taken in")
        fleet.settle(0.2)
        assert answer(fleet).state == told
        assert saves(fleet) == []
    finally:
        fleet.agent.settings("n1", live_snapshot="deferred")
