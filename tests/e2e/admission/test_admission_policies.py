"""What the chart's policies refuse, and whom they let through: pods of VMs, workloads, hibernations, names of VMs."""

from __future__ import annotations

from typing import Any

import pytest
from asking import TESTERS, Asking, Refusal, create, delete, patch
from candidates import TAINT, TOLERATION, Obj, cocoon_set, hibernation, owner, pod, workload
from inforce import EXEMPT_GROUP, EXEMPT_USER, OTHER_CREATOR, Standing, denied, probes_of, refusing, scaled_down, until

from cocoon_devkit.chart import NAMESPACE, OPERATOR_USER
from cocoon_operator.api import keys

KINDS = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])

NO_OWNER = (
    "metadata.ownerReferences: a pod that tolerates virtual-kubelet.io/provider must belong to a CocoonSet; "
    "create a CocoonSet, which makes its pods itself"
)


def not_made_by(user: str) -> str:
    return f"spec.tolerations: only {OPERATOR_USER} makes pods that tolerate virtual-kubelet.io/provider, not {user}"


# -- pods --------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("PO-3", "V01", "V07")
@pytest.mark.parametrize(
    "tolerations",
    [(), ({"operator": "Exists"},), ({"key": "virtual-kubelet.io/other", "operator": "Exists"},)],
    ids=["none", "all", "another"],
)
def test_other_pods_are_anybodys(alice: Asking, standing: Standing, tolerations: tuple[Obj, ...]) -> None:
    alice.allows(create(pod(standing.namespace, *tolerations)))


@pytest.mark.scenario("PO-4", "PO-6", "V04", "V06")
@pytest.mark.parametrize(
    "toleration",
    [
        TOLERATION,
        {"key": TAINT, "operator": "Equal", "value": "cocoon", "effect": "NoSchedule"},
        {"key": TAINT, "operator": "Exists", "effect": "NoExecute"},
    ],
    ids=["exists", "equal", "no-execute"],
)
def test_a_pod_of_a_vm_has_to_belong_to_a_set(alice: Asking, standing: Standing, toleration: Obj) -> None:
    """Whoever makes it: the operator, too; and that is told first."""
    for user in (alice, alice.as_user(OPERATOR_USER)):
        denied(user.refuses(create(pod(standing.namespace, toleration))), "pods", NO_OWNER)
    several = pod(standing.namespace, {"operator": "Exists"}, toleration)
    denied(alice.refuses(create(several)), "pods", NO_OWNER)


@pytest.mark.scenario("PO-4")
@pytest.mark.parametrize(
    "other",
    [{"kind": "ReplicaSet", "apiVersion": "apps/v1"}, {"apiVersion": "example.com/v1"}, {"kind": "CocoonHibernation"}],
)
def test_a_set_is_a_cocoonset_of_this_group(alice: Asking, standing: Standing, other: dict[str, str]) -> None:
    """The webhook took every kind of that name."""
    owned = pod(standing.namespace, TOLERATION, owner=owner(**other))
    denied(alice.as_user(OPERATOR_USER).refuses(create(owned)), "pods", NO_OWNER)


@pytest.mark.scenario("PO-5", "V02", "V03", "V08", "G-1", "G-2")
def test_only_the_operator_makes_one(alice: Asking, standing: Standing) -> None:
    owned = pod(standing.namespace, TOLERATION, owner=owner())
    for name in (OPERATOR_USER, OTHER_CREATOR, "somebody"):
        alice.as_user(name).allows(create(owned))
    near = (f"{OPERATOR_USER}-2", OPERATOR_USER.upper(), "system:serviceaccount:default:cocoon-operator")
    for name in ("alice", *near):
        denied(alice.as_user(name).refuses(create(owned)), "pods", not_made_by(name))


@pytest.mark.scenario("PO-7", "G-7", "V09")
def test_nothing_is_changed_on_the_way(alice: Asking, standing: Standing) -> None:
    owned = pod(standing.namespace, TOLERATION, owner=owner())
    stored = alice.as_user(OPERATOR_USER).allows(create(owned))
    assert "annotations" not in stored["metadata"]
    assert "labels" not in stored["metadata"]
    assert stored["metadata"]["ownerReferences"] == owned["metadata"]["ownerReferences"]
    # Two more are Kubernetes' own.
    assert [each for each in stored["spec"]["tolerations"] if not each["key"].startswith("node.")] == [TOLERATION]


