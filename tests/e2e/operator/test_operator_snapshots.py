"""Live snapshots under a running operator, and what else the node agent's contract expects of the operator (N096-N204).

A snapshot is a business between a user and the node agent; the operator is there to make machines of what was pushed.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from fleet import RUN_BOX, Fleet, other_node
from hold import Hold
from nodes import PREFIX
from seat import Seat, Surroundings, note

from cocoon_devkit.agent.client import AgentClient
from cocoon_devkit.agent.launch import AgentOptions, AgentProcess
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatoraudit import describe
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_devkit.rawapi import Obj
from cocoon_devkit.scratch import Scratch
from cocoon_operator.api import keys
from cocoon_operator.api.snapshot import PUSHED, SnapshotStatus

_PASSES: Final = "controller_runtime_reconcile_total{"


@pytest.fixture(scope="module")
def gate(cluster: Cluster, snapshots: str) -> Iterator[AgentClient]:
    """A gate in front of the registry, for the operator alone: the nodes of the tests reach the registry directly."""
    options = AgentOptions(nodes=("gatekeeper",), registry=snapshots, flags=("--registry-gate", "--pool", "nobody"))
    with Scratch("gate") as scratch, AgentProcess(cluster.kubeconfig, scratch.path, options) as process:
        yield process.client
    cluster.kubectl("delete", "node", "gatekeeper")


@pytest.fixture(scope="module")
def operator(gate: AgentClient, node_agent: AgentProcess, operator_kubeconfig: Path) -> Iterator[OperatorProcess]:
    """The operator of this module, behind the gate."""
    options = OperatorOptions(f"{gate.gate()['operator']}/{PREFIX}", leader_elect=False)
    with Scratch("operator") as scratch, OperatorProcess(operator_kubeconfig, scratch.path, options) as process:
        yield process


@pytest.fixture
def attentive(
    operator: OperatorProcess, namespace: str, snapshots: str, operator_kubeconfig: Path, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """An operator in the place of the others' that sees this namespace alone and runs for events alone."""
    operator.stop()
    settings = {"WATCH_NAMESPACE": namespace, "RESYNC_INTERVAL": "1h"}
    options = OperatorOptions(snapshots, leader_elect=False, settings=settings)
    with OperatorProcess(operator_kubeconfig, tmp_path, options) as process:
        yield process
    operator.start()


def passes(operator: OperatorProcess) -> int:
    """How many passes the operator has made since it was started."""
    with urllib.request.urlopen(operator.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(_PASSES))


def answer(seat: Seat) -> SnapshotStatus:
    """The agent's last word on the pod of a seat."""
    return SnapshotStatus.parse((seat.find_pod() or {"metadata": {}})["metadata"].get("annotations"))


def snapshot(seat: Seat, ref: str) -> SnapshotStatus:
    """Ask for a live snapshot and wait for the answer to it."""
    seat.annotate_pod({keys.SNAPSHOT_REQUEST: ref})
    seat.until(lambda: answer(seat).answers(ref), f"the answer to {ref}")
    return answer(seat)


# -- nothing happens ---------------------------------------------------------------------------------------------------


def running(seat: Seat, _held: ExitStack) -> None:
    seat.up()


def asleep(seat: Seat, _held: ExitStack) -> None:
    seat.up()
    seat.suspend()


def suspending(seat: Seat, held: ExitStack) -> None:
    seat.up()
    is_held = held.enter_context(seat.barrier("push.blob"))
    seat.edit(suspend=True)
    is_held()


def waking(seat: Seat, held: ExitStack) -> None:
    seat.up()
    seat.suspend()
    is_held = held.enter_context(seat.barrier("vm.boot"))
    seat.edit(suspend=False)
    is_held()


def leaving(seat: Seat, held: ExitStack) -> None:
    """It migrates, and is being saved."""
    seat.up()
    is_held = held.enter_context(seat.barrier("push.blob"))
    seat.edit(nodeName=other_node(seat.node))
    is_held()


def arriving(seat: Seat, held: ExitStack) -> None:
    """It migrates, and is being restored."""
    seat.up()
    target = other_node(seat.node)
    is_held = held.enter_context(seat.barrier("vm.boot", target))
    seat.edit(nodeName=target)
    is_held()


