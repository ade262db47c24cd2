"""Every fault of the contract's section 6 that no scenario's test uses, through the control endpoint (F-1 to F-24)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from node_fleet import ID, IP, LIFECYCLE, OBSERVED, Fleet, Obj, note, ready, running
from nodes import PREFIX

from cocoon_devkit.agent.client import AgentClient, ControlError
from cocoon_devkit.agent.launch import AgentOptions, AgentProcess
from cocoon_devkit.agent.registryclient import RegistryClient as AgentsRegistry
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.rawapi import Api
from cocoon_devkit.registry import Registry
from cocoon_devkit.scratch import Scratch
from cocoon_operator.api.answers import Absent, Done, Present, Refused, Unknown
from cocoon_operator.clients.registry import RegistryClient, parse_registry
from cocoon_operator.clients.registry.credentials import DockerKeychain

KEEP = "vm.cocoonstack.io/keep-snapshot-on-delete"
DISK = "https://example.invalid/disk.img"


def key(fleet: Fleet, name: str = "demo-0") -> str:
    return f"{fleet.namespace}/{fleet.full(name)}"


def version(pod: Obj) -> str:
    return str(pod["metadata"]["resourceVersion"])


# -- F-9: tags ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("N082", "N083", "N085")
@pytest.mark.parametrize(
    ("change", "state", "kept"),
    [
        ("no-id", "ready", False),
        ("delete", "failed", False),
        ("config-type", "failed", True),
        ("config-size", "failed", True),
    ],
)
def test_f09_a_spoilt_tag_is_stale_or_fails_closed(fleet: Fleet, change: str, state: str, kept: bool) -> None:
    fleet.boot("demo-0")
    fleet.hibernate("demo-0")
    fleet.agent.change_tag(f"{fleet.vm('demo-0')}:hibernate", change)
    fleet.annotate("demo-0", hibernate=None)
    fleet.until_state("demo-0", state)
    assert (fleet.local("demo-0") is not None) == kept
    assert (fleet.find_vm("demo-0") is not None) == (state == "ready")


@pytest.mark.scenario("N082")
def test_f09_a_tag_that_names_another_state_is_what_comes_back(fleet: Fleet) -> None:
    for name in ("demo-0", "demo-1"):
        fleet.boot(name)
        fleet.work(name, f"of {name}")
        fleet.hibernate(name)
    fleet.agent.change_tag(f"{fleet.vm('demo-0')}:hibernate", "replace", source=f"{fleet.vm('demo-1')}:hibernate")
    fleet.wake("demo-0")
    vm = fleet.the_vm("demo-0")
    assert (vm["memory"]["work"], vm["restored_via"]) == (["of demo-1"], "pull")


# -- F-10: the cache ---------------------------------------------------------------------------------------------------


@pytest.mark.scenario("N117", "N118", "N119", "N121")
def test_f10_size_and_age_bound_the_cache_of_a_node(lone: Fleet) -> None:
    gib, day = 1 << 30, 86_400.0
    client, names = lone.agent, [lone.vm(f"demo-{number}") for number in range(3)]
    for number in range(3):
        lone.begin(f"demo-{number}", node="gated", mode="run", image=DISK)
        lone.until_state(f"demo-{number}", "ready")
        lone.hibernate(f"demo-{number}")
        lone.release(f"demo-{number}")
    now = lone.journal("api")[-1]["time"]
    for name, days in zip(names, (8, 2, 1), strict=True):
        client.change_snapshot("gated", name, size=4 * gib, last_accessed_at=now - days * day)
    limits: list[tuple[dict[str, Any], int]] = [
        ({"size": 8 * gib}, 1),
        ({"size": 12 * gib}, 0),
        ({"age": 7 * day}, 1),
        ({"age": 1.5 * day, "size": 8 * gib}, 2),
        ({"age": 7 * day, "size": 4 * gib}, 2),
        ({"keep": 1}, 2),
    ]
    for limit, victims in limits:
        assert client.collect("gated", **limit, dry_run=True) == names[:victims], limit
    client.change_snapshot("gated", names[0], pending=True)
    # One that is read out is leased for as long as that takes, and is the youngest afterwards.
    lone.begin("demo-1", node="gated", mode="run", image=DISK, restore_from_hibernate="true")
    lone.until_state("demo-1", "ready")
    barrier = client.barrier("gated", "push.blob", vm=names[1])
    lone.annotate("demo-1", hibernate="true")
    client.wait_at_barrier("gated", barrier)
    assert client.collect("gated") == [names[2]]
    client.release("gated", barrier)
    lone.until_state("demo-1", "hibernated")
    assert not client.snapshots("gated")[names[1]]["leased"]
    assert set(client.snapshots("gated")) == set(names[:2])


# -- F-8: the registry behind a gate -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gated(cluster: Cluster, snapshots: str) -> Iterator[AgentProcess]:
    """A node of another pool that reaches the registry through a gate."""
    flags = ("--registry-gate", "--pool", "gated", "--boot-seconds", "0", "--save-seconds", "0")
    options = AgentOptions(nodes=("gated",), registry=snapshots, time_scale=0.1, flags=flags)
    with Scratch("gated-node") as scratch, AgentProcess(cluster.kubeconfig, scratch.path, options) as process:
        yield process
    cluster.kubectl("delete", "node", "gated")


@pytest.fixture
def lone(gated: AgentProcess, api: Api, registry: Registry, agent_namespace: str) -> Iterator[Fleet]:
    """That node, with no pod and no snapshot on it, and nothing in its way afterwards."""
    fleet = Fleet(gated, api, registry, agent_namespace, nodes=("gated",))
    for name in fleet.agent.snapshots("gated"):
        fleet.agent.forget_snapshot("gated", name)
    yield fleet
    fleet.agent.clear_gate()
    fleet.agent.turn_door("agent", shut=False)
    fleet.close()


def hits(client: AgentClient, rule: int) -> int:
    return next(int(each["hits"]) for each in client.gate_rules() if each["id"] == rule)


@pytest.mark.scenario("N084", "N085", "N086")
def test_f08_whatever_the_registry_answers_but_404_fails_closed(lone: Fleet) -> None:
    lone.begin("demo-0", node="gated", mode="run", image=DISK)
    lone.until_state("demo-0", "ready")
    lone.work("demo-0", "precious", "gated")
    lone.hibernate("demo-0")
    local = lone.local_id("demo-0", "gated")
    manifests, blobs = "/manifests/hibernate", "/blobs/"
    spoilt: list[tuple[int | str, str]] = [*((status, manifests) for status in (401, 403, 429, 500, 503))]
    spoilt += [("cut", manifests), ("truncate", manifests), (500, blobs), ("truncate", blobs), ("digest", blobs)]
    rule = lone.agent.gate_rule(418, client="agent", method="GET")
    lone.annotate("demo-0", hibernate=None)
    lone.until_state("demo-0", "failed")
    for number, (answer, path) in enumerate(spoilt, start=2):
        # The next is in force before the last is lifted: at no moment a retry may get through.
        following = lone.agent.gate_rule(answer, client="agent", method="GET", path=path)
        lone.agent.clear_gate(rule)
        rule = following
        lone.annotate("demo-0", generation=str(number))
        lone.until(lambda: hits(lone.agent, following) > 0, f"{answer} for {path}")  # noqa: B023  (used before the next)
        lone.until_pod("demo-0", lambda pod: note(pod, OBSERVED) == str(number), "it was tried")  # noqa: B023
        pod = lone.until_state("demo-0", "failed")
        assert (note(pod, LIFECYCLE), note(pod, ID)) == ("failed", ""), answer
        assert lone.local_id("demo-0", "gated") == local, answer
        assert lone.find_vm("demo-0", "gated") is None
    lone.agent.clear_gate()
    # Its own next attempt is far off by now; an update makes it at once.
    lone.annotate("demo-0", generation="99")
    lone.until_state("demo-0", "ready")
    vm = lone.the_vm("demo-0", "gated")
    assert (vm["memory"]["work"], vm["restored_via"]) == (["precious"], "local")


@pytest.mark.scenario("N083", "N084")
def test_f08_a_404_is_stale_and_silence_or_a_shut_door_are_not(lone: Fleet) -> None:
    lone.begin("demo-0", node="gated", mode="run", image=DISK)
    lone.until_state("demo-0", "ready")
    lone.hibernate("demo-0")
    silence = lone.agent.gate_rule("hang", client="agent", method="GET")
    lone.annotate("demo-0", hibernate=None)
    lone.until(lambda: hits(lone.agent, silence) > 0, "the registry is silent")
    lone.agent.turn_door("agent", shut=True)
    lone.agent.clear_gate()
    lone.until_state("demo-0", "failed")
    assert lone.local("demo-0", "gated") is not None
    lone.agent.gate_rule(404, client="agent", method="GET", path="/manifests/hibernate")
    lone.agent.turn_door("agent", shut=False)
    lone.until(lambda: lone.local("demo-0", "gated") is None, "the copy is stale")
    assert lone.find_vm("demo-0", "gated") is None


@pytest_asyncio.fixture
async def operators(lone: Fleet, tmp_path: Path) -> AsyncIterator[RegistryClient]:
    """The operator's registry client at its own door."""
    address = parse_registry(f"{lone.agent.gate()['operator']}/{PREFIX}")
    async with RegistryClient(address, keychain=DockerKeychain({"HOME": str(tmp_path)}), env={}) as client:
        yield client


