"""The CocoonSet's spec: what is read, what is filled in, what is refused and how that is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cocoon_operator.api.cocoonset import CocoonSetSpec, CocoonSetStatus, SpecError, parse_spec
from cocoon_operator.api.enums import (
    AgentMode,
    Backend,
    ConnType,
    HibernatePolicy,
    OperatingSystem,
    SnapshotPolicy,
    ToolboxMode,
)

_FULL: dict[str, Any] = {
    "suspend": True,
    "snapshotPolicy": "main-only",
    "hibernatePolicy": "release",
    "nodePool": "gold",
    "snapshotCompatibilityClass": "n2-cascade-lake-v1",
    "nodeName": "node-a",
    "agent": {
        "replicas": 2,
        "image": "team/base:1",
        "mode": "run",
        "os": "windows",
        "backend": "firecracker",
        "connType": "rdp",
        "network": "blue",
        "forcePull": True,
        "noDirectIO": True,
        "probePort": 22,
        "storage": "100G",
        "resources": {"limits": {"cpu": 2, "memory": "4Gi"}, "requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
        "envFrom": [{"prefix": "A_", "secretRef": {"name": "s", "optional": True}}],
        "serviceAccountName": "agent",
    },
    "toolboxes": [
        {"name": "db", "image": "team/db:1", "mode": "clone"},
        {"name": "win", "mode": "static", "staticIP": "10.0.0.9", "staticVMID": "vm-9", "vncPort": 5901},
    ],
}


def test_every_field_is_read() -> None:
    spec = parse_spec(_FULL)
    assert spec.suspend is True
    assert spec.snapshot_policy is SnapshotPolicy.MAIN_ONLY
    assert spec.hibernate_policy is HibernatePolicy.RELEASE
    assert (spec.node_pool, spec.node_name, spec.snapshot_compatibility_class) == (
        "gold",
        "node-a",
        "n2-cascade-lake-v1",
    )
    agent = spec.agent
    assert (agent.replicas, agent.image, agent.mode) == (2, "team/base:1", AgentMode.RUN)
    assert (agent.os, agent.backend, agent.conn_type) == (OperatingSystem.WINDOWS, Backend.FIRECRACKER, ConnType.RDP)
    assert (agent.network, agent.force_pull, agent.no_direct_io, agent.probe_port) == ("blue", True, True, 22)
    assert (agent.storage, agent.service_account_name) == ("100G", "agent")
    assert agent.resources.limits == {"cpu": 2, "memory": "4Gi"}
    assert agent.resources.requests == {"cpu": "1"}
    assert [claim.name for claim in agent.resources.claims] == ["gpu"]
    assert agent.env_from == ({"prefix": "A_", "secretRef": {"name": "s", "optional": True}},)
    db, win = spec.toolboxes
    assert (db.name, db.image, db.mode) == ("db", "team/db:1", ToolboxMode.CLONE)
    assert (win.mode, win.static_ip, win.static_vm_id, win.vnc_port) == (ToolboxMode.STATIC, "10.0.0.9", "vm-9", 5901)


@pytest.mark.scenario("S009")
@pytest.mark.parametrize("empty", ["", None, "left out"])
def test_what_is_empty_reads_as_the_default(empty: str | None) -> None:
    fields = {} if empty == "left out" else dict.fromkeys(("mode", "os", "backend", "storage", "resources"), empty)
    if empty == "":
        del fields["resources"]
    policies = {} if empty == "left out" else dict.fromkeys(("snapshotPolicy", "hibernatePolicy", "nodePool"), empty)
    spec = parse_spec({**policies, "agent": {"image": "x", **fields}, "toolboxes": [{"name": "a", **fields}]})
    assert spec.agent.mode is AgentMode.CLONE
    assert spec.toolboxes[0].mode is ToolboxMode.RUN
    for options in (spec.agent, spec.toolboxes[0]):
        assert options.os is OperatingSystem.LINUX
        assert options.backend is Backend.CLOUD_HYPERVISOR
        assert options.storage is None
        assert options.conn_type is None
    assert spec.snapshot_policy is SnapshotPolicy.ALWAYS
    assert spec.hibernate_policy is HibernatePolicy.RETAIN
    assert spec.node_pool == "default"
    assert spec.agent.replicas == 0


@pytest.mark.scenario("S010")
def test_the_class_is_serialised_only_when_it_is_set() -> None:
    with_class = parse_spec({"snapshotCompatibilityClass": "n2-cascade-lake-v1", "agent": {"image": "x"}})
    assert with_class.to_object()["snapshotCompatibilityClass"] == "n2-cascade-lake-v1"
    without = parse_spec({"snapshotCompatibilityClass": "", "agent": {"image": "x"}})
    assert "snapshotCompatibilityClass" not in without.to_object()


def test_what_was_written_is_read_back() -> None:
    spec = parse_spec(_FULL)
    assert spec.to_object() == _FULL
    assert parse_spec(spec.to_object()) == spec


@pytest.mark.parametrize(
    ("raw", "field", "message"),
    [
        (None, "spec", "is required"),
        ([], "spec", "must be an object"),
        ("x", "spec", "must be an object"),
        ({}, "spec.agent", "is required"),
        ({"agent": 1}, "spec.agent", "must be an object"),
        ({"agent": {}}, "spec.agent.image", "is required"),
        ({"agent": {"image": ""}}, "spec.agent.image", "must not be empty"),
        ({"agent": {"image": 5}}, "spec.agent.image", "must be a string"),
        ({"agent": {"image": "x", "mode": "fork"}}, "spec.agent.mode", "must be one of 'clone' or 'run'"),
        ({"agent": {"image": "x", "replicas": -1}}, "spec.agent.replicas", "must be at least 0"),
        ({"agent": {"image": "x", "replicas": 2**31}}, "spec.agent.replicas", "must be at most 2147483647"),
        ({"agent": {"image": "x", "replicas": "2"}}, "spec.agent.replicas", "must be an integer"),
        ({"agent": {"image": "x", "forcePull": 1}}, "spec.agent.forcePull", "must be true or false"),
        ({"agent": {"image": "x", "noDirectIO": "true"}}, "spec.agent.noDirectIO", "must be true or false"),
        ({"agent": {"image": "x", "probePort": 70000}}, "spec.agent.probePort", "must be at most 65535"),
        (
            {"agent": {"image": "x", "storage": "1e2.5"}},
            "spec.agent.storage",
            "must be a quantity such as 100Gi, 1.5G or 500m, not '1e2.5'",
        ),
        (
            {"agent": {"image": "x", "resources": {"limits": {"cpu": True}}}},
            "spec.agent.resources.limits.cpu",
            "must be a quantity: a string or a number",
        ),
        ({"agent": {"image": "x", "envFrom": [3]}}, "spec.agent.envFrom[0]", "must be an object"),
        ({"agent": {"image": "x"}, "toolboxes": 3}, "spec.toolboxes", "must be a list"),
        ({"agent": {"image": "x"}, "toolboxes": [{}]}, "spec.toolboxes[0].name", "is required"),
        (
            {"agent": {"image": "x"}, "toolboxes": [{"name": "a"}, {"name": "Bad_Name"}]},
            "spec.toolboxes[1].name",
            "must match ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        ),
        (
            {"agent": {"image": "x"}, "toolboxes": [{"name": "a", "vncPort": -1}]},
            "spec.toolboxes[0].vncPort",
            "must be at least 0",
        ),
        (
            {"agent": {"image": "x"}, "snapshotCompatibilityClass": "a" * 64},
            "spec.snapshotCompatibilityClass",
            "must not be longer than 63 characters",
        ),
    ],
)
def test_what_cannot_be_read_is_said_with_the_field(raw: Any, field: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(raw)
    assert (caught.value.field, caught.value.message) == (field, message)
    assert str(caught.value) == f"{field}: {message}"


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@given(_JSON)
def test_garbage_raises_nothing_but_a_spec_error(raw: Any) -> None:
    with pytest.raises(SpecError):
        parse_spec(raw)


@given(st.sampled_from(sorted(_FULL)), st.sampled_from(sorted(_FULL["agent"])), _JSON)
def test_garbage_in_one_field_raises_nothing_but_a_spec_error(top: str, nested: str, garbage: Any) -> None:
    for raw in ({**_FULL, top: garbage}, {**_FULL, "agent": {**_FULL["agent"], nested: garbage}}):
        try:
            spec = parse_spec(raw)
        except SpecError:
            continue
        assert parse_spec(spec.to_object()) == spec


def test_unknown_fields_are_ignored() -> None:
    assert parse_spec({"agent": {"image": "x", "gpu": 1}, "later": {}}) == parse_spec({"agent": {"image": "x"}})


def test_w11_a_spec_is_frozen() -> None:
    spec = parse_spec(_FULL)
    with pytest.raises(ValidationError):
        spec.suspend = False  # type: ignore[misc]
    with pytest.raises(ValidationError):
        spec.agent.image = "y"  # type: ignore[misc]


def test_reading_does_not_change_what_was_read() -> None:
    raw = {"suspend": None, "agent": {"image": "x", "os": ""}}
    parse_spec(raw)
    assert raw == {"suspend": None, "agent": {"image": "x", "os": ""}}


def test_python_names_build_the_same_spec() -> None:
    built = CocoonSetSpec.model_validate({"node_pool": "gold", "agent": {"image": "x", "no_direct_io": True}})
    assert built == parse_spec({"nodePool": "gold", "agent": {"image": "x", "noDirectIO": True}})


def test_a_status_is_read_with_its_digests() -> None:
    status = CocoonSetStatus.model_validate(
        {
            "observedGeneration": 3,
            "phase": "Suspended",
            "desiredAgents": 1,
            "agents": [{"slot": 0, "role": "main", "vmID": "v1", "snapshotDigest": "sha256:1"}],
            "toolboxes": [{"name": "db", "connType": "vnc", "vncPort": 5901, "snapshotDigest": "sha256:2"}],
        }
    )
    assert (status.agents[0].vm_id, status.agents[0].snapshot_digest) == ("v1", "sha256:1")
    assert (status.toolboxes[0].conn_type, status.toolboxes[0].snapshot_digest) == (ConnType.VNC, "sha256:2")
    assert status.ready_agents == 0
