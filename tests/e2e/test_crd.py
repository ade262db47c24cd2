"""What a real API server makes of the CRDs: defaults, refusals that name the field, immutability, printed columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from subprocess import CompletedProcess
from typing import Any

import pytest

from cocoon_devkit.cluster import Cluster
from cocoon_operator.api import keys, quantity
from cocoon_operator.api.cocoonset import parse_spec


class Api:
    """kubectl in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def run(self, *args: str, stdin: str | None = None, check: bool = True) -> CompletedProcess[str]:
        return self._cluster.kubectl("-n", self._namespace, *args, stdin=stdin, check=check)

    def apply(self, obj: Mapping[str, Any], *options: str) -> dict[str, Any]:
        """Apply an object and return it as it is stored."""
        return _json(self.run("apply", "-o", "json", "-f", "-", *options, stdin=json.dumps(obj)))

    def refusal(self, obj: Mapping[str, Any]) -> str:
        """Apply an object that must be refused and return the message."""
        return _refused(self.run("apply", "-f", "-", stdin=json.dumps(obj), check=False))

    def patch(self, kind: str, change: Mapping[str, Any], *options: str) -> dict[str, Any]:
        return _json(self.run("patch", kind, "demo", "--type=merge", "-p", json.dumps(change), "-o", "json", *options))

    def patch_refusal(self, kind: str, change: Mapping[str, Any]) -> str:
        return _refused(self.run("patch", kind, "demo", "--type=merge", "-p", json.dumps(change), check=False))

    def printed(self, *args: str) -> list[list[str]]:
        """What ``kubectl get`` prints, row by row, word by word."""
        return [line.split() for line in self.run("get", *args).stdout.splitlines()]


def _json(done: CompletedProcess[str]) -> dict[str, Any]:
    obj: dict[str, Any] = json.loads(done.stdout)
    return obj


def _refused(done: CompletedProcess[str]) -> str:
    assert done.returncode != 0, done.stdout
    return done.stderr


@pytest.fixture
def api(cluster: Cluster, namespace: str) -> Api:
    return Api(cluster, namespace)


@pytest.fixture
def unstored(cluster: Cluster) -> Api:
    """For tests that leave nothing behind: they need no namespace of their own."""
    return Api(cluster, "default")


def cocoon_set(agent: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_SET,
        "metadata": {"name": "demo"},
        "spec": {"agent": {"image": "team/base:1", **(agent or {})}, **spec},
    }


def hibernation(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_HIBERNATION,
        "metadata": {"name": "demo"},
        "spec": {"podRef": {"name": "demo-0"}, "desire": "Hibernate", **spec},
    }


_RELEASE_MESSAGE = "hibernatePolicy=release requires agent.replicas=0 and no toolboxes"
_CLASS_MESSAGE = "snapshotCompatibilityClass is immutable once set"


@pytest.mark.scenario("S011")
def test_release_is_for_a_main_agent_alone(api: Api) -> None:
    assert _RELEASE_MESSAGE in api.refusal(cocoon_set({"replicas": 1}, hibernatePolicy="release"))
    toolboxes = [{"name": "db", "image": "team/db:1"}]
    assert _RELEASE_MESSAGE in api.refusal(cocoon_set(hibernatePolicy="release", toolboxes=toolboxes))

    api.apply(cocoon_set({"replicas": 0}, hibernatePolicy="release", toolboxes=[]))
    assert _RELEASE_MESSAGE in api.patch_refusal("cset", {"spec": {"agent": {"replicas": 1}}})
    assert _RELEASE_MESSAGE in api.patch_refusal("cset", {"spec": {"toolboxes": toolboxes}})
    api.patch("cset", {"spec": {"hibernatePolicy": "retain", "agent": {"replicas": 1}, "toolboxes": toolboxes}})


@pytest.mark.scenario("S012", "CS-53", "V64")
def test_the_class_can_be_added_once(api: Api) -> None:
    api.apply(cocoon_set())
    api.patch("cset", {"spec": {"snapshotCompatibilityClass": "n2-cascade-lake-v1"}})
    assert _CLASS_MESSAGE in api.patch_refusal("cset", {"spec": {"snapshotCompatibilityClass": "n2-ice-lake-v1"}})
    assert _CLASS_MESSAGE in api.patch_refusal("cset", {"spec": {"snapshotCompatibilityClass": None}})
    stored = api.patch("cset", {"spec": {"suspend": True}})
    assert stored["spec"]["snapshotCompatibilityClass"] == "n2-cascade-lake-v1"


@pytest.mark.scenario("S012")
def test_a_class_that_was_set_to_nothing_stays_nothing(api: Api) -> None:
    api.apply(cocoon_set(snapshotCompatibilityClass=""))
    assert _CLASS_MESSAGE in api.patch_refusal("cset", {"spec": {"snapshotCompatibilityClass": "n2-ice-lake-v1"}})