def rebuilding(seat: Seat, held: ExitStack) -> None:
    """Its sub-agent was lost and comes up again."""
    fleet = Fleet(seat)
    fleet.up(agent={"replicas": 1})
    lost = fleet.member(1)
    is_held = held.enter_context(lost.barrier("vm.boot"))
    lost.lose_vm()
    is_held()


def hibernating(seat: Seat, held: ExitStack) -> None:
    """A CocoonHibernation puts its VM to sleep."""
    seat.up()
    is_held = held.enter_context(seat.barrier("push.blob"))
    Hold(seat).create()
    is_held()


def hibernated(seat: Seat, _held: ExitStack) -> None:
    """A CocoonHibernation holds its VM asleep."""
    seat.up()
    Hold(seat).create()
    seat.until_lifecycle("hibernated")


STATES: Final[tuple[Callable[[Seat, ExitStack], None], ...]] = (
    running,
    asleep,
    suspending,
    waking,
    leaving,
    arriving,
    rebuilding,
    hibernating,
    hibernated,
)
"""What a set can be doing while somebody asks for a snapshot; each brings a set that is not there yet into it."""
ASLEEP: Final = (asleep, suspending, hibernating, hibernated)
"""Those whose VM sleeps in the end."""


@pytest.mark.scenario("N137", "N152")
def test_w22_requests_and_answers_are_no_business_of_the_operator(
    attentive: OperatorProcess, surroundings: Surroundings, namespace: str
) -> None:
    """Nine sets at once, each stopped in the middle of something: no pass, no write, no request to the registry."""
    seats = {state: Seat(surroundings, namespace, state.__name__) for state in STATES}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    asked: dict[str, str] = {}
    with ExitStack() as held:
        for state, seat in seats.items():
            state(seat, held)
        seats[running].rest()
        mark, log, before = surroundings.audit.mark(), surroundings.registry.mark(), passes(attentive)
        for pod in surroundings.api.call("GET", pods)["items"]:
            name = pod["metadata"]["name"]
            asked[pod["metadata"]["uid"]] = ref = f"team/{namespace}:{name}"
            notes = {keys.SNAPSHOT_REQUEST: ref, **SnapshotStatus(f"team/{namespace}:older", PUSHED).to_patch()}
            patch = {"metadata": {"annotations": notes}}
            surroundings.api.call("PATCH", f"{pods}/{name}", patch, "application/merge-patch+json")
        seats[running].until(lambda: answer(seats[running]).answers(f"team/{namespace}:running-0"), "it is pushed")
        seats[running].rest()
        assert len(asked) == len(STATES) + 1
        requests = surroundings.audit.requests(mark, namespace=namespace)
        assert [describe(each) for each in requests if each.is_write] == []
        assert passes(attentive) == before
        assert [each for each in surroundings.registry.requests(log) if each.user_agent == keys.EVENT_COMPONENT] == []
    _end_well(seats, asked)


def _end_well(seats: dict[Callable[[Seat, ExitStack], None], Seat], asked: dict[str, str]) -> None:
    """Each set ends where it was going, and each pod that lived on has its request answered once its VM runs."""
    for state, seat in seats.items():
        if state in ASLEEP:
            seat.until_lifecycle("hibernated")
            assert note(seat.pod(), keys.SNAPSHOT_REQUEST) == asked[seat.pod()["metadata"]["uid"]]
            assert not answer(seat).answers(asked[seat.pod()["metadata"]["uid"]])
            Hold(seat).delete() if state in (hibernating, hibernated) else seat.edit(suspend=False)
        seat.until_running()
        seat.check_memory()
    for state, seat in seats.items():
        uid = seat.pod()["metadata"]["uid"]
        if state is leaving:
            # Another pod took the place of the one that was asked, and inherits nothing.
            assert uid not in asked
            assert note(seat.pod(), keys.SNAPSHOT_REQUEST) is None
        else:
            seat.until(lambda seat=seat, ref=asked[uid]: answer(seat).answers(ref), f"{seat.name} is pushed")  # type: ignore[misc]
            assert answer(seat).state == PUSHED


# -- from a running VM to another set ----------------------------------------------------------------------------------