@pytest.mark.scenario("PO-8")
def test_no_pod_becomes_one_later(alice: Asking, standing: Standing) -> None:
    plain = pod(standing.namespace, name="plain")
    alice.allows(create(plain).stored())
    change = {"spec": {"tolerations": [TOLERATION]}}
    denied(alice.refuses(patch(plain, change)), "pods", NO_OWNER)
    owned = {"metadata": {"ownerReferences": [owner()]}, **change}
    denied(alice.refuses(patch(plain, owned)), "pods", not_made_by("alice"))
    alice.as_user(OPERATOR_USER).allows(patch(plain, owned))
    alice.allows(patch(plain, {"metadata": {"labels": {"a": "b"}}}))
    alice.allows(delete(plain).stored())


@pytest.mark.scenario("PO-8")
def test_what_becomes_of_a_pod_of_a_vm_is_not_looked_at(alice: Asking, standing: Standing) -> None:
    """Its node agent, the garbage collector and its user write to it; here all of them are alice."""
    older = standing.pod()
    alice.allows(patch(older, {"metadata": {"annotations": {keys.VM_ID: "i-1"}, "finalizers": ["example.com/held"]}}))
    alice.allows(patch(older, {"status": {"phase": "Running"}}, "status"))
    alice.allows(patch(older, {"spec": {"tolerations": [TOLERATION, {"key": "a", "operator": "Exists"}]}}))
    alice.allows(delete(older))


@pytest.mark.scenario("V05")
def test_namespaces_of_the_cluster_itself_are_let_alone(alice: Asking, policies: list[Obj]) -> None:
    alice.allows(create(pod("kube-system", TOLERATION)))
    [binding] = [
        each for each in policies if each["kind"].endswith("Binding") and each["metadata"]["name"].endswith("-pods")
    ]
    [expression] = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    system = {"kube-system", "kube-node-lease", "kube-public", "cert-manager", NAMESPACE}
    assert (expression["operator"], set(expression["values"])) == ("NotIn", system)


@pytest.mark.scenario("PO-1", "WL-1", "V21")
@KINDS
def test_the_creation_of_a_workload_is_not_looked_at(alice: Asking, standing: Standing, kind: str) -> None:
    alice.allows(create(workload(standing.namespace, kind, TOLERATION, replicas=0, name="new")))


# -- workloads ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("WL-3", "WL-4", "V10", "V11")
@KINDS
def test_a_workload_of_vms_grows_and_does_not_shrink(alice: Asking, standing: Standing, kind: str) -> None:
    vms = standing.workload(kind)
    for replicas in (3, 4):
        alice.allows(patch(vms, {"spec": {"replicas": replicas}}))
    for replicas in (2, 0):
        refusal = alice.refuses(patch(vms, {"spec": {"replicas": replicas}}))
        denied(refusal, "workloads", scaled_down(kind, standing.namespace, 3, replicas))


@pytest.mark.scenario("WL-4", "V15")
@KINDS
def test_no_number_means_one(alice: Asking, standing: Standing, kind: str) -> None:
    vms = standing.workload(kind)
    denied(
        alice.refuses(patch(vms, {"spec": {"replicas": None}})),
        "workloads",
        scaled_down(kind, standing.namespace, 3, 1),
    )


@pytest.mark.scenario("WL-3", "V12", "V14")
@KINDS
def test_another_workload_shrinks_even_if_it_becomes_one_of_vms(alice: Asking, standing: Standing, kind: str) -> None:
    plain = standing.workload(kind, name="plain")
    alice.allows(patch(plain, {"spec": {"replicas": 0}}))
    tolerant = {"template": {"spec": {"tolerations": [TOLERATION]}}}
    alice.allows(patch(plain, {"spec": {"replicas": 0, **tolerant}}))


@pytest.mark.scenario("WL-3", "V13")
@KINDS
def test_the_toleration_cannot_be_taken_away_in_the_same_request(alice: Asking, standing: Standing, kind: str) -> None:
    bare = {"template": {"spec": {"tolerations": None}}}
    refusal = alice.refuses(patch(standing.workload(kind), {"spec": {"replicas": 1, **bare}}))
    denied(refusal, "workloads", scaled_down(kind, standing.namespace, 3, 1))
    alice.allows(patch(standing.workload(kind), {"spec": bare}))


@pytest.mark.scenario("WL-1", "WL-2")
@KINDS
def test_everything_else_about_a_workload_is_its_owners(alice: Asking, standing: Standing, kind: str) -> None:
    vms = standing.workload(kind)
    alice.allows(patch(vms, {"metadata": {"finalizers": ["foregroundDeletion"], "annotations": {"a": "b"}}}))
    alice.allows(patch(vms, {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}))
    alice.allows(patch(vms, {"status": {"observedGeneration": 1}}, "status"))
    alice.allows(delete(vms))


