"""Whose VM a name can be (W-25)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.claims import VmNameIndex
from cocoon_operator.reconcile.objects import set_from_object


def index(*sets: tuple[str, str, str, dict[str, Any]]) -> VmNameIndex:
    """Build an index of (namespace, name, creation time, more)."""
    cache = Cache(lambda _: None)
    objects = []
    for number, (namespace, name, created, more) in enumerate(sets):
        metadata = {
            "namespace": namespace,
            "name": name,
            "uid": f"u{number}",
            "resourceVersion": "5",
            "creationTimestamp": created,
            "annotations": more.get("annotations", {}),
        }
        spec = {"agent": {"image": "i"}, "toolboxes": more.get("toolboxes", [])}
        objects.append(set_from_object({"metadata": metadata, "spec": spec, "status": more.get("status", {})}))
    cache.replace_sets(objects, "10")
    return VmNameIndex(cache, clusterwide=True)


def owners(vm_names: VmNameIndex, vm: str) -> list[str]:
    return [f"{obj.namespace}/{obj.name}" for obj in vm_names.claimants(vm)]


def test_w25_a_name_that_two_namespaces_can_have_is_the_older_ones_first() -> None:
    names = index(("a-b", "c", "2026-01-02T00:00:00Z", {}), ("a", "b-c", "2026-01-01T00:00:00Z", {}))
    assert owners(names, "vk-a-b-c-0") == ["a/b-c", "a-b/c"]
    assert owners(names, "vk-a-b-c-7") == ["a/b-c", "a-b/c"]


@pytest.mark.parametrize("more", [{}, {"toolboxes": [{"name": "other"}]}])
def test_a_set_does_not_claim_what_it_cannot_have(more: dict[str, Any]) -> None:
    names = index(("a", "b", "", more))
    assert owners(names, "vk-a-b-c-0") == []
    assert owners(names, "vk-a-b-01") == []
    assert owners(names, "vk-x-b-0") == []


@pytest.mark.parametrize(
    "more",
    [
        {"toolboxes": [{"name": "c-0"}]},
        {"annotations": {keys.DELETE_VM_NAMES: "vk-a-b-0, vk-a-b-c-0"}},
        {"status": {"toolboxes": [{"name": "c-0", "vmName": "vk-a-b-c-0"}]}},
        {"status": {"agents": [{"vmName": "vk-a-b-c-0"}]}},
    ],
)
def test_a_toolbox_is_claimed_by_spec_by_list_and_by_status(more: dict[str, Any]) -> None:
    assert owners(index(("a", "b", "", more)), "vk-a-b-c-0") == ["a/b"]


def test_w63_a_list_claims_no_name_outside_the_sets_own_prefix() -> None:
    names = index(("evil", "x", "", {"annotations": {keys.DELETE_VM_NAMES: "vk-a-b-0"}}))
    assert owners(names, "vk-a-b-0") == []


@pytest.mark.parametrize("vm", ["", "vk-", "demo-0", "vk-a-0", "vk---", "VK-a-b-0"])
def test_what_is_no_vm_name_has_no_claimant(vm: str) -> None:
    assert owners(index(("a", "b", "", {})), vm) == []


def test_a_namespaced_install_or_an_empty_cache_is_blind() -> None:
    cache = Cache(lambda _: None)
    assert not VmNameIndex(cache, clusterwide=True).complete
    cache.replace_sets([], "1")
    assert VmNameIndex(cache, clusterwide=True).complete
    assert not VmNameIndex(cache, clusterwide=False).complete


def test_garbage_in_status_is_ignored() -> None:
    names = index(("a", "b", "", {"status": {"agents": "x", "toolboxes": [1, None, {"vmName": 3}]}}))
    assert owners(names, "vk-a-b-box") == []
