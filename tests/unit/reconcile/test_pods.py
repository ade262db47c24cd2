"""The shape of pods (contract section 3, scenarios C)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.reconcile.objects import SetObject
from tests.model.apiserver import Object
from tests.unit.reconcile.staging import VM, built_main, built_sub, built_toolbox, set_object, spec_of

STATIC = {"name": "tb", "mode": "static", "staticVMID": "vm-7", "staticIP": "10.1.1.7", "vncPort": 5907}
RUN = {"name": "tb", "mode": "run", "image": "tools"}


def every_role(**spec: Any) -> list[Object]:
    """One pod of each role of one set."""
    agent = {"replicas": 1, **spec.pop("agent", {})}
    boxes = [dict(RUN), {**STATIC, "name": "st"}]
    target = set_object(agent=agent, toolboxes=boxes, **spec)
    return [built_main(target), built_sub(target), built_toolbox(target, "tb"), built_toolbox(target, "st")]


def carried(body: Object) -> dict[str, str]:
    found: dict[str, str] = body["metadata"]["annotations"]
    return found


@pytest.mark.scenario("S045")
def test_main_has_slot_0_its_own_vm_name_and_no_fork_source() -> None:
    body = built_main(set_object())
    assert body["metadata"]["name"] == "demo-0"
    assert body["metadata"]["namespace"] == "ns"
    assert body["metadata"]["labels"] == {
        "cocoonset.cocoonstack.io/name": "demo",
        "cocoonset.cocoonstack.io/role": "main",
        "cocoonset.cocoonstack.io/slot": "0",
        "app.kubernetes.io/name": "demo",
    }
    assert carried(body)[keys.VM_NAME] == VM
    assert keys.FORK_FROM not in carried(body)


@pytest.mark.scenario("S046")
def test_a_sub_agent_is_forked_from_main_on_its_node() -> None:
    body = built_sub(set_object(agent={"replicas": 1}), fork_from=VM, node="node-a")
    assert body["metadata"]["name"] == "demo-1"
    assert body["metadata"]["labels"][keys.LABEL_ROLE] == "sub-agent"
    assert body["metadata"]["labels"][keys.LABEL_SLOT] == "1"
    assert carried(body)[keys.VM_NAME] == "vk-ns-demo-1"
    assert carried(body)[keys.FORK_FROM] == VM
    assert body["spec"]["nodeName"] == "node-a"


@pytest.mark.scenario("S046")
def test_a_sub_agent_of_an_unscheduled_main_is_not_bound() -> None:
    assert "nodeName" not in built_sub(set_object(agent={"replicas": 1}), node="")["spec"]


@pytest.mark.scenario("S047", "S057")
def test_an_image_alone_yields_exactly_these_annotations() -> None:
    assert carried(built_main(set_object(generation=42))) == {
        "cocoonset.cocoonstack.io/generation": "42",
        "cocoonset.cocoonstack.io/applied-resources": "{}",
        "vm.cocoonstack.io/name": VM,
        "cocoonset.cocoonstack.io/image": "base",
        "cocoonset.cocoonstack.io/mode": "clone",
        "cocoonset.cocoonstack.io/os": "linux",
        "cocoonset.cocoonstack.io/snapshot-policy": "always",
        "cocoonset.cocoonstack.io/managed": "true",
        "vm.cocoonstack.io/backend": "cloud-hypervisor",
    }


@pytest.mark.scenario("S048")
@pytest.mark.parametrize(("written", "text"), [("100Gi", "100Gi"), ("1024Gi", "1Ti"), (107374182400, "107374182400")])
def test_storage_is_annotated_in_canonical_text(written: Any, text: str) -> None:
    assert carried(built_main(set_object(agent={"storage": written})))[keys.STORAGE] == text


@pytest.mark.scenario("S049")
def test_a_static_toolbox_is_unmanaged_and_carries_its_machine() -> None:
    found = carried(built_toolbox(set_object(toolboxes=[STATIC])))
    assert keys.MANAGED not in found
    assert (found[keys.VM_ID], found[keys.VM_IP], found[keys.VNC_PORT]) == ("vm-7", "10.1.1.7", "5907")
    assert found[keys.VM_NAME] == "vk-ns-demo-tb"


@pytest.mark.scenario("S049")
def test_a_static_toolbox_without_vnc_port_has_no_such_annotation() -> None:
    assert keys.VNC_PORT not in carried(built_toolbox(set_object(toolboxes=[{**STATIC, "vncPort": 0}])))


@pytest.mark.scenario("S050")
@pytest.mark.parametrize("mode", ["run", "clone"])
def test_a_toolbox_that_is_a_vm_is_managed(mode: str) -> None:
    found = carried(built_toolbox(set_object(toolboxes=[{**RUN, "mode": mode}])))
    assert found[keys.MANAGED] == "true"
    assert found[keys.MODE] == mode


@pytest.mark.scenario("S051", "S052")
def test_every_pod_has_one_owner_that_is_its_controller() -> None:
    for body in every_role():
        assert body["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "cocoonset.cocoonstack.io/v1",
                "kind": "CocoonSet",
                "name": "demo",
                "uid": "uid-set",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


@pytest.mark.scenario("S053")
def test_pool_and_class_are_selected_by_every_role() -> None:
    for body in every_role(nodePool="purpose-a", snapshotCompatibilityClass="n2-cascade-lake-v1"):
        assert body["spec"]["nodeSelector"] == {
            "cocoonstack.io/pool": "purpose-a",
            "cocoonstack.io/snapshot-cpu-class": "n2-cascade-lake-v1",
        }


@pytest.mark.scenario("S054")
@pytest.mark.parametrize("pool", ["default", ""])
def test_without_class_only_the_pool_is_selected(pool: str) -> None:
    for body in every_role(nodePool=pool):
        assert body["spec"]["nodeSelector"] == {"cocoonstack.io/pool": "default"}


@pytest.mark.scenario("S055", "S056")
def test_every_pod_stays_on_a_node_that_is_not_heard_of() -> None:
    for body in every_role():
        assert body["spec"]["tolerations"] == [
            {"key": "virtual-kubelet.io/provider", "operator": "Exists"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
        ]


@pytest.mark.scenario("S057")
def test_every_role_carries_the_generation_stamp() -> None:
    target = set_object(generation=42, agent={"replicas": 1}, toolboxes=[RUN])
    for body in (built_main(target), built_sub(target), built_toolbox(target)):
        assert carried(body)[keys.GENERATION] == "42"


@pytest.mark.scenario("S058")
@pytest.mark.parametrize("hint", ["", "node-a"])
def test_a_pin_is_a_required_affinity_never_a_binding(hint: str) -> None:
    body = built_main(set_object(nodeName="node-b"), restore=bool(hint), hint=hint)
    assert "nodeName" not in body["spec"]
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-b"]}
    assert body["spec"]["affinity"] == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        }
    }


@pytest.mark.scenario("S059")
def test_an_unpinned_main_has_no_affinity() -> None:
    assert "affinity" not in built_main(set_object())["spec"]
    assert "nodeName" not in built_main(set_object())["spec"]


@pytest.mark.scenario("S060")
def test_the_pin_concerns_main_alone() -> None:
    target = set_object(nodeName="node-b", agent={"replicas": 1}, toolboxes=[RUN])
    sub, toolbox = built_sub(target, node="node-a"), built_toolbox(target)
    assert sub["spec"]["nodeName"] == "node-a"
    assert "affinity" not in sub["spec"]
    assert "affinity" not in toolbox["spec"]
    assert "nodeName" not in toolbox["spec"]


@pytest.mark.scenario("S061")
def test_environment_and_service_account_are_the_agents_alone() -> None:
    sources = [
        {"configMapRef": {"name": "settings"}},
        {"prefix": "X_", "secretRef": {"name": "keys", "optional": True}},
    ]
    main, sub, toolbox, static = every_role(agent={"envFrom": sources, "serviceAccountName": "robot"})
    for body in (main, sub):
        assert body["spec"]["containers"][0]["envFrom"] == sources
        assert body["spec"]["serviceAccountName"] == "robot"
    for body in (toolbox, static):
        assert "envFrom" not in body["spec"]["containers"][0]
        assert "serviceAccountName" not in body["spec"]


@pytest.mark.scenario("S062")
def test_storage_is_requested_and_limited_as_ephemeral_storage() -> None:
    options = {"resources": {"limits": {"cpu": "2", "memory": "4Gi"}}, "storage": "1024Gi"}
    assert built_main(set_object(agent=options))["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "1Ti"},
        "requests": {"ephemeral-storage": "1Ti"},
    }


@pytest.mark.scenario("S062")
def test_storage_replaces_what_the_user_wrote_for_ephemeral_storage() -> None:
    options = {"resources": {"limits": {"ephemeral-storage": "1Gi"}}, "storage": "2Gi"}
    resources = built_main(set_object(agent=options))["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"ephemeral-storage": "2Gi"}, "requests": {"ephemeral-storage": "2Gi"}}


@pytest.mark.scenario("S062")
@pytest.mark.parametrize("zero", ["0", 0, "0Gi"])
def test_zero_storage_is_annotated_and_not_requested(zero: Any) -> None:
    body = built_main(set_object(agent={"storage": zero}))
    assert carried(body)[keys.STORAGE] == "0"
    assert body["spec"]["containers"][0]["resources"] == {}


@pytest.mark.scenario("S063")
def test_options_become_annotations() -> None:
    options = {"probePort": 22, "forcePull": True, "noDirectIO": True, "network": "blue", "connType": "rdp"}
    found = carried(built_main(set_object(agent=options)))
    assert found[keys.PROBE_PORT] == "22"
    assert found[keys.FORCE_PULL] == "true"
    assert found[keys.NO_DIRECT_IO] == "true"
    assert found[keys.NETWORK] == "blue"
    assert found[keys.CONN_TYPE] == "rdp"


@pytest.mark.scenario("S063")
def test_options_that_are_not_set_leave_no_trace() -> None:
    off = {"probePort": 0, "forcePull": False, "noDirectIO": False, "network": ""}
    found = carried(built_main(set_object(agent=off)))
    unset = {keys.PROBE_PORT, keys.FORCE_PULL, keys.NO_DIRECT_IO, keys.NETWORK, keys.CONN_TYPE, keys.STORAGE}
    assert unset.isdisjoint(found)


@pytest.mark.scenario("S064")
@pytest.mark.parametrize("mode", ["run", "clone"])
def test_only_a_static_toolbox_carries_a_machine(mode: str) -> None:
    found = carried(built_toolbox(set_object(toolboxes=[{**STATIC, "mode": mode, "image": "tools"}])))
    assert {keys.VM_ID, keys.VM_IP, keys.VNC_PORT}.isdisjoint(found)


@pytest.mark.scenario("S065")
def test_the_pod_is_a_placeholder_with_one_container() -> None:
    body = built_main(set_object())
    assert body["spec"] == {
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"cocoonstack.io/pool": "default"},
        "tolerations": body["spec"]["tolerations"],
        "containers": [{"name": "agent", "image": "ghcr.io/cocoonstack/placeholder:latest", "resources": {}}],
    }
    for other in every_role():
        assert other["spec"]["terminationGracePeriodSeconds"] == 1
        assert [c["name"] for c in other["spec"]["containers"]] == ["agent"]
        assert [c["image"] for c in other["spec"]["containers"]] == ["ghcr.io/cocoonstack/placeholder:latest"]


@pytest.mark.scenario("S159")
def test_the_seat_of_a_released_main_is_preferred_at_its_wake() -> None:
    body = built_main(set_object(), restore=True, hint="node-a")
    assert carried(body)[keys.RESTORE] == "true"
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-a"]}
    assert body["spec"]["affinity"] == {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": {"matchExpressions": [expression]}}
            ]
        }
    }


def test_building_shares_nothing_with_the_spec() -> None:
    """W-11: a second build finds the spec as the first one did."""
    resources = {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    target = set_object(agent={"resources": resources, "storage": "1Gi", "envFrom": [{"prefix": "A"}]})
    before = snapshot(target)
    first = built_main(target)
    first["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "9"
    first["spec"]["containers"][0]["envFrom"][0]["prefix"] = "B"
    assert snapshot(target) == before
    assert built_main(target)["spec"]["containers"][0]["envFrom"] == [{"prefix": "A"}]


def snapshot(target: SetObject) -> Any:
    return copy.deepcopy(spec_of(target).model_dump())