@pytest.mark.asyncio
@pytest.mark.scenario("N204")
async def test_f08_each_client_has_a_door_of_its_own(lone: Fleet, operators: RegistryClient) -> None:
    agents = AgentsRegistry(f"{lone.agent.gate()['agent']}/{PREFIX}")
    repository = f"vk-gate-{lone.prefix}"
    try:
        digest = await agents.upload(repository, b"{}", "application/vnd.oci.empty.v1+json")
        body = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
        pushed = await agents.put_manifest(repository, "one", {**body, "config": digest, "layers": []})
        assert await operators.probe(repository, "one") == Present(pushed)
        assert await operators.probe(repository, "two") == Absent()
        lone.agent.gate_rule(405, client="operator", method="DELETE")
        lone.agent.gate_rule(403, client="operator", method="HEAD")
        assert isinstance(await operators.drop(repository, "one"), Refused)
        assert isinstance(await operators.probe(repository, "one"), Unknown)
        assert (await agents.fetch(repository, "one")).digest == pushed
        await agents.drop(repository, "one")
        lone.agent.clear_gate()
        assert await operators.probe(repository, "one") == Absent()
        assert await operators.drop(repository, "one") == Done()
    finally:
        await agents.close()


# -- F-11, F-12, F-19: what reaches the API server ----------------------------------------------------------------------


