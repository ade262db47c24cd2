"""What an older CRD let in goes on working: it can be written to, suspended, repaired and deleted (CS-3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asking import Asking, create, delete, patch
from candidates import Obj, cocoon_set, hibernation
from older_api import older_api

from cocoon_devkit.cluster import Cluster
from cocoon_operator.api import keys

FINALIZERS = {"metadata": {"finalizers": ["example.com/held"]}}
DIGEST = "team/base@sha256:" + "a" * 64


@pytest.fixture(scope="module")
def older(cluster: Cluster, ask: Asking) -> Iterator[dict[str, Obj]]:
    """One stored object for each rule that it breaks, by name; nothing of them is left."""
    kept: dict[str, Obj] = {}
    with older_api(cluster):
        for name, spec in SPECS.items():
            obj = {**cocoon_set("default", name=name), "spec": spec}
            obj["metadata"]["finalizers"] = ["example.com/held"]
            kept[name] = ask.allows(create({key: value for key, value in obj.items() if value is not None}).stored())
        without = {**hibernation("default", "older"), "spec": None}
        kept["hibernation"] = ask.allows(create(without).stored())
    yield kept
    for obj in kept.values():
        ask.allows(patch(obj, {"metadata": {"finalizers": None}}).stored())
        ask.allows(delete(obj).stored())


def _set(agent: Obj | None = None, *toolboxes: Obj) -> Obj:
    return {"agent": {"image": "team/base:1", **(agent or {})}, "toolboxes": list(toolboxes)}


SPECS: dict[str, Any] = {
    "no-spec": None,
    "windows": _set({"backend": "firecracker", "mode": "run", "os": "windows"}),
    "url": _set({"backend": "firecracker", "mode": "run", "image": "https://example.com/x"}),
    "clone": _set({"backend": "firecracker"}),
    "digest": _set({"image": DIGEST}),
    "number": _set(None, {"name": "1", "image": "x"}),
    "twice": _set(None, {"name": "a", "image": "x"}, {"name": "a", "image": "y"}),
    "long": _set(None, {"name": "a" * 64, "image": "x"}),
    "static": _set(None, {"name": "a", "mode": "static"}),
    "no-image": _set(None, {"name": "a"}),
    "backend": _set(None, {"name": "a", "image": "x", "mode": "run", "backend": "firecracker"}),
}
WITH_SPEC = [name for name, spec in SPECS.items() if spec is not None]


@pytest.mark.scenario("CS-3", "V58", "V65")
@pytest.mark.parametrize("name", SPECS)
def test_what_an_operator_writes_is_never_refused(ask: Asking, older: dict[str, Obj], name: str) -> None:
    obj = older[name]
    ask.allows(
        patch(obj, {"metadata": {"annotations": {keys.DELETE_VM_NAMES: "vk-a-0"}, "finalizers": [keys.SET_FINALIZER]}})
    )
    ask.allows(patch(obj, {"metadata": {"finalizers": None}}))
    status = {"phase": "Failed", "observedGeneration": 1}
    assert ask.allows(patch(obj, {"status": status}, "status"))["status"] == status


@pytest.mark.scenario("CS-1")
@pytest.mark.parametrize("name", SPECS)
def test_it_can_be_deleted(ask: Asking, older: dict[str, Obj], name: str) -> None:
    ask.allows(delete(older[name]))


@pytest.mark.scenario("CS-3", "V58")
@pytest.mark.parametrize("name", WITH_SPEC)
def test_it_can_be_suspended_and_moved(ask: Asking, older: dict[str, Obj], name: str) -> None:
    ask.allows(patch(older[name], {"spec": {"suspend": True, "nodeName": "n2", "snapshotPolicy": "never"}}))


@pytest.mark.scenario("CS-3", "V59")
@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("windows", {"agent": {"replicas": 1}}, "spec.agent.os"),
        ("url", {"agent": {"replicas": 1}}, "spec.agent.image"),
        ("clone", {"agent": {"replicas": 1}}, "spec.agent.mode"),
        ("digest", {"agent": {"replicas": 1}}, "spec.agent.image"),
        ("number", {"toolboxes": [{"name": "1", "image": "y"}]}, "spec.toolboxes[0].name"),
        ("twice", {"toolboxes": [{"name": "b", "image": "x"}, {"name": "b", "image": "y"}]}, "spec.toolboxes"),
        ("long", {"toolboxes": [{"name": "a" * 64, "image": "y"}]}, "spec.toolboxes[0].name"),
        ("static", {"toolboxes": [{"name": "a", "mode": "static", "os": "macos"}]}, "spec.toolboxes[0].staticIP"),
        ("no-image", {"toolboxes": [{"name": "b"}]}, "spec.toolboxes[0].image"),
        ("backend", {"toolboxes": [{"name": "b", "image": "x", "backend": "firecracker"}]}, "spec.toolboxes"),
        ("backend", {"agent": {"backend": "firecracker"}}, "spec.agent.mode"),
    ],
)
def test_a_change_of_what_is_wrong_has_to_mend_it(
    ask: Asking, older: dict[str, Obj], name: str, change: Obj, field: str
) -> None:
    refusal = ask.refuses(patch(older[name], {"spec": change}))
    assert (refusal.code, refusal.reason) == (422, "Invalid")
    assert field in refusal.fields
    ask.allows(patch(older[name], {"spec": {"agent": {"image": "x", "mode": "run", "os": "linux"}, "toolboxes": None}}))


@pytest.mark.scenario("CS-3", "CS-41")
def test_a_toolbox_with_another_backend_may_stay_beside_changes(ask: Asking, older: dict[str, Obj]) -> None:
    [box] = SPECS["backend"]["toolboxes"]
    ask.allows(patch(older["backend"], {"spec": {"agent": {"replicas": 1}}}))
    ask.allows(patch(older["backend"], {"spec": {"toolboxes": [{**box, "image": "y"}, {"name": "b", "image": "x"}]}}))


@pytest.mark.scenario("CH-1", "CH-2", "CH-9")
def test_w61_a_hibernation_without_a_spec_is_refused_and_an_older_one_can_be_let_go(
    ask: Asking, older: dict[str, Obj]
) -> None:
    stored = older["hibernation"]
    ask.allows(patch(stored, {"metadata": {"finalizers": ["example.com/held"]}}))
    assert ask.allows(patch(stored, {"status": {"phase": "Failed"}}, "status"))["status"] == {"phase": "Failed"}
    ask.allows(patch(stored, {"spec": {"podRef": {"name": "older"}, "desire": "Wake"}}))
    refusal = ask.refuses(create({**hibernation("default", "new"), "spec": None}))
    assert refusal.message.endswith(" is invalid: spec: Required value: must be given")
    for spec in ("demo-0", {"podRef": "demo-0", "desire": "Wake"}, {"podRef": {"name": ""}, "desire": "Wake"}):
        assert ask.refuses(create({**hibernation("default", "new"), "spec": spec})).code == 422
