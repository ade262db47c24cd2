"""Names that are computed, and what a name says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api import keys
from cocoon_operator.api.enums import Role, SnapshotPolicy
from cocoon_operator.api.names import (
    NO_SLOT,
    keeps_latest,
    object_key,
    pod_name,
    role_of_pod,
    role_of_slot,
    set_prefix,
    should_push,
    slot_of_vm_name,
    vm_name,
    vm_name_of_pod,
)
from cocoon_operator.api.pod import Metadata, OwnerReference, Pod

_LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@pytest.mark.scenario("S018")
def test_names_are_built_from_namespace_set_and_slot() -> None:
    assert vm_name("prod", "demo", 2) == "vk-prod-demo-2"
    assert vm_name_of_pod("prod", "toolbox") == "vk-prod-toolbox"
    assert pod_name("demo", 0) == "demo-0"
    assert pod_name("demo", "db") == "demo-db"
    assert set_prefix("prod", "demo") == "vk-prod-demo-"


@given(_LABEL, _LABEL, st.one_of(st.integers(0, 2**31 - 1), _LABEL))
def test_the_pod_name_and_the_slot_lead_to_the_same_vm_name(namespace: str, name: str, slot: int | str) -> None:
    assert vm_name_of_pod(namespace, pod_name(name, slot)) == vm_name(namespace, name, slot)


@pytest.mark.scenario("S019")
@pytest.mark.parametrize(
    ("vm", "slot"),
    [
        ("vk-prod-demo-0", 0),
        ("vk-prod-demo-3", 3),
        ("vk-prod-demo-db-2", NO_SLOT),
        ("vk-prod-demo-toolbox", NO_SLOT),
        ("vk-prod-other-0", NO_SLOT),
        ("vk-staging-demo-0", NO_SLOT),
        ("prod-demo-0", NO_SLOT),
        ("vk-prod-demo-", NO_SLOT),
        ("vk-prod-demo--1", NO_SLOT),
        ("vk-prod-demo-1_0", NO_SLOT),
        ("vk-prod-demo- 1", NO_SLOT),
        ("vk-prod-demo-1\n", NO_SLOT),
        ("vk-prod-demo-\u0661", NO_SLOT),
        ("vk-prod-demo-99999999999999999999", NO_SLOT),
        ("", NO_SLOT),
    ],
)
def test_the_slot_of_a_vm_name(vm: str, slot: int) -> None:
    assert slot_of_vm_name("prod", "demo", vm) == slot


@given(_LABEL, _LABEL, st.integers(0, 2**31 - 1))
def test_a_slot_is_read_back_from_its_vm_name(namespace: str, name: str, slot: int) -> None:
    assert slot_of_vm_name(namespace, name, vm_name(namespace, name, slot)) == slot


@given(st.text())
def test_no_text_makes_the_slot_reader_raise(text: str) -> None:
    assert slot_of_vm_name("prod", "demo", text) >= NO_SLOT
    assert slot_of_vm_name("prod", "demo", set_prefix("prod", "demo") + text) >= NO_SLOT


def test_w25_one_name_reads_differently_for_two_sets_that_can_have_it() -> None:
    assert vm_name("a", "b-c", 0) == vm_name("a-b", "c", 0)
    assert slot_of_vm_name("a", "b", vm_name("a", "b-c", 0)) == NO_SLOT


@pytest.mark.scenario("S020")
@pytest.mark.parametrize(("slot", "role"), [(0, Role.MAIN), (7, Role.SUB_AGENT), (-1, Role.TOOLBOX)])
def test_the_role_of_a_slot(slot: int, role: Role) -> None:
    assert role_of_slot(slot) is role


@pytest.mark.scenario("S021")
@pytest.mark.parametrize(
    ("owner_kind", "vm", "role"),
    [
        ("CocoonSet", "vk-ns-cs-0", Role.MAIN),
        ("CocoonSet", "vk-ns-cs-2", Role.SUB_AGENT),
        ("CocoonSet", "vk-ns-cs-app-0", Role.TOOLBOX),
        ("ReplicaSet", "vk-ns-cs-0", Role.TOOLBOX),
        (None, "vk-ns-cs-0", Role.TOOLBOX),
    ],
)
def test_the_role_of_a_pod(owner_kind: str | None, vm: str, role: Role) -> None:
    owners = [OwnerReference(uid="u", name="cs", kind=owner_kind)] if owner_kind else []
    metadata = Metadata(name="p", namespace="ns", annotations={keys.VM_NAME: vm}, owner_references=owners)
    assert role_of_pod(Pod(metadata=metadata)) is role


@pytest.mark.scenario("S024")
def test_the_two_tags_have_their_names() -> None:
    assert (keys.TAG_HIBERNATE, keys.TAG_LATEST) == ("hibernate", "latest")


@pytest.mark.scenario("S035")
@pytest.mark.parametrize(
    ("policy", "role", "push"),
    [
        *((policy, role, True) for policy in ("", "always") for role in ("", "main", "sub-agent", "toolbox")),
        *(("never", role, False) for role in ("", "main", "sub-agent", "toolbox")),
        ("main-only", "main", True),
        ("main-only", "sub-agent", False),
        ("main-only", "toolbox", False),
        ("main-only", "", False),
    ],
)
def test_whether_a_vm_is_pushed(policy: str, role: str, push: bool) -> None:
    assert should_push(policy, role) is push


@pytest.mark.parametrize(
    ("policy", "vm", "keep"),
    [
        (SnapshotPolicy.ALWAYS, "vk-ns-demo-0", True),
        (SnapshotPolicy.ALWAYS, "vk-ns-demo-db", True),
        (SnapshotPolicy.MAIN_ONLY, "vk-ns-demo-0", True),
        (SnapshotPolicy.MAIN_ONLY, "vk-ns-demo-1", False),
        (SnapshotPolicy.MAIN_ONLY, "vk-ns-demo-db", False),
        (SnapshotPolicy.MAIN_ONLY, "vk-ns-demo-db-0", False),
        (SnapshotPolicy.NEVER, "vk-ns-demo-0", False),
    ],
)
def test_whether_latest_outlives_the_set(policy: SnapshotPolicy, vm: str, keep: bool) -> None:
    assert keeps_latest(policy, "ns", "demo", vm) is keep


@pytest.mark.scenario("S040")
def test_the_key_of_an_object() -> None:
    assert object_key("ns", "name") == "ns/name"
