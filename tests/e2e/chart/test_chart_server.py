"""What the chart renders is what an API server takes: no field it does not know, no value it refuses, no warning."""

from __future__ import annotations

import json

import pytest
import yaml
from monitoring import definitions
from rendered import VALUES, Obj

from cocoon_devkit.chart import CHART, Chart
from cocoon_devkit.chartschema import SCHEMA, published_types, render, with_types
from cocoon_devkit.controlplane import ControlPlane

PROMETHEUS: Obj = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
RELABELING: Obj = {"sourceLabels": ["__name__"], "regex": "python_.*", "action": "drop"}
SCRAPING: Obj = {
    "enabled": True,
    "labels": {"release": "prometheus"},
    "interval": "30s",
    "scrapeTimeout": "10s",
    "relabelings": [RELABELING],
    "metricRelabelings": [RELABELING],
}
EVERYTHING: Obj = {
    "registry": "registry.example.com:5000/cocoon",
    "registryCredentialsSecret": "snapshots-login",
    "registryCA": {"configMap": "authorities"},
    "registryClientCert": {"secret": "snapshots-identity"},
    "google": {"credentialsSecret": "google-key"},
    "image": {"digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "pull"}],
    "serviceAccount": {"annotations": {"iam.gke.io/gcp-service-account": "a@b.iam.gserviceaccount.com"}},
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "service": {"annotations": {"prometheus.io/scrape": "true"}},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [PROMETHEUS],
        "egressCIDRs": ["10.0.0.0/8"],
        "extraEgress": [{"ports": [{"port": 3128}], "to": [{"ipBlock": {"cidr": "10.9.9.9/32"}}]}],
    },
    "serviceMonitor": SCRAPING,
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Cocoon"}},
    "extraEnv": [
        {"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ],
    "extraEnvFrom": [{"secretRef": {"name": "more", "optional": True}}],
    "extraVolumes": [
        {"name": "tmp", "emptyDir": {"sizeLimit": "1Mi"}},
        {
            "name": "federation",
            "projected": {"sources": [{"serviceAccountToken": {"audience": "//iam.googleapis.com", "path": "token"}}]},
        },
    ],
    "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "federation", "mountPath": "/federation"}],
    "commonLabels": {"team": "platform"},
    "deploymentAnnotations": {"reload": "yes"},
    "podLabels": {"sidecar": "no"},
    "podAnnotations": {"checksum": "1"},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "topology.kubernetes.io/zone",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "cocoon-operator"}},
                }
            ]
        }
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "matchLabelKeys": ["pod-template-hash"],
        }
    ],
    "priorityClassName": "system-cluster-critical",
}
COMBINATIONS: dict[str, Obj] = {
    "nothing but the registry": {},
    "everything": EVERYTHING,
    "everything for one namespace": {**EVERYTHING, "watchNamespace": "default", "crds": {"install": False}},
    "a PodMonitor": {"podMonitor": SCRAPING},
    "a PodMonitor alone": {"podMonitor": {"enabled": True}, "service": {"enabled": False}},
    "Google": {"registry": "europe-docker.pkg.dev/p/cocoon", "networkPolicy": {"enabled": True}},
    "as little as possible": {
        "replicaCount": 1,
        "crds": {"install": False},
        "admission": {"enabled": False},
        "rbac": {"create": False},
        "serviceAccount": {"create": False},
        "podDisruptionBudget": {"enabled": False},
        "service": {"enabled": False},
        "topologySpreadConstraints": [],
        "nodeSelector": None,
    },
    "where the platform chooses the user": {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}},
}


@pytest.fixture(scope="module")
def server(bare_cluster: ControlPlane) -> ControlPlane:
    """The cluster with the namespace of the release and the definitions of what monitors it."""
    kubectl = bare_cluster.kubectl
    Chart.on(bare_cluster).install({**VALUES, "replicaCount": 0}, "--take-ownership")
    kubectl.apply(*definitions())
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all", timeout=60)
    return bare_cluster


@pytest.mark.parametrize("values", COMBINATIONS.values(), ids=COMBINATIONS)
def test_an_api_server_takes_what_is_rendered(server: ControlPlane, values: Obj) -> None:
    objects = Chart.on(server).render({**VALUES, **values})
    items = {"apiVersion": "v1", "kind": "List", "items": objects}
    flags = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    said = server.kubectl("apply", *flags, "-f", "-", "-o", "name", stdin=json.dumps(items), check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert len(said.stdout.splitlines()) == len(objects)


def test_a_misspelt_field_would_have_been_seen(server: ControlPlane) -> None:
    objects = Chart.on(server).render({**VALUES, "serviceMonitor": {"enabled": True}})
    [monitor] = [each for each in objects if each["kind"] == "ServiceMonitor"]
    monitor["spec"]["endpoints"][0]["intervall"] = "30s"
    flags = ("--server-side", "--dry-run=server", "--validate=strict")
    said = server.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(monitor), check=False)
    assert said.returncode != 0
    assert ".spec.endpoints[0].intervall" in said.stderr


def test_the_examples_for_artifact_hub_are_taken(server: ControlPlane) -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    examples = yaml.safe_load(about["annotations"]["artifacthub.io/crdsExamples"])
    items = {"apiVersion": "v1", "kind": "List", "items": examples}
    server.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(items))


def test_the_schema_of_the_values_has_the_types_of_this_kubernetes(bare_cluster: ControlPlane) -> None:
    text = SCHEMA.read_text("utf-8")
    fresh = render(with_types(json.loads(text), published_types(bare_cluster.kubectl)))
    assert fresh == text, "run `python -m cocoon_devkit.chartschema` and commit the result"