@pytest.mark.scenario("N131", "N135", "N140", "N141", "N142", "N137")
def test_a_running_vm_becomes_another_set_and_resets_an_existing_one(seat: Seat) -> None:
    seat.up()
    seat.rest()
    vm, uid, mark = seat.the_vm(), seat.pod()["metadata"]["uid"], seat.audit.mark()
    first = f"team/{seat.namespace}:first"
    assert snapshot(seat, first) == SnapshotStatus(first, PUSHED)
    seat.check_memory()
    assert (seat.the_vm()["id"], seat.the_vm()["boot_id"]) == (vm["id"], vm["boot_id"])
    assert (seat.pod()["metadata"]["uid"], seat.phase) == (uid, "Running")
    # The same tag again reads the old answer: nothing is pushed, and the image stays what it was.
    seat.work("after the snapshot")
    log = seat.registry.mark()
    seat.annotate_pod({keys.SNAPSHOT_REQUEST: None})
    seat.annotate_pod({keys.SNAPSHOT_REQUEST: first})
    seat.settle()
    assert answer(seat) == SnapshotStatus(first, PUSHED)
    assert [each.method for each in seat.registry.requests(log) if f"team/{seat.namespace}/" in each.path] == []
    second = f"team/{seat.namespace}:second"
    assert snapshot(seat, second).state == PUSHED
    assert seat.writes(mark) == []

    other = seat.neighbour("other")
    other.create(agent={"image": first, "mode": "clone"})
    other.until_running()
    other.written.append("first")
    other.check_memory()
    assert note(other.pod(), keys.SNAPSHOT_REQUEST) is None
    other.work("of its own")
    old = other.pod()["metadata"]["uid"]
    other.edit(agent={"image": second})
    other.until_another_pod(old)
    other.until_running()
    other.written[:] = ["first", "after the snapshot"]
    other.check_memory()
    # What was made of it goes its own way; the first machine has seen nothing of all that.
    assert other.the_vm()["boot_id"] != seat.the_vm()["boot_id"]
    assert (seat.the_vm()["id"], seat.writes(mark)) == (vm["id"], [])
    seat.check_memory()
    seat.suspend()
    seat.wake()
    seat.check_memory()
    assert answer(seat) == SnapshotStatus(second, PUSHED)


# -- the keep flag -----------------------------------------------------------------------------------------------------


def forbid_keep_flag(seat: Seat) -> Callable[[], None]:
    """Let the API server refuse the keep flag on pods of the namespace; the value takes that back."""
    base = "/apis/admissionregistration.k8s.io/v1"
    name = f"no-keep-{seat.namespace}"
    policy: Obj = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
            ]
        },
        "validations": [{"expression": f"!('{keys.KEEP_SNAPSHOT}' in object.metadata.?annotations.orValue({{}}))"}],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": seat.namespace}}
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)):
        body = {"kind": kind, "metadata": {"name": name}, "spec": spec}
        seat.api.call("POST", f"{base}/{_plural(kind)}", body)

    def allow() -> None:
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
            seat.api.call("DELETE", f"{base}/{_plural(kind)}/{name}")

    return allow


def _plural(kind: str) -> str:
    return "validatingadmissionpolicies" if kind.endswith("Policy") else "validatingadmissionpolicybindings"


def refuses_keep_flag(seat: Seat) -> bool:
    """Whether the policy is in force."""
    probe = {"metadata": {"annotations": {keys.KEEP_SNAPSHOT: "true"}}}
    try:
        seat.api.call("PATCH", f"{seat.pod_path}?dryRun=All", probe, "application/merge-patch+json")
    except urllib.error.HTTPError as error:
        return error.code == 422
    return False


@pytest.mark.scenario("N098", "S152")
def test_a_keep_flag_that_is_refused_costs_a_pull_and_nothing_else(seat: Seat) -> None:
    seat.up(hibernatePolicy="release")
    allow = forbid_keep_flag(seat)
    try:
        seat.until(lambda: refuses_keep_flag(seat), "the policy is in force")
        mark = seat.audit.mark()
        seat.suspend()
        seat.until_no_pod()
    finally:
        allow()
    seat.rest()
    flag, delete = seat.writes(mark)[-3:-1]
    assert (flag, delete) == ("patch pods demo-0 (422)", "delete pods demo-0")
    assert seat.until_event("KeepSnapshotFailed")["type"] == "Warning"
    seat.until(lambda: seat.cached_on() == [], "the node drops its copy")
    seat.wake()
    seat.check_memory()
    assert seat.the_vm()["restored_via"] == "pull"


