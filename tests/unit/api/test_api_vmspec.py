"""The description of a VM: spec to annotations and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api import keys
from cocoon_operator.api.cocoonset import CocoonSetSpec, parse_spec
from cocoon_operator.api.marks import apply
from cocoon_operator.api.vmspec import VMSpec

_FULL = VMSpec(
    name="vk-ns-demo-1",
    image="team/base:1",
    mode="clone",
    os="linux",
    storage="100Gi",
    network="blue",
    snapshot_policy="main-only",
    managed=True,
    force_pull=True,
    no_direct_io=True,
    fork_from="vk-ns-demo-0",
    conn_type="vnc",
    backend="cloud-hypervisor",
    probe_port=22,
)


def _spec(**fields: Any) -> CocoonSetSpec:
    return parse_spec({"agent": {"image": "x"}, **fields})


@pytest.mark.scenario("S030")
def test_a_full_description_has_exactly_the_keys_of_the_contract() -> None:
    assert _FULL.to_annotations() == {
        "vm.cocoonstack.io/name": "vk-ns-demo-1",
        "cocoonset.cocoonstack.io/image": "team/base:1",
        "cocoonset.cocoonstack.io/mode": "clone",
        "cocoonset.cocoonstack.io/os": "linux",
        "cocoonset.cocoonstack.io/storage": "100Gi",
        "cocoonset.cocoonstack.io/network": "blue",
        "cocoonset.cocoonstack.io/snapshot-policy": "main-only",
        "cocoonset.cocoonstack.io/managed": "true",
        "cocoonset.cocoonstack.io/force-pull": "true",
        "vm.cocoonstack.io/no-direct-io": "true",
        "vm.cocoonstack.io/fork-from": "vk-ns-demo-0",
        "vm.cocoonstack.io/conn-type": "vnc",
        "vm.cocoonstack.io/backend": "cloud-hypervisor",
        "vm.cocoonstack.io/probe-port": "22",
    }
    assert VMSpec.from_annotations(_FULL.to_annotations()) == _FULL


_TEXTS = {
    field: st.text(max_size=20)
    for field in (
        "name",
        "image",
        "mode",
        "os",
        "storage",
        "network",
        "snapshot_policy",
        "fork_from",
        "conn_type",
        "backend",
    )
}


@pytest.mark.scenario("S030")
@given(
    st.builds(
        VMSpec,
        **_TEXTS,
        managed=st.booleans(),
        force_pull=st.booleans(),
        no_direct_io=st.booleans(),
        probe_port=st.integers(0, 65535),
    )
)
def test_what_was_written_is_read_back(spec: VMSpec) -> None:
    annotations = spec.to_annotations()
    assert VMSpec.from_annotations(annotations) == spec
    assert all(annotations.values())


@given(st.dictionaries(st.one_of(st.text(), st.sampled_from(sorted(_FULL.to_annotations()))), st.text()))
def test_foreign_annotations_are_read_without_an_error(annotations: dict[str, str]) -> None:
    spec = VMSpec.from_annotations(annotations)
    assert VMSpec.from_annotations(spec.to_annotations()) == spec


@pytest.mark.parametrize("port", ["", "x", "-1", "1_0", " 1", "99999999999999999999"])
def test_a_malformed_port_reads_as_none(port: str) -> None:
    assert VMSpec.from_annotations({keys.PROBE_PORT: port}).probe_port == 0


@pytest.mark.scenario("S031")
def test_every_field_of_an_agent_is_carried() -> None:
    spec = _spec(
        snapshotPolicy="never",
        agent={
            "image": "team/win:1",
            "mode": "run",
            "os": "windows",
            "backend": "firecracker",
            "connType": "rdp",
            "network": "blue",
            "forcePull": True,
            "noDirectIO": True,
            "storage": "100G",
            "probePort": 3389,
        },
    )
    assert VMSpec.for_agent(spec, "vk-ns-demo-0") == VMSpec(
        name="vk-ns-demo-0",
        image="team/win:1",
        mode="run",
        os="windows",
        storage="100G",
        network="blue",
        snapshot_policy="never",
        managed=True,
        force_pull=True,
        no_direct_io=True,
        conn_type="rdp",
        backend="firecracker",
        probe_port=3389,
    )


@pytest.mark.scenario("S032")
def test_an_agent_with_only_an_image_gets_the_defaults() -> None:
    assert VMSpec.for_agent(_spec(), "vk-ns-demo-0") == VMSpec(
        name="vk-ns-demo-0",
        image="x",
        mode="clone",
        os="linux",
        snapshot_policy="always",
        managed=True,
        backend="cloud-hypervisor",
    )


def test_a_sub_agent_carries_what_it_is_forked_from() -> None:
    assert VMSpec.for_agent(_spec(), "vk-ns-demo-1", "vk-ns-demo-0").fork_from == "vk-ns-demo-0"


@pytest.mark.scenario("S033")
@pytest.mark.parametrize(("mode", "managed"), [("run", True), ("clone", True), ("static", False)])
def test_a_toolbox_is_managed_unless_it_is_static(mode: str, managed: bool) -> None:
    spec = _spec(snapshotPolicy="main-only", toolboxes=[{"name": "db", "image": "i", "mode": mode}])
    described = VMSpec.for_toolbox(spec, spec.toolboxes[0], "vk-ns-demo-db")
    assert (described.managed, described.mode, described.snapshot_policy) == (managed, mode, "main-only")
    assert (keys.MANAGED in described.to_annotations()) is managed


@pytest.mark.scenario("S034")
def test_empty_fields_leave_existing_annotations_alone() -> None:
    existing = {keys.NETWORK: "blue", keys.MANAGED: "true", "other": "x"}
    written = VMSpec(name="vk-ns-demo-0", managed=False).to_annotations()
    assert written == {keys.VM_NAME: "vk-ns-demo-0"}
    assert apply(existing, written) == {**existing, keys.VM_NAME: "vk-ns-demo-0"}
    assert VMSpec(managed=True).to_annotations() == {keys.MANAGED: "true"}


@pytest.mark.parametrize(("storage", "text"), [(None, ""), ("0", "0"), (0, "0")])
def test_no_storage_writes_nothing_and_zero_writes_zero(storage: str | int | None, text: str) -> None:
    assert VMSpec.for_agent(_spec(agent={"image": "x", "storage": storage}), "v").storage == text
