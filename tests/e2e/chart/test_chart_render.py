"""What the chart renders, by real helm and without a cluster: each part of it, and what a value does to it."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendered import CRD_FILES, PARTS, VALUES, Obj, container_of, of_kind, pod_of, the, variables_of

from cocoon_devkit.chart import CHART, NAME, NAMESPACE, Chart
from cocoon_devkit.helm import Helm
from cocoon_operator import config
from cocoon_operator.app import _KOPF_PATIENCE
from cocoon_operator.engine.engine import EngineSettings
from cocoon_operator.engine.lease import Periods

# Settings that are no value: always the same in a cluster, or for life outside one.
NO_VALUE = {"METRICS_ADDR", "PROBE_ADDR", "LEADER_ELECT", "KUBECONFIG", "POD_NAMESPACE"}


def test_its_crds_are_byte_for_byte_those_of_the_project() -> None:
    copies = sorted((CHART / "files" / "crds").iterdir())
    assert [copy.name for copy in copies] == [file.name for file in CRD_FILES]
    assert [copy.read_bytes() for copy in copies] == [file.read_bytes() for file in CRD_FILES]


def test_crds_are_rendered_as_they_are_and_kept(offline: Chart) -> None:
    rendered = of_kind(offline.render(VALUES), "CustomResourceDefinition")
    for crd in rendered:
        assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert rendered == [yaml.safe_load(file.read_text()) for file in CRD_FILES]


def test_crds_can_be_left_to_somebody_else(offline: Chart) -> None:
    assert of_kind(offline.render({**VALUES, "crds": {"install": False}}), "CustomResourceDefinition") == []


def test_names_and_labels_are_those_that_a_cluster_knows(offline: Chart) -> None:
    objects = offline.render({**VALUES, **PARTS})
    assert sorted((each["kind"], each["metadata"]["name"]) for each in objects) == [
        ("ClusterRole", NAME),
        ("ClusterRole", f"{NAME}-edit"),
        ("ClusterRole", f"{NAME}-view"),
        ("ClusterRoleBinding", NAME),
        ("Deployment", NAME),
        ("Pod", f"{NAME}-test"),
        ("PodDisruptionBudget", NAME),
        ("Role", f"{NAME}-leader-election"),
        ("RoleBinding", f"{NAME}-leader-election"),
        ("Service", f"{NAME}-metrics"),
        ("ServiceAccount", NAME),
    ]
    for each in objects:
        name = f"{NAME}-test" if each["kind"] == "Pod" else NAME
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == name
    deployment = the(objects, "Deployment")
    for labels in (deployment["metadata"]["labels"], deployment["spec"]["template"]["metadata"]["labels"]):
        assert labels["app.kubernetes.io/component"] == "controller"
    assert deployment["spec"]["selector"] == {"matchLabels": {"app.kubernetes.io/name": NAME}}
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert the(objects, kind)["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]


def test_the_container_starts_the_operator_as_the_contract_says(offline: Chart) -> None:
    objects = offline.render(VALUES)
    assert pod_of(objects)["serviceAccountName"] == NAME
    container = container_of(objects)
    assert container["name"] == "manager"
    assert container["image"] == "ghcr.io/cocoonstack/cocoon-operator:0.1.0"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["args"] == [
        "--metrics-bind-address=:8080",
        "--health-probe-bind-address=:8081",
        "--leader-elect=true",
    ]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"metrics": 8080, "probe": 8081}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "probe"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "probe"}
    assert container["resources"] == {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


def test_its_values_are_by_default_what_the_operator_does_by_default(offline: Chart) -> None:
    def loaded(variables: dict[str, Any]) -> dict[str, Any]:
        settings = config.load({}, variables)
        return {field.name: getattr(settings, field.name) for field in fields(settings)}

    assert loaded(variables_of(offline.render(VALUES))) == loaded({"OCI_REGISTRY": VALUES["registry"]})


def test_every_setting_of_the_operator_has_a_value(offline: Chart) -> None:
    values = {**VALUES, "watchNamespace": "team-a", "registryClientCert": {"secret": "snapshots-identity"}}
    variables = variables_of(offline.render(values))
    assert {each.env for each in config._SETTINGS.values()} == {*variables, *NO_VALUE}


def test_a_value_arrives_as_a_variable_that_the_operator_reads(offline: Chart) -> None:
    values = {
        **VALUES,
        "watchNamespace": "team-a",
        "logLevel": "debug",
        "logFormat": "json",
        "cocoonsetConcurrency": 2_000_000,
        "hibernationConcurrency": 7,
        "hibernateTimeout": "4m",
        "wakeTimeout": "6m",
        "tagCollectionTimeout": "0",
        "registryTimeout": "1.5s",
        "resyncInterval": "1h30m",
        "crdTimeout": "2m",
        "leaderElection": {"leaseDuration": "40s", "renewDeadline": "30s", "retryPeriod": "5s"},
    }
    settings = config.load({}, variables_of(offline.render(values)))
    assert settings.watch_namespace == "team-a"
    assert (settings.log_level, settings.log_format) == ("debug", "json")
    assert (settings.set_workers, settings.hibernation_workers) == (2_000_000, 7)
    assert (settings.hibernate_timeout, settings.wake_timeout) == (240, 360)
    assert (settings.tag_collection_timeout, settings.registry_timeout) == (0, 1.5)
    assert (settings.resync_interval, settings.crd_timeout) == (5400, 120)
    assert (settings.lease_duration, settings.renew_deadline, settings.retry_period) == (40, 30, 5)


def test_an_image_is_named_by_tag_or_digest(offline: Chart) -> None:
    digest = f"sha256:{'0' * 64}"
    tagged = {"repository": "mirror.example.com/operator", "tag": "v9"}
    objects = offline.render({**VALUES, "image": tagged})
    assert container_of(objects)["image"] == the(objects, "Pod")["spec"]["containers"][0]["image"]
    assert container_of(objects)["image"] == "mirror.example.com/operator:v9"
    pinned = container_of(offline.render({**VALUES, "image": {**tagged, "digest": digest}}))
    assert pinned["image"] == f"mirror.example.com/operator@{digest}"


def test_files_for_the_registry_are_mounted_where_their_variables_say(offline: Chart) -> None:
    values = {
        **VALUES,
        "registryCredentialsSecret": "snapshots-login",
        "registryCA": {"configMap": "authorities", "key": "bundle.pem"},
        "registryClientCert": {"secret": "snapshots-identity"},
        "google": {"credentialsSecret": "google-key", "credentialsKey": "sa.json"},
    }
    objects = offline.render(values)
    variables, pod = variables_of(objects), pod_of(objects)
    folders = {each["name"]: each["mountPath"] for each in container_of(objects)["volumeMounts"]}
    assert all(each["readOnly"] for each in container_of(objects)["volumeMounts"])
    assert variables["DOCKER_CONFIG"] == folders["registry"]
    assert variables["SSL_CERT_FILE"] == f"{folders['registry-ca']}/ca.crt"
    assert variables["REGISTRY_CLIENT_CERT"] == f"{folders['registry-client-cert']}/tls.crt"
    assert variables["REGISTRY_CLIENT_KEY"] == f"{folders['registry-client-cert']}/tls.key"
    assert variables["GOOGLE_APPLICATION_CREDENTIALS"] == f"{folders['google']}/key.json"
    assert {each.pop("name"): each for each in pod["volumes"]} == {
        "registry": {
            "secret": {
                "secretName": "snapshots-login",
                "items": [{"key": ".dockerconfigjson", "path": "config.json"}],
            }
        },
        "registry-ca": {"configMap": {"name": "authorities", "items": [{"key": "bundle.pem", "path": "ca.crt"}]}},
        "registry-client-cert": {
            "secret": {
                "secretName": "snapshots-identity",
                "items": [{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.key"}],
            }
        },
        "google": {"secret": {"secretName": "google-key", "items": [{"key": "sa.json", "path": "key.json"}]}},
    }


def test_the_pod_has_time_for_a_graceful_stop(offline: Chart) -> None:
    """Running passes end, the last events are sent, the Lease is given back in three requests at most, Kopf ends."""
    grace = pod_of(offline.render(VALUES))["terminationGracePeriodSeconds"]
    flush, servers = 2.0, 2.0
    one_request = Periods().renew_deadline / 2
    assert grace > EngineSettings().drain + flush + 3 * one_request + _KOPF_PATIENCE + servers


def test_pods_are_spread_over_nodes_and_only_the_operators_count(offline: Chart) -> None:
    own = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "controller"}
    [constraint] = pod_of(offline.render(VALUES))["topologySpreadConstraints"]
    assert constraint == {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": own},
    }
    selector = {"matchLabels": {"team": "a"}}
    [chosen] = pod_of(
        offline.render({**VALUES, "topologySpreadConstraints": [{**constraint, "labelSelector": selector}]})
    )["topologySpreadConstraints"]
    assert chosen["labelSelector"] == selector


def test_what_a_user_adds_to_the_pod_is_in_it_beside_what_is_there(offline: Chart) -> None:
    values: Obj = {
        **VALUES,
        "registryCredentialsSecret": "snapshots-login",
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
        "extraEnvFrom": [{"configMapRef": {"name": "more"}}],
        "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "podLabels": {"sidecar": "no"},
        "podAnnotations": {"checksum": "1"},
        "deploymentAnnotations": {"reload": "yes"},
        "commonLabels": {"team": "platform"},
    }
    objects = offline.render({**values, **PARTS})
    pod, container = pod_of(objects), container_of(objects)
    assert variables_of(objects)["HTTPS_PROXY"] == "http://proxy.example.com:3128"
    assert "OCI_REGISTRY" in variables_of(objects)
    assert container["envFrom"] == values["extraEnvFrom"]
    assert [each["name"] for each in pod["volumes"]] == ["registry", "tmp"]
    assert [each["name"] for each in container["volumeMounts"]] == ["registry", "tmp"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
    for name in ("imagePullSecrets", "tolerations", "affinity", "priorityClassName"):
        assert pod[name] == values[name]
    deployment = the(objects, "Deployment")
    template = deployment["spec"]["template"]["metadata"]
    assert template["labels"]["sidecar"] == "no"
    assert template["annotations"] == {"checksum": "1", "kubectl.kubernetes.io/default-container": "manager"}
    assert deployment["metadata"]["annotations"] == {"reload": "yes"}
    assert {each["metadata"]["labels"]["team"] for each in [*objects, {"metadata": template}]} == {"platform"}


def test_a_label_of_one_object_beats_a_common_one(offline: Chart) -> None:
    own = {"team": "b", "grafana_dashboard": "1"}
    values: Obj = {
        **VALUES,
        "commonLabels": {"team": "a"},
        "podLabels": own,
        "podMonitor": {"enabled": True, "labels": own},
        "dashboard": {"enabled": True, "labels": own},
    }
    objects = offline.render(values)
    deployment = the(objects, "Deployment")
    assert deployment["metadata"]["labels"]["team"] == "a"
    for each in (deployment["spec"]["template"], the(objects, "PodMonitor"), the(objects, "ConfigMap")):
        assert each["metadata"]["labels"]["team"] == "b"


def test_w38_in_one_namespace_there_are_roles_only(offline: Chart) -> None:
    everywhere = offline.render({**VALUES, **PARTS})
    values = {**VALUES, "crds": {"install": False}, "watchNamespace": "team-a"}
    objects = offline.render(values)
    assert [each for each in objects if each["kind"].startswith("Cluster")] == []
    assert all(each["metadata"].get("namespace") in {NAMESPACE, "team-a"} for each in objects)
    roles = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in of_kind(objects, "Role")}
    assert set(roles) == {("team-a", NAME), (NAMESPACE, f"{NAME}-leader-election")}
    [rules] = [each["rules"] for each in of_kind(everywhere, "ClusterRole") if each["metadata"]["name"] == NAME]
    assert roles["team-a", NAME]["rules"] == rules
    for binding in of_kind(objects, "RoleBinding"):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
        assert binding["roleRef"]["kind"] == "Role"
    assert variables_of(objects)["WATCH_NAMESPACE"] == "team-a"


def test_w38_no_rights_on_configmaps_secrets_crds_or_nodes_and_none_to_make_or_delete_sets(offline: Chart) -> None:
    objects = offline.render(VALUES)
    [everywhere] = [each for each in of_kind(objects, "ClusterRole") if each["metadata"]["name"] == NAME]
    [beside_it] = of_kind(objects, "Role")
    resources = {resource for rule in everywhere["rules"] for resource in rule["resources"]}
    assert resources == {
        "cocoonsets",
        "cocoonsets/status",
        "cocoonsets/finalizers",
        "cocoonhibernations",
        "cocoonhibernations/status",
        "pods",
        "events",
    }
    for rule in everywhere["rules"]:
        if {"cocoonsets", "cocoonhibernations"} & set(rule["resources"]):
            assert {"create", "delete", "update"} & set(rule["verbs"]) == set()
    assert {resource for rule in beside_it["rules"] for resource in rule["resources"]} == {"leases"}
    assert all("*" not in rule["verbs"] for rule in everywhere["rules"] + beside_it["rules"])


def test_rights_accounts_budget_and_service_can_be_left_to_others(offline: Chart) -> None:
    off: Obj = {
        "rbac": {"create": False},
        "serviceAccount": {"create": False},
        "podDisruptionBudget": {"enabled": False},
        "service": {"enabled": False},
    }
    objects = offline.render({**VALUES, **PARTS, **off})
    assert [each["kind"] for each in objects] == ["Deployment"]
    assert pod_of(objects)["serviceAccountName"] == NAME
    kept = offline.render({**VALUES, **PARTS, "rbac": {"aggregate": False}})
    assert [each["metadata"]["name"] for each in of_kind(kept, "ClusterRole")] == [NAME]


def test_w42_two_replicas_a_budget_and_a_probe_that_means_something(offline: Chart) -> None:
    objects = offline.render(VALUES)
    assert the(objects, "Deployment")["spec"]["replicas"] == 2
    budget = the(objects, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    labels = the(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    half = offline.render({**VALUES, "podDisruptionBudget": {"maxUnavailable": "50%"}})
    assert the(half, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"


def test_a_service_account_can_be_somebody_to_google(offline: Chart) -> None:
    annotations = {"iam.gke.io/gcp-service-account": "operator@project.iam.gserviceaccount.com"}
    account = the(offline.render({**VALUES, "serviceAccount": {"annotations": annotations}}), "ServiceAccount")
    assert account["metadata"]["annotations"] == annotations
    assert account["automountServiceAccountToken"] is False


# -- network -----------------------------------------------------------------------------------------------------------


def policy_of(offline: Chart, registry: str, **values: Any) -> Obj:
    objects = offline.render({"registry": registry, "networkPolicy": {"enabled": True, **values}})
    spec: Obj = the(objects, "NetworkPolicy")["spec"]
    return spec


def tcp_ports(rule: Obj) -> set[int]:
    return {each["port"] for each in rule["ports"] if each["protocol"] == "TCP"}


@pytest.mark.parametrize(
    ("registry", "ports"),
    [
        ("registry.example.com/cocoon", {443, 6443}),
        ("registry.example.com:5000", {443, 6443, 5000}),
        ("[2001:db8::1]:5000/cocoon", {443, 6443, 5000}),
    ],
)
def test_the_pods_reach_names_the_api_server_and_the_registry_alone(
    offline: Chart, registry: str, ports: set[int]
) -> None:
    spec = policy_of(offline, registry)
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    names, servers = spec["egress"]
    assert tcp_ports(names) == {53}
    assert tcp_ports(servers) == ports
    assert spec["ingress"] == [{"ports": [{"port": "metrics"}]}]


@pytest.mark.parametrize("registry", ["gcr.io/p", "eu.gcr.io/p", "europe-docker.pkg.dev/p/cocoon"])
def test_a_registry_of_google_needs_the_metadata_server(offline: Chart, registry: str) -> None:
    *_, metadata = policy_of(offline, registry)["egress"]
    assert {each["ipBlock"]["cidr"] for each in metadata["to"]} == {"169.254.169.254/32", "169.254.169.252/32"}
    assert len(policy_of(offline, registry.replace("/", ".example.com/"))["egress"]) == 2


def test_a_network_can_be_closer(offline: Chart) -> None:
    prometheus = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    proxy = {"ports": [{"port": 3128}], "to": [{"ipBlock": {"cidr": "10.9.9.9/32"}}]}
    spec = policy_of(
        offline,
        "registry.example.com",
        metricsFrom=[prometheus],
        egressCIDRs=["10.0.0.0/8"],
        egressPorts=[8443],
        extraEgress=[proxy],
    )
    test_pod = {"app.kubernetes.io/name": f"{NAME}-test", "app.kubernetes.io/component": "test"}
    assert spec["ingress"][0]["from"] == [prometheus, {"podSelector": {"matchLabels": test_pod}}]
    _, servers, more = spec["egress"]
    assert servers["to"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    assert tcp_ports(servers) == {8443, 443}
    assert more == proxy


# -- monitoring --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "endpoints"),
    [("serviceMonitor", "ServiceMonitor", "endpoints"), ("podMonitor", "PodMonitor", "podMetricsEndpoints")],
)
def test_a_monitor_finds_what_has_the_port(offline: Chart, value: str, kind: str, endpoints: str) -> None:
    dropped: Obj = {"sourceLabels": ["__name__"], "regex": "go_.*", "action": "drop"}
    settings: Obj = {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "interval": "30s",
        "scrapeTimeout": "10s",
        "relabelings": [dropped],
        "metricRelabelings": [dropped],
    }
    objects = offline.render({**VALUES, value: settings})
    monitor = the(objects, kind)
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = monitor["spec"][endpoints]
    assert endpoint == {
        "port": "metrics",
        "path": "/metrics",
        "honorLabels": True,
        **{name: settings[name] for name in ("interval", "scrapeTimeout", "relabelings", "metricRelabelings")},
    }
    found = the(objects, "Service") if kind == "ServiceMonitor" else the(objects, "Deployment")["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= found["metadata"]["labels"].items()
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    [plain] = the(offline.render({**VALUES, value: {"enabled": True}}), kind)["spec"][endpoints]
    assert plain == {"port": "metrics", "path": "/metrics", "honorLabels": True}


def test_the_service_leads_to_the_pods_and_not_to_the_one_of_helm_test(offline: Chart) -> None:
    objects = offline.render({**VALUES, "service": {"annotations": {"prometheus.io/scrape": "true"}}})
    service = the(objects, "Service")
    assert service["metadata"]["annotations"] == {"prometheus.io/scrape": "true"}
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 8080, "targetPort": "metrics"}]
    labels = the(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert not service["spec"]["selector"].items() <= the(objects, "Pod")["metadata"]["labels"].items()


@pytest.fixture
def with_files(helm: Helm, tmp_path: Path) -> Chart:
    """The chart with two files of alerts and one dashboard, whose words look like a template's."""
    folder = tmp_path / "chart"
    shutil.copytree(CHART, folder, ignore=shutil.ignore_patterns("alerts", "dashboards"))
    for name in ("one", "two"):
        alert = {
            "alert": name,
            "expr": "up == 0",
            "annotations": {"summary": "{{ $labels.pod }} {{ .Values.registry }}"},
        }
        file = folder / "files" / "alerts" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": [alert]}]}))
    dashboard = folder / "files" / "dashboards" / "sets.json"
    dashboard.parent.mkdir(parents=True)
    dashboard.write_text('{"title": "Sets", "legendFormat": "{{ pod }}"}\n')
    return Chart(helm, folder)