@pytest.mark.scenario("N096", "N097", "S151", "S041")
@pytest.mark.parametrize("flagged", [False, True])
def test_the_flag_is_there_before_the_delete_and_is_not_written_twice(seat: Seat, flagged: bool) -> None:
    seat.up(hibernatePolicy="release")
    if flagged:
        seat.annotate_pod({keys.KEEP_SNAPSHOT: "true"})
    mark = seat.audit.mark()
    seat.suspend()
    seat.until_no_pod()
    writes = seat.audit.write_requests(mark, namespace=seat.namespace, resources=("pods",))
    assert all(each.response_status.code == 200 for each in writes)
    flags = [index for index, each in enumerate(writes) if keys.KEEP_SNAPSHOT in str(each.request_object)]
    assert flags == ([] if flagged else [len(writes) - 2])
    assert [each.verb for each in writes][-1] == "delete"
    assert len(seat.cached_on()) == 1, "the node's agent has seen the flag"
    seat.wake()
    seat.check_memory()
    assert seat.the_vm()["restored_via"] == "local"


@pytest.mark.scenario("N113", "S150")
def test_a_terminal_pod_of_a_released_set_is_left_alone(seat: Seat) -> None:
    """A sub-agent that died in its sleep, and is no part of the set any more when that is released."""
    fleet = Fleet(seat)
    fleet.up(1, agent={"replicas": 1})
    dead = fleet.member(1)
    seat.suspend()
    failed = {"status": {"phase": "Failed", "reason": "Died"}}
    with seat.without_agent():
        seat.api.call("PATCH", f"{dead.pod_path}/status", failed, "application/merge-patch+json")
    mark = seat.audit.mark()
    seat.edit(hibernatePolicy="release", agent={"replicas": 0})
    seat.until_no_pod()
    seat.until_suspended()
    seat.rest()
    written = [
        (each.verb, set(each.request_object["metadata"]["annotations"]))
        for each in seat.audit.write_requests(mark, namespace=seat.namespace, resources=("pods",))
        if each.object_ref.name == "demo-1"
    ]
    assert written == [("patch", {keys.GENERATION})], "the stamp of the edit, no flag, no delete"
    left = dead.pod()
    assert "deletionTimestamp" not in left["metadata"]
    assert note(left, keys.KEEP_SNAPSHOT) is None
    assert len(seat.cached_on()) == 1
    assert dead.saved_work() == dead.written


# -- tags --------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("N179", "S250", "S252")
def test_the_tags_of_a_deleted_set_go_after_its_last_pod(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up(1, "db", snapshotPolicy="main-only", agent={"replicas": 1}, toolboxes=[RUN_BOX])
    members = [seat, fleet.member(1), fleet.member("db")]
    for member in members[1:]:
        for tag in ("hibernate", "latest"):
            seat.agent.publish_image(f"{member.vm}:{tag}")
    log = seat.registry.mark()
    with fleet.member(1).barrier("delete") as held:
        seat.delete()
        held()
        seat.until(lambda: fleet.pod_names() == {"demo-1"}, "the others are gone")
        seat.settle()
        assert [each for each in members if _dropped(each, log)] == []
        assert fleet.member(1).tags() == {"hibernate", "latest"}
    seat.until_gone()
    assert [_dropped(each, log) for each in members] == [["hibernate"], *[["hibernate", "latest"]] * 2]
    assert [each.tags() for each in members] == [{"latest"}, set(), set()]
    assert seat.saved_work("latest") == seat.written


def _dropped(seat: Seat, log: int) -> list[str]:
    """The tags of a VM that the operator dropped."""
    return sorted(line.removeprefix("DELETE ") for line in seat.asked(log) if line.startswith("DELETE "))


@pytest.mark.scenario("N204", "S325")
def test_a_registry_without_deletes_ends_no_wake_and_holds_none_up(seat: Seat, gate: AgentClient) -> None:
    seat.up()
    seat.suspend()
    rule = gate.gate_rule(405, client="operator", method="DELETE")
    seat.edit(suspend=False)
    seat.until_phase("Running")
    owed = seat.until_condition("SnapshotCurrent", "TagDropPending")
    assert owed["status"] == "False"
    assert seat.tag() is not None
    seat.check_memory()
    assert [each["hits"] > 0 for each in gate.gate_rules()] == [True]
    gate.clear_gate(rule)
    seat.until_running()
    assert seat.tag() is None
    seat.check_memory()
