"""Registry objects (contract, section 5): the shape of what is pushed, and what the real registry answers."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from pathlib import Path

import pytest
from node_fleet import BASE_IMAGE, MANIFEST, Fleet, Obj
from nodes import IMAGE

from cocoon_devkit.agent.images import publish_snapshot
from cocoon_devkit.agent.registryclient import ManifestNotFoundError, RegistryClient, RegistryError
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.registry import Login, Registry, RegistryOptions

FROM_NODE = "cocoonstack.snapshot.from-node"
TITLE = "org.opencontainers.image.title"
LAYERS = {
    "config.json": "application/vnd.cocoonstack.vm.config+json",
    "state.json": "application/vnd.cocoonstack.vm.state+json",
    "memory-ranges": "application/vnd.cocoonstack.vm.memory",
    "overlay.qcow2": "application/vnd.cocoonstack.disk.qcow2",
}


def digest(manifest: Obj) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(manifest, separators=(",", ":")).encode()).hexdigest()


@pytest.mark.scenario("N198", "N200", "N065")
def test_a_pushed_snapshot_has_the_shape_of_the_contract(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    since = fleet.agent.mark()
    fleet.hibernate("demo-0")
    manifest = fleet.the_manifest("demo-0")
    assert manifest["schemaVersion"] == 2
    assert manifest["mediaType"] == MANIFEST
    assert manifest["artifactType"] == "application/vnd.cocoonstack.snapshot.v1+json"
    assert manifest["config"]["mediaType"] == "application/vnd.cocoonstack.snapshot.config.v1+json"
    assert {layer["annotations"][TITLE]: layer["mediaType"] for layer in manifest["layers"]} == LAYERS
    notes = manifest["annotations"]
    assert notes[BASE_IMAGE] == IMAGE
    assert notes[FROM_NODE] == "n1"
    created = notes["org.opencontainers.image.created"]
    assert created.endswith("Z")
    assert datetime.fromisoformat(created).tzinfo is not None
    config = fleet.config(fleet.vm("demo-0"), "hibernate")
    assert config["schemaVersion"] == "v1"
    assert re.fullmatch(r"[a-z2-7]{26}", config["snapshotId"])
    assert config["hypervisor"] == "cloud-hypervisor"
    assert set(config["files"]) == set(LAYERS)
    assert all(value for key, value in config.items() if key not in {"schemaVersion", "snapshotId"})
    # Two manifests a push: the first, without the node's name, is left without a tag.
    puts = [each["path"] for each in fleet.journal("registry", "PUT", since=since) if each["target"] == "manifest"]
    assert len([path for path in puts if fleet.vm("demo-0") in path]) == 2
    first = {**manifest, "annotations": {key: value for key, value in notes.items() if key != FROM_NODE}}
    assert digest(first) != digest(manifest)
    body = fleet.ask_registry("GET", f"{fleet.vm('demo-0')}/manifests/{digest(first)}", {"Accept": MANIFEST})
    assert body is not None
    assert json.loads(body) == first


@pytest.mark.scenario("N201")
def test_the_registry_hides_an_oci_manifest_from_a_client_that_does_not_accept_it(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.hibernate("demo-0")
    path = f"{fleet.vm('demo-0')}/manifests/hibernate"
    other = "application/vnd.docker.distribution.manifest.v2+json"
    assert fleet.ask_registry("GET", path, {"Accept": other}) is None
    assert fleet.ask_registry("GET", path, {"Accept": MANIFEST}) is not None
    fleet.wake("demo-0")
    assert fleet.the_vm("demo-0")["restored_via"] == "local"


@pytest.mark.scenario("N202", "N203")
def test_a_tag_is_dropped_alone_and_dropping_it_twice_is_fine(fleet: Fleet) -> None:
    fleet.boot("demo-0", snapshot_policy="always")
    fleet.hibernate("demo-0")
    fleet.wake("demo-0")
    fleet.delete("demo-0")
    assert fleet.has_tag("demo-0")
    assert fleet.has_tag("demo-0", "latest")
    fleet.drop_tag("demo-0")
    fleet.drop_tag("demo-0")
    assert not fleet.has_tag("demo-0")
    assert fleet.has_tag("demo-0", "latest")


@pytest.mark.scenario("N070", "N202")
def test_the_agent_takes_back_a_tag_that_is_gone_already(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    barrier = fleet.agent.fault("n1", "vm.remove", vm=fleet.vm("demo-0"), hold=True)
    fleet.annotate("demo-0", hibernate="true")
    fleet.agent.wait_at_barrier("n1", barrier)
    fleet.drop_tag("demo-0")
    fleet.agent.release("n1", barrier)
    fleet.until_state("demo-0", "failed")
    fleet.until_event("demo-0", "HibernateRemoveFailed")


@pytest.mark.scenario("N034")
def test_an_index_is_followed_to_its_child(fleet: Fleet) -> None:
    child = f"child/{fleet.prefix}"
    child_digest = fleet.agent.publish_image(child)
    body = fleet.ask_registry("GET", f"{child}/manifests/latest", {"Accept": MANIFEST})
    assert body is not None
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                "mediaType": MANIFEST,
                "digest": child_digest,
                "size": len(body),
                "platform": {"os": "linux", "architecture": "amd64"},
            }
        ],
    }
    headers = {"Content-Type": "application/vnd.oci.image.index.v1+json"}
    fleet.ask_registry("PUT", f"{child}/manifests/index", headers, json.dumps(index).encode())
    fleet.boot("demo-0", image=f"{child}:index")


@pytest.mark.asyncio
@pytest.mark.scenario("N086")
async def test_a_registry_that_wants_a_login_is_no_registry_without_the_state(cluster: Cluster, tmp_path: Path) -> None:
    login = Login("agent", "secret")
    with Registry(cluster.tools, tmp_path, RegistryOptions(login=login, tls=True)) as registry:
        ca = registry.authority
        stranger = RegistryClient(f"{registry.address}/cocoon", ca=ca)
        known = RegistryClient(f"{registry.address}/cocoon", ca=ca, username=login.username, password=login.password)
        try:
            await publish_snapshot(known, "base")
            assert (await known.fetch("base", "latest")).body["schemaVersion"] == 2
            with pytest.raises(RegistryError, match="401") as refused:
                await stranger.fetch("base", "latest")
            assert not isinstance(refused.value, ManifestNotFoundError)
            with pytest.raises(ManifestNotFoundError):
                await known.fetch("base", "other")
        finally:
            await stranger.close()
            await known.close()