@pytest.mark.scenario("S013")
def test_the_pod_of_a_hibernation_cannot_be_changed_and_its_desire_can(api: Api) -> None:
    api.apply(hibernation())
    assert "spec.podRef is immutable" in api.patch_refusal("ch", {"spec": {"podRef": {"name": "demo-1"}}})
    assert api.patch("ch", {"spec": {"desire": "Wake"}})["spec"] == {"podRef": {"name": "demo-0"}, "desire": "Wake"}


def _toolbox(**fields: Any) -> dict[str, Any]:
    return cocoon_set(toolboxes=[{"name": "db", **fields}])


@pytest.mark.scenario("S014")
@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (cocoon_set({"image": ""}), "spec.agent.image"),
        (cocoon_set({"image": None}), "spec.agent.image"),
        (_toolbox(name="Bad_Name"), "spec.toolboxes[0].name"),
        (_toolbox(name=""), "spec.toolboxes[0].name"),
        (_toolbox(name=None), "spec.toolboxes[0].name"),
        (cocoon_set({"probePort": 70000}), "spec.agent.probePort"),
        (_toolbox(vncPort=-1), "spec.toolboxes[0].vncPort"),
        (cocoon_set(snapshotCompatibilityClass="a" * 64), "spec.snapshotCompatibilityClass"),
        (cocoon_set(snapshotCompatibilityClass="-a"), "spec.snapshotCompatibilityClass"),
        (cocoon_set({"replicas": -1}), "spec.agent.replicas"),
        (cocoon_set({"replicas": 2**31}), "spec.agent.replicas"),
        (cocoon_set({"replicas": "1"}), "spec.agent.replicas"),
        (cocoon_set({"mode": "fork"}), "spec.agent.mode"),
        (cocoon_set({"os": "freebsd"}), "spec.agent.os"),
        (cocoon_set({"backend": "qemu"}), "spec.agent.backend"),
        (cocoon_set({"connType": "telnet"}), "spec.agent.connType"),
        (_toolbox(mode="fork"), "spec.toolboxes[0].mode"),
        (cocoon_set(snapshotPolicy="sometimes"), "spec.snapshotPolicy"),
        (cocoon_set(hibernatePolicy="relase"), "spec.hibernatePolicy"),
        (cocoon_set({"storage": "100GB"}), "spec.agent.storage"),
        (cocoon_set({"storage": 1.5}), "spec.agent.storage"),
        (cocoon_set({"resources": {"limits": {"cpu": "many"}}}), "spec.agent.resources.limits.cpu"),
        (cocoon_set({"resources": {"claims": [{"name": "a"}, {"name": "a"}]}}), "spec.agent.resources.claims[1]"),
        (hibernation(desire="Nap"), "spec.desire"),
        (hibernation(podRef={"name": ""}), "spec.podRef.name"),
        (hibernation(podRef={}), "spec.podRef.name"),
        (hibernation(podRef=None), "spec.podRef"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_object_is_refused_with_the_field(unstored: Api, obj: dict[str, Any], field: str) -> None:
    assert field in unstored.refusal(obj)


@pytest.mark.scenario("S015")
def test_minimal_yaml_is_stored_with_its_defaults(api: Api) -> None:
    stored = api.apply(cocoon_set())
    assert stored["spec"] == {
        "snapshotPolicy": "always",
        "hibernatePolicy": "retain",
        "nodePool": "default",
        "agent": {
            "image": "team/base:1",
            "mode": "clone",
            "os": "linux",
            "backend": "cloud-hypervisor",
            "replicas": 0,
        },
    }
    assert stored["metadata"]["generation"] == 1
    assert parse_spec(stored["spec"]) == parse_spec(cocoon_set()["spec"])


@pytest.mark.scenario("S015")
def test_a_toolbox_is_stored_with_its_defaults(api: Api) -> None:
    agent: dict[str, Any] = {"envFrom": [{"secretRef": {}}]}
    box = {"name": "db", "image": "team/db:1"}
    spec = api.apply(cocoon_set(agent, toolboxes=[box]))["spec"]
    assert spec["toolboxes"] == [{**box, "mode": "run", "os": "linux", "backend": "cloud-hypervisor"}]
    assert spec["agent"]["envFrom"] == [{"secretRef": {"name": ""}}]


_ACCEPTED: Sequence[dict[str, Any]] = [
    cocoon_set({"storage": 107374182400}),
    cocoon_set({"storage": "1.5Gi", "resources": {"limits": {"cpu": 2, "memory": "4Gi"}, "requests": {"cpu": "500m"}}}),
    cocoon_set({"connType": "rdp", "probePort": 65535, "forcePull": False, "noDirectIO": True, "network": ""}),
    cocoon_set({"envFrom": [{}, {"prefix": "A_", "configMapRef": {"name": "c", "optional": True}}]}),
    cocoon_set(
        toolboxes=[
            {"name": "a", "image": "team/db:1"},
            {"name": "b", "mode": "static", "staticIP": "10.0.0.9", "staticVMID": "rack-1", "vncPort": 5901},
        ]
    ),
    cocoon_set(
        toolboxes=[{"name": "a" * 63, "image": "x"}], nodeName="node-a", nodePool="", snapshotCompatibilityClass=""
    ),
    cocoon_set({"serviceAccountName": "", "resources": {"claims": [{"name": "gpu", "request": "one"}]}}, suspend=True),
]


@pytest.mark.parametrize("obj", _ACCEPTED)
def test_what_the_schema_lets_through_is_stored_whole_and_can_be_read(unstored: Api, obj: dict[str, Any]) -> None:
    stored = unstored.apply(obj, "--dry-run=server")["spec"]
    assert parse_spec(stored) == parse_spec(obj["spec"])
    for field, value in obj["spec"]["agent"].items():
        assert stored["agent"][field] == value


@pytest.mark.scenario("S016")
def test_what_kubectl_get_prints(api: Api) -> None:
    api.apply(cocoon_set())
    api.apply(hibernation())
    api.patch("cset", {"status": {"phase": "Running", "readyAgents": 0, "desiredAgents": 1}}, "--subresource=status")
    api.patch("ch", {"status": {"phase": "Hibernating"}}, "--subresource=status")
    for name in ("cset", "cocoonset", "cocoonsets"):
        header, row = api.printed(name)
        assert header == ["NAME", "PHASE", "READY", "DESIRED", "AGE"]
        assert row[:4] == ["demo", "Running", "0", "1"]
    for name in ("ch", "cocoonhibernation", "cocoonhibernations"):
        header, row = api.printed(name)
        assert header == ["NAME", "POD", "DESIRE", "PHASE", "AGE"]
        assert row[:4] == ["demo", "demo-0", "Hibernate", "Hibernating"]
    assert {row[0] for row in api.printed("cocoon", "--no-headers") if row} == {
        "cocoonset.cocoonset.cocoonstack.io/demo",
        "cocoonhibernation.cocoonset.cocoonstack.io/demo",
    }


@pytest.mark.scenario("S016")
def test_the_inherited_short_name_reaches_component_statuses_instead(api: Api) -> None:
    api.apply(cocoon_set())
    done = api.run("get", "cs")
    assert "demo" not in [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert 'short name "cs" could also match lower priority resource cocoonsets' in done.stderr


@pytest.mark.scenario("S017")
def test_w61_an_object_without_a_spec_is_refused(unstored: Api) -> None:
    for obj in (hibernation(), cocoon_set()):
        del obj["spec"]
        assert "spec: Required value" in unstored.refusal(obj)


def test_status_is_a_subresource_and_keeps_only_what_the_schema_knows(api: Api) -> None:
    api.apply(cocoon_set())
    status = {
        "observedGeneration": 1,
        "phase": "Suspended",
        "agents": [{"slot": 0, "role": "main", "vmName": "vk-ns-demo-0", "snapshotDigest": "sha256:1"}],
        "toolboxes": [{"name": "db", "snapshotDigest": "sha256:2"}],
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "AgentsNotReady",
                "message": "",
                "lastTransitionTime": "2026-11-30T10:00:00Z",
                "observedGeneration": 1,
            }
        ],
    }
    assert "status" not in api.patch("cset", {"status": status})
    stored = api.patch("cset", {"status": {**status, "later": 1}, "spec": {"suspend": True}}, "--subresource=status")
    assert stored["status"] == status
    assert "suspend" not in stored["spec"]
    assert stored["metadata"]["generation"] == 1


