"""What the agent reads from a pod: role, policy, image, inputs (contract 0.4, R0.8, R2.4, 4.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_devkit.agent import podview, wire
from cocoon_operator.api.snapshot import SnapshotReferenceError, parse_reference

Obj = dict[str, Any]


def pod(notes: dict[str, str] | None = None, owner: str = "demo", **status: Any) -> Obj:
    references = [{"kind": "CocoonSet", "name": owner}] if owner else []
    return {
        "metadata": {"namespace": "ns", "name": "p", "uid": "1", "annotations": notes, "ownerReferences": references},
        "spec": {"containers": [{"name": "agent"}]},
        "status": status,
    }


@pytest.mark.scenario("N162")
@pytest.mark.parametrize(
    ("vm_name", "role"),
    [
        ("vk-ns-demo-0", "main"),
        ("vk-ns-demo-1", "sub-agent"),
        ("vk-ns-demo-12", "sub-agent"),
        ("vk-ns-demo-db", "toolbox"),
        ("vk-ns-demo-db-0", "toolbox"),
        ("vk-ns-demo-", "toolbox"),
        ("vk-ns-demo--1", "toolbox"),
        ("vk-other-demo-0", "toolbox"),
        ("vk-ns-demo-0-505043", "toolbox"),
        ("", "toolbox"),
    ],
)
def test_the_role_is_what_follows_the_owners_prefix(vm_name: str, role: str) -> None:
    assert podview.role(pod({wire.VM_NAME: vm_name})) == role


@pytest.mark.scenario("N162")
def test_a_pod_without_an_owner_is_a_toolbox() -> None:
    assert podview.role(pod({wire.VM_NAME: "vk-ns-demo-0"}, owner="")) == "toolbox"


@pytest.mark.scenario("N162", "N163")
@pytest.mark.parametrize(
    ("policy", "slots"),
    [("always", ["0", "1", "db"]), ("", ["0", "1", "db"]), ("main-only", ["0"]), ("never", []), ("odd", [])],
)
def test_latest_is_pushed_by_policy_and_role(policy: str, slots: list[str]) -> None:
    wanted = [
        slot
        for slot in ("0", "1", "db")
        if podview.wants_latest(pod({wire.VM_NAME: f"vk-ns-demo-{slot}", wire.SNAPSHOT_POLICY: policy}))
    ]
    assert wanted == slots


@pytest.mark.scenario("N031")
@pytest.mark.parametrize(
    ("ref", "name", "split"),
    [
        ("team/base:v2", "team/base:v2", ("team/base", "v2")),
        ("team/base", "team/base", ("team/base", "latest")),
        ("team/base:latest", "team/base", ("team/base", "latest")),
        ("ghcr.io/x/y:24.04", "ghcr.io/x/y:24.04", ("ghcr.io/x/y", "24.04")),
    ],
)
def test_the_tag_is_part_of_the_local_name_unless_it_is_latest(ref: str, name: str, split: tuple[str, str]) -> None:
    assert podview.local_image_name(ref) == name
    assert podview.split_ref(ref) == split


@pytest.mark.scenario("N075", "N094")
@pytest.mark.parametrize("value", ["True", "TRUE", "1", "yes", "", " true"])
def test_a_flag_is_true_only_for_the_exact_text(value: str) -> None:
    assert not podview.flag(pod({wire.HIBERNATE: value}), wire.HIBERNATE)
    assert podview.flag(pod({wire.HIBERNATE: "true"}), wire.HIBERNATE)
    assert not podview.flag(pod(), wire.KEEP_SNAPSHOT)


@pytest.mark.scenario("N197")
@pytest.mark.parametrize(("text", "value"), [("7", 7), ("-1", -1), ("", 0), ("x", 0), ("1.5", 0), ("+3", 3)])
def test_a_stamp_that_cannot_be_read_is_zero(text: str, value: int) -> None:
    assert podview.stamp(pod({wire.GENERATION: text})) == value


@pytest.mark.scenario("N029")
@pytest.mark.parametrize(("mode", "read"), [("run", "run"), ("clone", "clone"), ("weird", "clone"), ("", "clone")])
def test_an_unknown_mode_is_clone(mode: str, read: str) -> None:
    assert podview.request_of(pod({wire.MODE: mode})).mode == read


@pytest.mark.scenario("N034")
def test_the_size_of_a_vm_prefers_limits_and_whole_cpus() -> None:
    body = pod({wire.STORAGE: "100Gi"})
    body["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": "1500m", "memory": "4Gi"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }
    request = podview.request_of(body)
    assert (request.cpu, request.memory, request.storage) == (2, 4 << 30, 100 << 30)


@pytest.mark.scenario("N176", "N177")
@pytest.mark.parametrize(
    ("state", "live"), [({"running": {}}, True), ({}, True), ({"waiting": {}}, False), ({"terminated": {}}, False)]
)
def test_a_container_lives_when_it_neither_waits_nor_ended(state: Obj, live: bool) -> None:
    assert podview.has_live_container(pod(containerStatuses=[{"name": "agent", "state": state}])) is live
    assert not podview.has_live_container(pod(phase="Running"))


@pytest.mark.scenario("N057", "N069")
@given(st.sampled_from(sorted(wire.AGENT_KEYS)), st.text())
def test_what_the_agent_writes_is_no_news_for_it(key: str, value: str) -> None:
    assert podview.inputs(pod({key: value})) == podview.inputs(pod({}))


@pytest.mark.scenario("N069")
@pytest.mark.parametrize("key", [wire.HIBERNATE, wire.GENERATION, wire.KEEP_SNAPSHOT, "example.invalid/anything"])
def test_what_others_write_is_news(key: str) -> None:
    assert podview.inputs(pod({key: "true"})) != podview.inputs(pod({}))


@pytest.mark.scenario("N057")
def test_the_framework_compares_labels_annotations_and_containers_but_no_status() -> None:
    left, right = pod({"a": "1"}, phase="Pending"), pod({"a": "1"}, phase="Running")
    assert podview.same_for_provider(left, right)
    right["metadata"]["labels"] = {"colour": "blue"}
    assert not podview.same_for_provider(left, right)


@pytest.mark.scenario("N054")
@given(st.dictionaries(st.text(), st.text(), max_size=5), st.text(), st.text())
def test_no_annotation_makes_reading_fail(notes: dict[str, str], key: str, cpu: str) -> None:
    body = pod({**notes, wire.STORAGE: key, wire.PROBE_PORT: key, wire.GENERATION: key})
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": cpu, "memory": key}}
    podview.request_of(body)
    podview.stamp(body)


@given(st.text(alphabet="aZ0._-:/@ \n", max_size=12))
@pytest.mark.scenario("N156")
def test_agent_and_package_agree_on_what_is_a_reference(text: str) -> None:
    """Two spellings of one grammar (R5.2): the agent's own, and the one that users of the package have."""
    try:
        reference = parse_reference(text)
    except SnapshotReferenceError:
        assert not podview.is_ref(text)
    else:
        assert podview.is_ref(text)
        assert podview.split_ref(text) == (reference.repo, reference.tag)
