"""Kubeconfigs, keys, the audit log's reader and the choice of a cluster."""

from __future__ import annotations

import json
import ssl
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from cocoon_devkit.audit import POLICY, AuditLog
from cocoon_devkit.errors import DevkitError
from cocoon_devkit.kubeconfig import cluster_entry, write_kubeconfig
from cocoon_devkit.pki import issue_server_identity, write_signing_key
from cocoon_devkit.providers import KUBECONFIG_VARIABLE, PROVIDER_VARIABLE, provided_cluster


def entry(verb: str, *, stage: str = "ResponseComplete", uri: str = "/api/v1/pods", body: object = None) -> bytes:
    event: dict[str, object] = {
        "kind": "Event",
        "auditID": "a1",
        "stage": stage,
        "verb": verb,
        "requestURI": uri,
        "user": {"username": "admin", "groups": ["system:masters"]},
        "objectRef": {"resource": "pods", "namespace": "ns", "name": "p", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 200},
    }
    if body is not None:
        event["requestObject"] = body
    return json.dumps(event).encode() + b"\n"


def test_events_after_a_mark_are_read_but_no_half_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    log = AuditLog.of_file(file)
    assert (log.mark(), log.events()) == (0, [])
    file.write_bytes(entry("get"))
    mark = log.mark()
    half = entry("delete")
    file.write_bytes(entry("get") + entry("patch", body={"metadata": {}}) + half[:20])
    assert [(event.verb, event.is_write, event.request_object) for event in log.events(mark)] == [
        ("patch", True, {"metadata": {}})
    ]
    assert [event.verb for event in log.events()] == ["get", "patch"]
    assert log.events()[0].object_ref.name == "p"
    assert log.events()[0].response_status.code == 200


def test_the_start_of_a_watch_is_no_event_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_bytes(entry("watch", stage="ResponseStarted") + entry("watch"))
    assert [event.verb for event in AuditLog.of_file(file).events()] == ["watch"]


def test_the_policy_ends_with_metadata_of_everything() -> None:
    policy = yaml.safe_load(POLICY)
    assert policy["rules"][-1] == {"level": "Metadata"}


def test_a_kubeconfig_is_private_and_complete(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("CERTIFICATE")
    user, cluster = {"token": "t"}, cluster_entry("https://127.0.0.1:1", authority)
    file = write_kubeconfig(tmp_path / "in" / "config", cluster=cluster, user=user, namespace="ns")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    content = yaml.safe_load(file.read_text())
    assert content["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": "Q0VSVElGSUNBVEU=",
    }
    assert content["users"][0]["user"] == user
    assert content["contexts"][0]["context"]["namespace"] == "ns"


def test_a_server_identity_is_for_loopback_and_signed_by_its_authority(tmp_path: Path) -> None:
    identity = issue_server_identity(tmp_path)
    certificate = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name) for name in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(identity.authority.read_bytes()))
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(identity.certificate, identity.key)
    assert stat.S_IMODE(identity.key.stat().st_mode) == 0o600


def test_a_signing_key_is_private_and_of_the_form_that_the_api_server_reads(tmp_path: Path) -> None:
    write_signing_key(tmp_path / "sa.key")
    assert (tmp_path / "sa.key").read_text().startswith("-----BEGIN EC PRIVATE KEY-----")
    assert stat.S_IMODE((tmp_path / "sa.key").stat().st_mode) == 0o600


def test_a_named_kubeconfig_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KUBECONFIG_VARIABLE, str(tmp_path / "none"))
    with (
        pytest.raises(DevkitError, match=r"The kubeconfig .*none does not exist"),
        provided_cluster(tmp_path, tmp_path),
    ):
        pass


def test_only_known_providers_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KUBECONFIG_VARIABLE, raising=False)
    monkeypatch.setenv(PROVIDER_VARIABLE, "cloud")
    with pytest.raises(DevkitError, match="'cloud'; it can be kind or local"), provided_cluster(tmp_path, tmp_path):
        pass
