"""What makes a pod stand for another VM than the spec asks for (contract 3.6, scenarios D)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.cocoonset import CocoonSetSpec
from cocoon_operator.api.vmspec import VMSpec
from cocoon_operator.reconcile.drift import agent_drifted, fingerprint, other_machine, patch_in_place, toolbox_drifted
from cocoon_operator.reconcile.members import main_member
from cocoon_operator.reconcile.objects import SetObject
from tests.model.apiserver import Object
from tests.model.world import World
from tests.unit.reconcile.staging import (
    TAG,
    VM,
    annotations_of,
    built_main,
    built_sub,
    built_toolbox,
    heal,
    member,
    read,
    set_object,
    spec_of,
    up,
)

RUN = {"name": "tb", "mode": "run", "image": "tools"}
STATIC = {"name": "tb", "mode": "static", "staticVMID": "vm-7", "staticIP": "10.1.1.7", "vncPort": 5907}


def spec(**changes: Any) -> CocoonSetSpec:
    return spec_of(set_object(**changes))


def main_drifts(before: dict[str, Any], after: dict[str, Any]) -> bool:
    was, target = set_object(**before), set_object(**after)
    drifts = agent_drifted(read(built_main(was)), spec_of(target))
    assert drifts == (print_of(was, "0") != print_of(target, "0")), "what is remembered without a pod says otherwise"
    return drifts


def toolbox_drifts(before: dict[str, Any], after: dict[str, Any], **around: Any) -> bool:
    was, target = set_object(toolboxes=[before]), set_object(toolboxes=[after], **around)
    drifts = toolbox_drifted(read(built_toolbox(was)), spec_of(target), spec_of(target).toolboxes[0])
    assert drifts == (print_of(was, "tb") != print_of(target, "tb")), "what is remembered without a pod says otherwise"
    return drifts


def print_of(target: SetObject, slot: str) -> str:
    return fingerprint(spec_of(target), member(target, slot))


def defaulted(body: Object) -> Object:
    """The pod as the API server stores it: requests that are missing come from the limits, and a service account."""
    stored = copy.deepcopy(body)
    resources = stored["spec"]["containers"][0]["resources"]
    resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
    stored["spec"].setdefault("serviceAccountName", "default")
    return stored


@pytest.mark.scenario("S066")
@pytest.mark.parametrize(
    "agent",
    [
        {},
        {"storage": "1024Gi", "probePort": 22, "network": "blue", "connType": "ssh", "forcePull": True},
        {"mode": "run", "os": "windows", "backend": "firecracker", "noDirectIO": True, "serviceAccountName": "robot"},
        {"resources": {"limits": {"cpu": 2, "memory": "1.5Gi"}}, "envFrom": [{"secretRef": {"name": "keys"}}]},
    ],
)
def test_a_pod_matches_the_spec_it_was_built_from(agent: dict[str, Any]) -> None:
    target = set_object(agent={"replicas": 1, **agent})
    assert not agent_drifted(read(defaulted(built_main(target))), spec_of(target))
    assert not agent_drifted(read(defaulted(built_sub(target))), spec_of(target))


@pytest.mark.scenario("S066")
@pytest.mark.parametrize("box", [RUN, {**RUN, "mode": "clone", "storage": "1.5Gi"}, STATIC])
def test_a_toolbox_matches_the_spec_it_was_built_from(box: dict[str, Any]) -> None:
    assert not toolbox_drifts(box, box)


@pytest.mark.scenario("S067", "S068", "S069", "S070", "S071", "S072", "S073")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"image": "other"}),
        ({}, {"mode": "run"}),
        ({}, {"os": "windows"}),
        ({}, {"backend": "firecracker"}),
        ({}, {"network": "blue"}),
        ({"network": "blue"}, {}),
        ({}, {"noDirectIO": True}),
        ({}, {"probePort": 22}),
        ({"probePort": 22}, {"probePort": 23}),
        ({}, {"storage": "1Gi"}),
        ({"storage": "1Gi"}, {"storage": "2Gi"}),
        ({}, {"storage": "0"}),
        ({"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "2"}}}),
        ({"resources": {"limits": {"memory": "1Gi"}}}, {"resources": {"limits": {"memory": "2Gi"}}}),
        ({"resources": {"limits": {"memory": "1Gi"}}}, {}),
        ({}, {"resources": {"limits": {"cpu": "1"}}}),
        ({}, {"serviceAccountName": "robot"}),
        ({"serviceAccountName": "robot"}, {}),
        ({}, {"envFrom": [{"configMapRef": {"name": "a"}}]}),
        ({"envFrom": [{"configMapRef": {"name": "a"}}]}, {"envFrom": [{"configMapRef": {"name": "b"}}]}),
    ],
)
def test_an_edit_of_the_agent_drifts_its_pods(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert main_drifts({"agent": before}, {"agent": after})
    sub = built_sub(set_object(agent={"replicas": 1, **before}))
    assert agent_drifted(read(sub), spec(agent={"replicas": 1, **after}))


@pytest.mark.scenario("S066", "S069")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"storage": "1024Gi"}, {"storage": "1Ti"}),
        ({"resources": {"limits": {"cpu": "1"}}}, {"resources": {"limits": {"cpu": "1000m"}}}),
        ({"resources": {"limits": {"memory": "1024Mi"}}}, {"resources": {"limits": {"memory": "1Gi"}}}),
        ({"serviceAccountName": ""}, {"serviceAccountName": "default"}),
        ({"resources": {"limits": {"vendor/gpu": "1"}}}, {"resources": {"limits": {"vendor/gpu": "2"}}}),
    ],
)
def test_the_same_in_other_words_is_no_drift(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert not main_drifts({"agent": before}, {"agent": after})


@pytest.mark.scenario("S067", "S068", "S070", "S073")
@pytest.mark.parametrize(
    "edit",
    [{"image": "other"}, {"backend": "firecracker"}, {"probePort": 22}, {"mode": "clone"}, {"storage": "1Gi"}],
)
def test_an_edit_of_a_toolbox_drifts_it(edit: dict[str, Any]) -> None:
    assert toolbox_drifts(RUN, {**RUN, **edit})


@pytest.mark.scenario("S069")
def test_an_edit_of_a_toolboxs_resources_drifts_it() -> None:
    asks = {**RUN, "resources": {"requests": {"cpu": "1"}}}
    assert toolbox_drifts(RUN, asks)
    assert toolbox_drifts(asks, {**RUN, "resources": {"requests": {"cpu": "2"}}})


@pytest.mark.scenario("S073")
def test_another_pool_drifts_and_an_empty_one_is_the_default() -> None:
    assert main_drifts({}, {"nodePool": "purpose-a"})
    assert toolbox_drifts(RUN, RUN, nodePool="purpose-a")
    assert not main_drifts({}, {"nodePool": ""})
    assert not toolbox_drifts(RUN, RUN, nodePool="")


@pytest.mark.scenario("S073")
@pytest.mark.parametrize("place", ["nodeSelector", "labels", "annotations"])
def test_the_pool_of_a_pod_is_read_from_its_selector_then_label_then_annotation(place: str) -> None:
    body = built_main(set_object())
    body["spec"]["nodeSelector"] = {}
    holder = body["spec"] if place == "nodeSelector" else body["metadata"]
    holder[place]["cocoonstack.io/pool"] = "purpose-a"
    assert not agent_drifted(read(body), spec(nodePool="purpose-a"))
    assert agent_drifted(read(body), spec())


@pytest.mark.scenario("S074")
def test_a_wrong_class_drifts() -> None:
    body = built_main(set_object(snapshotCompatibilityClass="one"))
    assert agent_drifted(read(body), spec(snapshotCompatibilityClass="two"))


def test_what_is_patched_in_place_does_not_change_the_fingerprint_and_the_class_does() -> None:
    before, box = set_object(agent={"replicas": 1}), {**RUN, "connType": "vnc", "forcePull": True}
    patched = set_object(snapshotPolicy="never", agent={"replicas": 2, "connType": "ssh", "forcePull": True})
    assert print_of(before, "1") == print_of(patched, "1") == print_of(patched, "2")
    assert print_of(set_object(toolboxes=[RUN]), "tb") == print_of(set_object(toolboxes=[box]), "tb")
    assert print_of(before, "1") != print_of(set_object(agent={"replicas": 1}, snapshotCompatibilityClass="one"), "1")


@pytest.mark.scenario("S075")
def test_a_live_pod_without_class_is_adopted_and_a_dead_one_is_not() -> None:
    main, box = built_main(set_object()), built_toolbox(set_object(toolboxes=[RUN]))
    edited = spec(snapshotCompatibilityClass="one", toolboxes=[RUN])
    assert not agent_drifted(read(main), edited)
    assert not toolbox_drifted(read(box), edited, edited.toolboxes[0])
    for body in (main, box):
        body["status"] = {"phase": "Failed"}
    assert agent_drifted(read(main), edited)
    assert toolbox_drifted(read(box), edited, edited.toolboxes[0])


@pytest.mark.scenario("S075")
def test_a_pod_that_failed_to_hibernate_is_adopted_too() -> None:
    """Design 4.4: it holds a living VM, so it is not terminal (W-62)."""
    body = built_main(set_object())
    body["metadata"]["annotations"].update(
        {keys.LIFECYCLE_STATE: "failed", keys.LIFECYCLE_MESSAGE: "hibernate: push failed", keys.VM_ID: "vm-1"}
    )
    body["status"] = {"phase": "Running", "containerStatuses": [{"name": "agent", "state": {"running": {}}}]}
    assert not agent_drifted(read(body), spec(snapshotCompatibilityClass="one"))


@pytest.mark.scenario("S076")
@pytest.mark.parametrize("edit", [{"staticVMID": "vm-8"}, {"staticIP": "10.1.1.8"}, {"vncPort": 5908}, {"vncPort": 0}])
def test_another_machine_drifts_a_static_toolbox(edit: dict[str, Any]) -> None:
    assert toolbox_drifts(STATIC, {**STATIC, **edit})


@pytest.mark.scenario("S076")
@pytest.mark.parametrize("edit", [{"staticVMID": "vm-8"}, {"staticIP": "10.1.1.8"}, {"vncPort": 5908}])
def test_the_machine_does_not_matter_in_another_mode(edit: dict[str, Any]) -> None:
    assert not toolbox_drifts(RUN, {**RUN, **edit})


@pytest.mark.scenario("S077", "S085")
@pytest.mark.parametrize(
    "edit",
    [
        {"nodeName": "node-b"},
        {"suspend": True},
        {"hibernatePolicy": "release"},
        {"agent": {"replicas": 3}},
        {"toolboxes": [RUN]},
    ],
)
def test_what_does_not_describe_the_vm_is_no_drift(edit: dict[str, Any]) -> None:
    assert not main_drifts({}, edit)
    assert not agent_drifted(
        read(built_sub(set_object(agent={"replicas": 1}))), spec(**{**edit, "agent": {"replicas": 1}})
    )


@pytest.mark.scenario("S085")
def test_another_toolbox_is_no_drift() -> None:
    body = built_toolbox(set_object(toolboxes=[RUN]))
    edited = spec(toolboxes=[{"name": "aa", "mode": "run", "image": "x"}, RUN])
    assert not toolbox_drifted(read(body), edited, edited.toolboxes[1])


@pytest.mark.scenario("S078")
@pytest.mark.parametrize(("on_pod", "in_spec"), [("default", ""), ("", "default"), ("default", "default")])
def test_the_default_service_account_is_no_service_account(on_pod: str, in_spec: str) -> None:
    body = built_main(set_object())
    body["spec"]["serviceAccountName"] = on_pod
    assert not agent_drifted(read(body), spec(agent={"serviceAccountName": in_spec}))


@pytest.mark.scenario("S079", "S080")
@pytest.mark.parametrize("from_go", [False, True])
def test_requests_that_the_api_server_filled_in_are_no_drift(from_go: bool) -> None:
    agent = {"resources": {"limits": {"cpu": "2", "memory": "4Gi"}}, "storage": "1024Gi"}
    body = defaulted(built_main(set_object(agent=agent)))
    if from_go:
        del body["metadata"]["annotations"][keys.APPLIED_RESOURCES]
    assert not agent_drifted(read(body), spec(agent=agent))


@pytest.mark.scenario("S081")
def test_a_fork_source_on_main_drifts_and_on_a_sub_agent_does_not() -> None:
    main, sub = built_main(set_object()), built_sub(set_object(agent={"replicas": 1}))
    main["metadata"]["annotations"][keys.FORK_FROM] = "vk-ns-other-0"
    sub["metadata"]["annotations"][keys.FORK_FROM] = "vk-ns-other-0"
    assert agent_drifted(read(main), spec())
    assert not agent_drifted(read(sub), spec(agent={"replicas": 1}))


@pytest.mark.scenario("S081")
@pytest.mark.parametrize(
    "change",
    [
        {keys.VM_NAME: "vk-ns-other-0"},
        {keys.GENERATION: "9"},
        {keys.LIFECYCLE_STATE: "creating"},
        {keys.VM_ID: "vm-1", keys.VM_IP: "10.0.0.1", keys.VNC_PORT: "5900"},
        {"vm.cocoonstack.io/snapshot": "later", "vm.cocoonstack.io/snapshot-status": '{"state":"failed"}'},
        {"somebody.else/annotation": "x"},
    ],
)
def test_annotations_that_do_not_describe_the_vm_are_no_drift(change: dict[str, str]) -> None:
    body = built_main(set_object())
    body["metadata"]["annotations"].update(change)
    body["metadata"]["labels"]["somebody"] = "else"
    body["spec"]["nodeName"] = "node-z"
    assert not agent_drifted(read(body), spec())


@pytest.mark.scenario("S081")
@pytest.mark.parametrize(
    "key", [keys.IMAGE, keys.MODE, keys.OS, keys.STORAGE, keys.NETWORK, keys.MANAGED, keys.NO_DIRECT_IO, keys.BACKEND]
)
def test_a_manual_change_of_the_description_drifts(key: str) -> None:
    body = built_main(set_object(agent={"storage": "1Gi", "network": "blue", "noDirectIO": True}))
    body["metadata"]["annotations"][key] = "changed"
    assert agent_drifted(read(body), spec(agent={"storage": "1Gi", "network": "blue", "noDirectIO": True}))


@pytest.mark.scenario("S082")
def test_partial_requests_under_wider_limits_do_not_loop() -> None:
    """Legacy W-10: the Go operator recreates this pod for ever; here what was asked for is compared."""
    agent = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "4Gi"}}}
    body = defaulted(built_main(set_object(agent=agent)))
    assert body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "4Gi"}
    assert not agent_drifted(read(body), spec(agent=agent))
    del body["metadata"]["annotations"][keys.APPLIED_RESOURCES]
    assert not agent_drifted(read(body), spec(agent=agent))
    assert agent_drifted(read(body), spec(agent={"resources": {"requests": {"cpu": "2"}}}))


@pytest.mark.scenario("S083")
@pytest.mark.parametrize("from_go", [False, True])
def test_limits_that_a_limit_range_injected_do_not_loop(from_go: bool) -> None:
    """Legacy W-10: also for a pod that the Go operator made, of which nothing was written down."""
    body = built_main(set_object())
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}
    if from_go:
        del body["metadata"]["annotations"][keys.APPLIED_RESOURCES]
    assert not agent_drifted(read(body), spec())


@pytest.mark.scenario("S084")
@pytest.mark.parametrize(
    "edit", [{"snapshotPolicy": "never"}, {"agent": {"connType": "rdp"}}, {"agent": {"forcePull": True}}]
)
def test_what_the_agent_reads_later_is_no_drift_and_patched_in_place(edit: dict[str, Any]) -> None:
    """Legacy W-12: the Go operator destroys every VM of the set for it."""
    body = read(built_main(set_object()))
    assert not agent_drifted(body, spec(**edit))
    want = VMSpec.for_agent(spec(**edit), VM)
    patch = patch_in_place(body, spec(**edit), main_member(set_object()))
    assert len(patch) == 1
    assert VMSpec.from_annotations({**body.annotations, **{k: v for k, v in patch.items() if v}}) == want


@pytest.mark.scenario("S084")
def test_what_is_switched_off_again_is_removed_in_place() -> None:
    body = read(built_main(set_object(agent={"forcePull": True, "connType": "rdp"})))
    assert patch_in_place(body, spec(), main_member(set_object())) == {keys.CONN_TYPE: None, keys.FORCE_PULL: None}
    assert not agent_drifted(body, spec())


@pytest.mark.parametrize(
    ("edit", "other"),
    [({"image": "x"}, True), ({"backend": "firecracker"}, True), ({"os": "android"}, True), ({"network": "x"}, False)],
)
def test_only_image_backend_and_os_make_another_machine(edit: dict[str, Any], other: bool) -> None:
    assert other_machine(read(built_main(set_object())), spec(agent=edit), main_member(set_object())) is other


# -- on the model --------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.scenario("S084")
async def test_a_new_snapshot_policy_costs_one_patch_and_no_vm(world: World) -> None:
    """Legacy W-12: patched in place, with the stamp of the new generation in the same write."""
    await up(world)
    mark, asked = world.mark, len(world.registry.requests)
    world.edit(snapshotPolicy="never")
    await world.settle()
    assert world.writes(mark) == ["patch pod/demo-0", "patch/status set/demo"]
    assert annotations_of(world)[keys.SNAPSHOT_POLICY] == "never"
    assert annotations_of(world)[keys.GENERATION] == "2"
    assert world.memory() == ["work"]
    assert world.registry.requests[asked:] == []


@pytest.mark.asyncio
@pytest.mark.scenario("S085", "S077")
@pytest.mark.parametrize("edit", [{"hibernatePolicy": "release"}, {"snapshotPolicy": "always", "nodePool": ""}])
async def test_an_edit_without_drift_only_stamps(world: World, edit: dict[str, Any]) -> None:
    await up(world)
    mark = world.mark
    world.edit(**edit)
    await world.settle()
    assert world.writes(mark) == ["patch pod/demo-0", "patch/status set/demo"]
    assert world.memory() == ["work"]


@pytest.mark.asyncio
@pytest.mark.scenario("S082", "S083")
async def test_a_pod_whose_resources_were_changed_on_the_way_is_made_once(world: World) -> None:
    """Legacy W-10: what an admission plugin does to the pod at its creation is not taken for an edit."""
    world.apply(agent={"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "4Gi"}}})

    def admission(moment: str, call: str) -> None:
        if (moment, call) == ("after", "create demo-0"):
            requests = {"requests": {"cpu": "1", "memory": "4Gi", "ephemeral-storage": "1Gi"}}
            limits = {"limits": {"cpu": "3", "memory": "4Gi"}}
            pod = world.api.objects[("pod", "ns", "demo-0")]
            pod["spec"]["containers"][0]["resources"] = {**requests, **limits}

    world.hook = admission
    await world.run()
    heal(world)
    world.api.patch("pod", "ns", "demo-0", {"metadata": {"labels": {"seen": "yes"}}}, by="admission")
    await world.settle()
    assert world.phase == "Running"
    assert [w for w in world.writes() if "pod" in w] == ["create pod/demo-0"]
    assert world.registry.requests == [f"GET {TAG}"]