def test_alerts_are_those_of_the_files(with_files: Chart) -> None:
    values = {**VALUES, "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}}}
    rule = the(with_files.render(values), "PrometheusRule")
    groups = rule["spec"]["groups"]
    assert [each["name"] for each in groups] == ["one", "two"]
    [alert] = groups[0]["rules"]
    assert alert["annotations"] == {"summary": "{{ $labels.pod }} {{ .Values.registry }}"}
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_dashboards_are_those_of_the_files(with_files: Chart) -> None:
    values = {**VALUES, "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Cocoon"}}}
    dashboards = the(with_files.render(values), "ConfigMap")
    assert dashboards["data"] == {"sets.json": '{"title": "Sets", "legendFormat": "{{ pod }}"}\n'}
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboards["metadata"]["annotations"] == {"grafana_folder": "Cocoon"}


def test_nothing_of_monitoring_is_there_unless_asked_for(offline: Chart) -> None:
    kinds = {each["kind"] for each in offline.render(VALUES)}
    assert kinds & {"ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap", "NetworkPolicy"} == set()


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ["CocoonSets of every namespace", "registry.example.com/cocoon", "helm test", "--all-namespaces"]),
        ({"watchNamespace": "team-a"}, ["namespace team-a, and of no other", "LeftoverSnapshot"]),
        ({"replicaCount": 1}, ["With 1 replica(s) nobody takes over"]),
        ({"crds": {"install": False}}, ["apply crds/ of version 0.1.0 before every upgrade"]),
    ],
)
def test_the_notes_say_what_was_installed(offline: Chart, values: Obj, words: list[str]) -> None:
    notes = offline.run("install", {**VALUES, **values}, "--dry-run=client").stdout.partition("NOTES:")[2]
    assert [each for each in words if each not in notes] == []