@pytest.mark.scenario("N055")
@pytest.mark.parametrize(("status", "attempts"), [(409, 1), (404, 1), (500, 3), (0, 3)])
def test_f11_a_conflict_ends_a_write_and_other_failures_do_not(fleet: Fleet, status: int, attempts: int) -> None:
    fleet.boot("demo-0", node="n2")
    fault = fleet.agent.fault("n2", "patch.annotations.lifecycle", vm=fleet.vm("demo-0"), status=status, times=3)
    fleet.annotate("demo-0", generation="2")
    fleet.agent.wait_for_hit("n2", fault, hits=attempts)
    fleet.settle(0.3)
    assert next(each["hits"] for each in fleet.agent.faults("n2") if each["id"] == fault) == attempts
    if attempts == 1:
        assert note(fleet.the_pod("demo-0"), OBSERVED) == "1"
    else:
        fleet.until_pod("demo-0", lambda pod: note(pod, OBSERVED) == "2", "it is repaired")


@pytest.mark.scenario("N062")
def test_f12_a_status_update_from_an_old_copy_takes_annotations_back(fleet: Fleet) -> None:
    barrier = fleet.agent.barrier("n1", "lifecycle.ready", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0")
    fleet.agent.wait_at_barrier("n1", barrier)
    old = fleet.the_pod("demo-0")
    fleet.agent.release("n1", barrier)
    fleet.until_state("demo-0", "ready")
    fleet.annotate("demo-0", keep_snapshot_on_delete="true", snapshot="team/late:one")
    fleet.until_pod("demo-0", lambda pod: note(pod, "vm.cocoonstack.io/snapshot-status") != "", "it is answered")
    fleet.agent.overwrite_status("n1", key(fleet), version(old))
    after = fleet.the_pod("demo-0")
    assert note(old, LIFECYCLE) == "creating"
    for lost in (KEEP, "vm.cocoonstack.io/snapshot", "vm.cocoonstack.io/snapshot-status"):
        assert note(after, lost) == ""
    # The agent's own word is restored; those of others are lost.
    fleet.until_state("demo-0", "ready")
    assert note(fleet.the_pod("demo-0"), KEEP) == ""


@pytest.mark.scenario("N062")
def test_f19_a_forged_lifecycle_is_seen_and_repaired(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    with fleet.recording("demo-0") as seen:
        fleet.agent.forge_lifecycle("n1", key(fleet), "hibernated", 9, "forged")
        fleet.until_pod("demo-0", lambda pod: note(pod, OBSERVED) == "1", "it is repaired")
        fleet.until_state("demo-0", "ready")
    assert ("hibernated", "9") in [(note(each, LIFECYCLE), note(each, OBSERVED)) for each in seen]


@pytest.mark.scenario("N056")
def test_f19_a_generation_that_lags_is_made_good(fleet: Fleet) -> None:
    fleet.boot("demo-0", generation="4")
    fault = fleet.agent.fault("n1", "lifecycle-lag", vm=fleet.vm("demo-0"))
    since = fleet.agent.mark()
    fleet.annotate("demo-0", generation="5")
    fleet.until(lambda: len(fleet.writes("demo-0", since)) > 0, "an echo")
    assert note(fleet.the_pod("demo-0"), OBSERVED) == "4"
    fleet.agent.clear("n1", fault)
    fleet.until_pod("demo-0", lambda pod: note(pod, OBSERVED) == "5", "the stamp is echoed")


# -- F-20: the wrong order ---------------------------------------------------------------------------------------------


@pytest.mark.scenario("N064")
def test_f20_hibernated_before_the_push(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.agent.fault("n1", "order.hibernated-first", vm=fleet.vm("demo-0"), times=1)
    barrier = fleet.agent.barrier("n1", "push.blob", vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", hibernate="true")
    fleet.agent.wait_at_barrier("n1", barrier)
    pod = fleet.the_pod("demo-0")
    assert (note(pod, LIFECYCLE), fleet.has_tag("demo-0")) == ("hibernated", False)
    assert note(pod, ID) == fleet.the_vm("demo-0")["id"]
    fleet.agent.clear("n1", barrier)
    fleet.until_state("demo-0", "hibernated")
    assert fleet.tag_id("demo-0") == fleet.local_id("demo-0")


@pytest.mark.scenario("N017")
def test_f20_the_id_before_the_vm(fleet: Fleet) -> None:
    fleet.agent.fault("n1", "order.id-first", vm=fleet.vm("demo-0"), times=1)
    barrier = fleet.agent.barrier("n1", "vm.boot", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0")
    fleet.agent.wait_at_barrier("n1", barrier)
    early = note(fleet.the_pod("demo-0"), ID)
    assert early
    assert fleet.the_vm("demo-0")["state"] == "creating"
    fleet.agent.release("n1", barrier)
    assert note(fleet.until_state("demo-0", "ready"), ID) == early == fleet.the_vm("demo-0")["id"]


@pytest.mark.scenario("N017")
def test_f20_running_before_the_id(fleet: Fleet) -> None:
    fleet.agent.fault("n1", "order.running-first", vm=fleet.vm("demo-0"), times=1)
    with fleet.recording("demo-0") as seen:
        fleet.boot("demo-0")
    assert any(running(each) and note(each, ID) == "" for each in seen)


# -- the agent, its node, its VMs --------------------------------------------------------------------------------------


@pytest.mark.scenario("N192", "N088")
def test_f15_an_agent_dies_at_a_step_and_a_node_loses_its_disk(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "precious")
    fleet.agent.kill_at("n1", "lifecycle.hibernated", vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", hibernate="true")
    fleet.agent.wait_until_dead("n1")
    assert note(fleet.the_pod("demo-0"), LIFECYCLE) == "hibernating"
    assert fleet.has_tag("demo-0")
    assert fleet.find_vm("demo-0") is None
    with pytest.raises(ControlError, match="kill it first"):
        fleet.agent.wipe_node("n2")
    base = fleet.agent.snapshots("n1")
    fleet.agent.wipe_node("n1")
    assert (fleet.agent.snapshots("n1"), bool(base)) == ({}, True)
    fleet.agent.start_node("n1")
    fleet.wake("demo-0")
    vm = fleet.the_vm("demo-0")
    assert (vm["memory"]["work"], vm["restored_via"]) == (["precious"], "pull")


@pytest.mark.scenario("N010")
@pytest.mark.parametrize("way", ["cordon", "pods", "storage"])
def test_f16_f17_the_scheduler_finds_no_room(fleet: Fleet, way: str) -> None:
    def shut(on: bool) -> None:
        if way == "cordon":
            fleet.agent.cordon("n2", on=on)
        elif way == "pods":
            fleet.agent.settings("n2", capacity={"pods": 0 if on else 256})
        else:
            fleet.agent.settings("n2", capacity={"base_images": 1 << 60 if on else 0})

    shut(True)
    try:
        pod = fleet.pod("demo-0", node=None)
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n2"}
        pod["spec"]["containers"][0]["resources"] = {"requests": {"ephemeral-storage": "10Gi"}}
        fleet.create(pod)
        fleet.until_pod("demo-0", unschedulable, "it fits nowhere")
    finally:
        shut(False)
    fleet.until_state("demo-0", "ready", seconds=30)


def unschedulable(pod: Obj) -> bool:
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions") or [])


@pytest.mark.scenario("N001")
def test_f16_a_node_says_that_it_is_not_ready(fleet: Fleet) -> None:
    def taints() -> set[str]:
        spec = fleet.api.call("GET", "/api/v1/nodes/n2")["spec"]
        return {str(each["key"]) for each in spec.get("taints") or []}

    fleet.agent.settings("n2", ready=False)
    try:
        fleet.until(lambda: "node.kubernetes.io/not-ready" in taints(), "the node is tainted", seconds=30)
    finally:
        fleet.agent.settings("n2", ready=True)
    fleet.until(lambda: "node.kubernetes.io/not-ready" not in taints(), "the taint is gone", seconds=30)


@pytest.mark.scenario("N024", "N018")
def test_f18_an_address_comes_late_and_changes_and_probes_fail(fleet: Fleet) -> None:
    fleet.agent.fault("n1", "ip", vm=fleet.vm("demo-0"), seconds=0.5)
    fleet.begin("demo-0")
    pod = fleet.until_pod("demo-0", running, "it runs")
    assert note(pod, IP) == ""
    pod = fleet.until_state("demo-0", "ready")
    assert note(pod, IP) == fleet.the_vm("demo-0")["ip"]
    fleet.agent.change_vm("n1", fleet.vm("demo-0"), ip="10.99.99.99")
    changed = fleet.until_pod("demo-0", lambda pod: note(pod, IP) == "10.99.99.99", "the address is repaired")
    fleet.until_pod("demo-0", lambda pod: pod["status"].get("podIP") == "10.99.99.99", "the status is repaired")
    assert note(changed, ID) == note(pod, ID)
    with fleet.recording("demo-0") as seen:
        fault = fleet.agent.fault("n1", "probe", vm=fleet.vm("demo-0"), times=3)
        # It heals with the next probe, which is too soon for a look at the pod now and then.
        fleet.until(lambda: any(not ready(each) for each in seen), "three failures flip it")
        fleet.until_pod("demo-0", ready, "it heals")
    assert next(each["hits"] for each in fleet.agent.faults("n1") if each["id"] == fault) == 3
    assert note(fleet.the_pod("demo-0"), LIFECYCLE) == "ready"


@pytest.mark.scenario("N161")
def test_f21_an_object_that_vanishes_under_a_delete_still_ends_well(fleet: Fleet) -> None:
    fleet.boot("demo-0", snapshot_policy="always")
    fleet.agent.fault("n1", "delete-race", vm=fleet.vm("demo-0"))
    barrier = fleet.agent.barrier("n1", "delete", vm=fleet.vm("demo-0"))
    fleet.ask_delete("demo-0")
    fleet.agent.wait_at_barrier("n1", barrier)
    assert fleet.get("demo-0") is None
    assert fleet.the_vm("demo-0")["state"] == "running"
    fleet.agent.release("n1", barrier)
    fleet.until_gone("demo-0")
    assert fleet.has_tag("demo-0", "latest")
    assert fleet.find_vm("demo-0") is None


@pytest.mark.scenario("N023")
def test_f22_f24_switches_and_windows_change_while_it_runs(fleet: Fleet) -> None:
    refused: list[Callable[[], object]] = [
        lambda: fleet.agent.settings("n2", live_snapshot="eager"),
        lambda: fleet.agent.settings("n2", cache_reclaim=["by-hand"]),
        lambda: fleet.agent.settings("n2", windows={"tea": 1}),
        lambda: fleet.agent.change_vm("n2", "nobody", ip="x"),
        lambda: fleet.agent.change_snapshot("n1", "base", colour="red"),
        fleet.agent.gate,
        lambda: fleet.agent.replay("n2", "nowhere/nothing", "1"),
    ]
    for call in refused:
        with pytest.raises(ControlError):
            call()
    fleet.agent.settings("n2", cache_reclaim=["in-agent"])
    with pytest.raises(ControlError, match="node-gc"):
        fleet.agent.collect("n2", keep=1)
    fleet.agent.settings("n2", cache_reclaim=["in-agent", "node-gc"], windows={"ip_wait": 0.5})
    try:
        fleet.agent.fault("n2", "ip", vm=fleet.vm("demo-0"))
        fleet.begin("demo-0", node="n2")
        fleet.until_state("demo-0", "failed", seconds=3)
        fleet.until_event("demo-0", "PostCloneIPWaitTimeout")
    finally:
        fleet.agent.settings("n2", windows={"ip_wait": 45.0})