# -- hibernations ------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("CH-3", "CH-10", "V70", "V71", "V74", "V79")
def test_a_hibernation_is_named_after_its_pod(alice: Asking, standing: Standing) -> None:
    namespace = standing.namespace
    for name in ("demo-0", "demo-1"):
        alice.allows(create(hibernation(namespace, name)))
    alice.allows(create(hibernation("default", "held-0")))
    for policy_user in (alice, alice.as_user("system:serviceaccount:default:default")):
        refusal = policy_user.refuses(create(hibernation(namespace, "demo-0", name="nap")))
        message = "metadata.name: must be demo-0, the name of the pod (spec.podRef.name), not nap"
        denied(refusal, "hibernation-name", message)
    generated = hibernation(namespace, "demo-0")
    generated["metadata"] = {"generateName": "demo-0", "namespace": namespace}
    assert "metadata.name: must be demo-0" in alice.refuses(create(generated)).message


@pytest.mark.scenario("CH-4", "V72")
def test_a_pod_has_one_hibernation_whatever_the_older_one_is_called(alice: Asking, standing: Standing) -> None:
    message = "spec.podRef.name: CocoonHibernation older for pod held-0 is there; set its spec.desire instead"
    denied(alice.refuses(create(hibernation(standing.namespace, "held-0"))), "hibernation-one", message)


@pytest.mark.scenario("CH-1", "CH-8", "V75", "V77", "V78")
def test_an_older_hibernation_can_be_woken_written_to_and_deleted(alice: Asking, standing: Standing) -> None:
    older = standing.hibernation()
    alice.allows(patch(older, {"spec": {"desire": "Wake"}}))
    alice.allows(patch(older, {"metadata": {"finalizers": [keys.HIBERNATION_FINALIZER], "labels": {"a": "b"}}}))
    alice.allows(patch(older, {"status": {"phase": "Hibernated"}}, "status"))
    alice.allows(delete(older))
    assert "spec.podRef is immutable" in alice.refuses(patch(older, {"spec": {"podRef": {"name": "demo-1"}}})).message
    assert "spec.desire" in alice.refuses(patch(older, {"spec": {"desire": "Nap"}})).fields


@pytest.mark.scenario("CH-5", "V73")
def test_one_that_is_being_deleted_has_to_be_gone_first(alice: Asking, ask: Asking, standing: Standing) -> None:
    """Under the pod's own name the API server says by itself that it exists, which controllers understand."""
    going = hibernation(standing.namespace, "going-0", name="nap")
    going["metadata"]["finalizers"] = ["example.com/held"]
    named = hibernation(standing.namespace, "named-0")
    named["metadata"]["finalizers"] = ["example.com/held"]
    administrator = ask.as_user(EXEMPT_USER)
    for each in (going, named):
        administrator.allows(create(each).stored())
        administrator.allows(delete(each).stored())
    message = "spec.podRef.name: CocoonHibernation nap for pod going-0 is being deleted; try again when it is gone"
    again = create(hibernation(standing.namespace, "going-0"))
    until(lambda: "is being deleted" in alice.says(again), "the API server has seen the deletion")
    denied(alice.refuses(again), "hibernation-one", message)
    assert alice.refuses(create(hibernation(standing.namespace, "named-0"))).reason == "AlreadyExists"
    for each in (going, named):
        alice.allows(patch(each, {"metadata": {"finalizers": None}}).stored())


@pytest.mark.scenario("CH-7")
def test_one_without_a_spec_is_passed_over_and_can_be_let_go(alice: Asking, standing: Standing) -> None:
    """An older CRD let it in; as it did a set without one."""
    alice.allows(create(hibernation(standing.namespace, "demo-0")))
    for each in standing.without_spec():
        alice.allows(patch(each, {"metadata": {"finalizers": None}}))
        alice.allows(delete(each))


# -- names of VMs ------------------------------------------------------------------------------------------------------


def invalid(refusal: Refusal, message: str) -> None:
    assert (refusal.code, refusal.reason) == (422, "Invalid")
    assert refusal.message.endswith(f"binding 'cocoon-operator-vm-names' denied request: {message}")


def agent_too_long(vm: str, most: int = 46) -> str:
    return (
        f"metadata.name: too long together with its namespace: the agent VM {vm} would have {len(vm)} characters "
        f"in its name, more than {most}"
    )


def set_with_vm(namespace: str, length: int, slot: str = "0", **spec: Any) -> Obj:
    """A set whose VM of a slot has a name of a length."""
    return cocoon_set(namespace, name="x" * (length - len(f"vk-{namespace}--{slot}")), **spec)


