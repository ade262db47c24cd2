"""The CocoonHibernation as a run sees it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cocoon_operator.api.enums import Desire
from cocoon_operator.api.hibernation import CocoonHibernationSpec, hibernation_from_object

_OBJECT: dict[str, Any] = {
    "metadata": {
        "namespace": "ns",
        "name": "demo-0",
        "uid": "u1",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2026-11-30T10:00:00Z",
        "finalizers": ["cocoonhibernation.cocoonset.cocoonstack.io/finalizer"],
    },
    "spec": {"podRef": {"name": "demo-0"}, "desire": "Hibernate"},
    "status": {
        "phase": "Hibernated",
        "vmName": "vk-ns-demo-0",
        "observedGeneration": 2,
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def test_every_field_is_read() -> None:
    seen = hibernation_from_object(_OBJECT)
    assert (seen.namespace, seen.name, seen.uid, seen.resource_version) == ("ns", "demo-0", "u1", "7")
    assert (seen.generation, seen.creation_timestamp, seen.deleting) == (2, "2026-11-30T10:00:00Z", False)
    assert seen.finalizers == ("cocoonhibernation.cocoonset.cocoonstack.io/finalizer",)
    assert (seen.pod_name, seen.desire) == ("demo-0", Desire.HIBERNATE)
    assert (seen.phase, seen.vm_name, seen.observed_generation) == ("Hibernated", "vk-ns-demo-0", 2)
    assert seen.conditions == ({"type": "Ready", "status": "True"},)
    deleting = {**_OBJECT, "metadata": {**_OBJECT["metadata"], "deletionTimestamp": "2026-11-30T11:00:00Z"}}
    assert hibernation_from_object(deleting).deleting is True


@pytest.mark.parametrize("spec", [None, {}, {"podRef": None}, {"podRef": {}}, {"podRef": {"name": 5}}, "x"])
def test_w61_an_old_object_without_a_spec_reads_as_one_without_a_pod_name(spec: Any) -> None:
    assert hibernation_from_object({**_OBJECT, "spec": spec}).pod_name == ""


def test_an_unknown_desire_is_kept_as_it_is() -> None:
    assert hibernation_from_object({"spec": {"desire": "Nap"}}).desire == "Nap"


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["name", "podRef", "desire", "generation", "finalizers", "conditions", "phase", "x"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=10,
)


@given(st.fixed_dictionaries({}, optional={"metadata": _JSON, "spec": _JSON, "status": _JSON}))
def test_garbage_never_raises(obj: dict[str, Any]) -> None:
    seen = hibernation_from_object(obj)
    assert isinstance(seen.pod_name, str)
    assert isinstance(seen.generation, int)


def test_the_model_refuses_what_the_schema_refuses() -> None:
    read = CocoonHibernationSpec.model_validate(_OBJECT["spec"])
    assert (read.pod_ref.name, read.desire) == ("demo-0", Desire.HIBERNATE)
    for raw in ({}, {"podRef": {"name": ""}, "desire": "Wake"}, {"podRef": {"name": "x"}, "desire": ""}):
        with pytest.raises(ValidationError):
            CocoonHibernationSpec.model_validate(raw)