def test_kubectl_explain_tells_what_a_field_means(unstored: Api) -> None:
    assert "Number of sub-agents" in unstored.run("explain", "cocoonset.spec.agent.replicas").stdout


_QUANTITIES = [
    *("100Gi", "1024Gi", "1024Mi", "1.5Gi", "0.5Gi", "1000Mi", "1.1Gi", "100G", "100000000000", "107374182400"),
    *("1048576", "1000k", "1000", "1e3", "12e6", "0.5", "0", "0Gi", "+5Gi", "05Gi", "008Gi", "1E3", "1E4", "1e03"),
    *("1.500", "5.", ".5", "1.5", "1.0Gi", "8Gi", "99999Gi", "100000Gi", "+5Ei", "10Ei", "0.1Ki", "1023Ki", "0.1n"),
    *("1e-9", "1e-10", "10e-1", "100e0", "1e21", "1E", "999E", "123456789012345678", "1234567890123456789", "1.0001"),
    *("1.000000001", "1.0000000001", "12345678901234567890.123456789123", "0.001Ti", "1e300"),
]


@pytest.mark.scenario("S044")
def test_the_canonical_text_is_the_one_of_kubernetes(unstored: Api) -> None:
    volumes = [{"name": f"v{index}", "emptyDir": {"sizeLimit": text}} for index, text in enumerate(_QUANTITIES)]
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "quantities"},
        "template": {"spec": {"containers": [{"name": "c", "image": "x"}], "volumes": volumes}},
    }
    stored = _json(unstored.run("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(template)))
    written = [volume["emptyDir"]["sizeLimit"] for volume in stored["template"]["spec"]["volumes"]]
    assert [quantity.canonical(text) for text in _QUANTITIES] == written
