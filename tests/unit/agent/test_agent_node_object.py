"""Numbers and labels of a Node (contract 1.2, 1.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cocoon_devkit.agent.__main__ import parser, settings_of
from cocoon_devkit.agent.control import planted_request
from cocoon_devkit.agent.engine import Engine
from cocoon_devkit.agent.faults import Faults
from cocoon_devkit.agent.journal import Journal, NodeJournal
from cocoon_devkit.agent.kube import Kube
from cocoon_devkit.agent.node import NodeObject, add_taint
from cocoon_devkit.agent.records import Memory, SnapshotRecord
from cocoon_devkit.agent.settings import Capacity, NodeSettings, Speeds
from cocoon_devkit.agent.tracked import Table

GI = 1 << 30


@pytest_asyncio.fixture
async def kube() -> AsyncIterator[Kube]:
    """A session that is never used: these tests send nothing."""
    kube = Kube("http://127.0.0.1:9", None, "")
    yield kube
    await kube.close()


class Host:
    """A node's parts, with 100 Gi of disk of which 60 are free, and 20 % in reserve."""

    def __init__(self, kube: Kube, folder: Path, storage_allocatable: str = "dynamic") -> None:
        capacity = Capacity(cpu=32, storage=100 * GI, base_images=40 * GI, reserve=20)
        self.settings = NodeSettings(
            name="n1", state_dir=folder, capacity=capacity, storage_allocatable=storage_allocatable
        )
        self._kube = kube
        self._journal = NodeJournal(Journal(), "n1")
        self.engine = Engine(folder, Speeds(), Faults(), self._journal)
        self.table = Table()

    def node(self) -> NodeObject:
        """The Node as an agent that starts now reports it."""
        return NodeObject(self._kube, self.settings, self.engine, self.table, self._journal)

    def keep(self, size: int) -> None:
        """Put a snapshot on the disk."""
        snapshot = SnapshotRecord(
            name="kept",
            id="",
            origin="",
            size=size,
            created_at=0,
            last_accessed_at=0,
            hypervisor="",
            image="",
            cpu=1,
            memory_bytes=0,
            storage_bytes=0,
            memory=Memory(),
        )
        self.engine.import_snapshot(snapshot)


@pytest.mark.scenario("N002")
def test_a_taint_with_the_key_is_left_alone() -> None:
    own = [{"key": "virtual-kubelet.io/provider", "value": "other", "effect": "NoExecute"}]
    assert add_taint(own) == own
    assert [each["value"] for each in add_taint([{"key": "another"}])[1:]] == ["cocoon"]


@pytest.mark.asyncio
@pytest.mark.scenario("N003")
async def test_the_reserve_is_taken_off_whole_units_and_not_off_pods(kube: Kube, tmp_path: Path) -> None:
    status = Host(kube, tmp_path).node().status()
    assert (status["capacity"]["cpu"], status["allocatable"]["cpu"]) == ("32", "25")
    assert status["capacity"]["pods"] == status["allocatable"]["pods"] == "256"


@pytest.mark.scenario("N004")
@pytest.mark.parametrize("reserve", ["101", "-1"])
def test_a_reserve_outside_of_a_percentage_is_refused(reserve: str) -> None:
    options = parser().parse_args(["--node", "n1", "--state-dir", "x", f"--reserve-percent={reserve}"])
    with pytest.raises(ValueError, match="percentage"):
        settings_of(options)


@pytest.mark.asyncio
@pytest.mark.scenario("N005", "N006")
async def test_the_value_of_the_start_hides_what_is_kept_later(kube: Kube, tmp_path: Path) -> None:
    host = Host(kube, tmp_path, "startup")
    node = host.node()
    assert node.status()["capacity"]["ephemeral-storage"] == str(100 * GI)
    assert node.storage() == 48 * GI
    host.keep(10 * GI)
    assert node.storage() == 48 * GI
    assert host.node().storage() == 40 * GI


@pytest.mark.asyncio
@pytest.mark.scenario("N007")
async def test_the_dynamic_value_counts_overlays_of_tracked_vms_as_free(kube: Kube, tmp_path: Path) -> None:
    host = Host(kube, tmp_path)
    vm = host.engine.plant_vm(planted_request("v"))
    vm.overlay_bytes = 5 * GI
    host.settings.capacity.base_images = 35 * GI
    tracked = host.table.track(
        {"metadata": {"namespace": "ns", "name": "p", "annotations": {"vm.cocoonstack.io/name": "v"}}, "spec": {}}
    )
    node = host.node()
    assert node.free_storage() == 60 * GI
    assert node.storage() == 60 * GI * 80 // 100
    tracked.vm_id = vm.id
    assert node.storage() == 65 * GI * 80 // 100
    host.keep(10 * GI)
    assert node.storage() == 55 * GI * 80 // 100


@pytest.mark.asyncio
@pytest.mark.scenario("N009")
async def test_a_pinned_value_is_the_operators_word(kube: Kube, tmp_path: Path) -> None:
    host = Host(kube, tmp_path)
    host.settings.pinned_storage = 50 * GI
    host.keep(10 * GI)
    status = host.node().status()
    assert status["capacity"]["ephemeral-storage"] == str(50 * GI)
    assert status["allocatable"]["ephemeral-storage"] == str(40 * GI)


@pytest.mark.asyncio
@pytest.mark.scenario("N001", "N014")
async def test_the_cpu_class_is_a_label_only_where_it_is_configured(kube: Kube, tmp_path: Path) -> None:
    host = Host(kube, tmp_path)
    key = "cocoonstack.io/snapshot-cpu-class"
    assert key not in host.node().labels()
    host.settings.cpu_class = "zen4"
    assert host.node().labels()[key] == "zen4"


@pytest.mark.scenario("N190")
def test_an_unknown_orphan_policy_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="orphan_policy is one of destroy, keep, alert"):
        NodeSettings(name="n1", state_dir=tmp_path, orphan_policy="adopt")