@pytest.mark.scenario("CS-56")
@pytest.mark.parametrize(("os", "most"), [("linux", 46), ("windows", 46), ("android", 46), ("macos", 63)])
@pytest.mark.parametrize("replicas", [0, 9, 10, 100])
def test_an_agents_vm_leaves_room_in_its_name(
    alice: Asking, standing: Standing, os: str, most: int, replicas: int
) -> None:
    slot = str(replicas)
    spec: Obj = {"agent": {"image": "x", "mode": "run", "os": os, "replicas": replicas}}
    alice.allows(create(set_with_vm(standing.namespace, most, slot, **spec)))
    longer = set_with_vm(standing.namespace, most + 1, slot, **spec)
    vm = f"vk-{standing.namespace}-{longer['metadata']['name']}-{slot}"
    invalid(alice.refuses(create(longer)), agent_too_long(vm, most))


@pytest.mark.scenario("CS-57")
@pytest.mark.parametrize(("os", "most"), [("linux", 46), ("macos", 63)])
def test_so_does_a_toolboxs_unless_it_is_static(alice: Asking, standing: Standing, os: str, most: int) -> None:
    prefix = f"vk-{standing.namespace}-demo-"
    box: Obj = {"name": "t" * (most - len(prefix)), "image": "x", "os": os}
    short: Obj = {"name": "db", "image": "x"}
    alice.allows(create(cocoon_set(standing.namespace, toolboxes=[short, box])))
    longer = box["name"] + "t"
    message = (
        f"spec.toolboxes: the name {longer} is too long together with those of the set and its namespace: the VM "
        f"{prefix}{longer} would have {most + 1} characters in its name, more than {most}"
    )
    refusal = alice.refuses(create(cocoon_set(standing.namespace, toolboxes=[short, {**box, "name": longer}])))
    invalid(refusal, message)
    static = {"name": "t" * 63, "mode": "static", "staticIP": "10.0.0.9", "staticVMID": "rack-1"}
    alice.allows(create(cocoon_set(standing.namespace, toolboxes=[short, static])))


@pytest.mark.scenario("CS-3", "CS-56", "CS-57")
def test_an_older_set_with_long_names_goes_on(alice: Asking, standing: Standing) -> None:
    older = standing.long_set()
    prefix = f"vk-{standing.namespace}-{older['metadata']['name']}-"
    [box] = older["spec"]["toolboxes"]
    alice.allows(patch(older, {"metadata": {"finalizers": [keys.SET_FINALIZER], "annotations": {"a": "b"}}}))
    alice.allows(patch(older, {"status": {"phase": "Running"}}, "status"))
    alice.allows(delete(older))
    for change in ({"suspend": True}, {"agent": {"replicas": 9}}, {"toolboxes": [{**box, "image": "y"}]}):
        alice.allows(patch(older, {"spec": change}))
    alice.allows(patch(older, {"spec": {"agent": {"os": "macos"}, "toolboxes": None}}))
    invalid(alice.refuses(patch(older, {"spec": {"agent": {"replicas": 10}}})), agent_too_long(f"{prefix}10"))
    more = [box, {**box, "name": "newer"}]
    message = f"the VM {prefix}newer would have {len(prefix) + 5} characters in its name, more than 46"
    assert alice.refuses(patch(older, {"spec": {"toolboxes": more}})).message.endswith(message)


@pytest.mark.scenario("CS-56", "CS-57")
def test_a_set_without_a_spec_gets_one_with_short_names(alice: Asking, standing: Standing) -> None:
    bare = standing.without_spec()[0]
    spec: Obj = {"agent": {"image": "x"}}
    alice.allows(patch(bare, {"spec": spec}))
    long = {"name": "t" * 40, "image": "x"}
    refusal = alice.refuses(patch(bare, {"spec": {**spec, "toolboxes": [long]}}))
    assert f"the VM vk-{standing.namespace}-bare-{long['name']} would have" in refusal.message


# -- who is exempt -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("user", "group"), [(EXEMPT_USER, TESTERS), ("alice", EXEMPT_GROUP)], ids=["user", "group"])
def test_administrators_can_be_exempt_by_name_and_by_group(
    ask: Asking, policies: list[Obj], standing: Standing, user: str, group: str
) -> None:
    administrator = ask.as_user(user, group)
    for probe in probes_of(standing).values():
        administrator.allows(probe)


@pytest.mark.scenario("PO-5")
def test_the_operator_is_exempt_where_a_rule_is_not_about_its_pods(alice: Asking, standing: Standing) -> None:
    refused = refusing(alice.as_user(OPERATOR_USER), probes_of(standing))
    assert refused == {"cocoon-operator-pods"}


@pytest.mark.scenario("G-6")
def test_a_request_for_good_is_judged_as_a_dry_one(alice: Asking, standing: Standing) -> None:
    for probe in probes_of(standing).values():
        assert alice.refuses(probe.stored()).message == alice.refuses(probe).message
