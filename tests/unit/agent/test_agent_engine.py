"""The imaginary hypervisor: ids, names, disks, and memory that is never lost or rolled back (contract 0.3)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocoon_devkit.agent import manifest, nodegc
from cocoon_devkit.agent.engine import Engine, EngineError, Origin
from cocoon_devkit.agent.faults import Faults
from cocoon_devkit.agent.journal import Journal, NodeJournal
from cocoon_devkit.agent.podview import VMRequest
from cocoon_devkit.agent.records import SnapshotRecord, new_id
from cocoon_devkit.agent.settings import Speeds

REQUEST = VMRequest(
    vm_name="vm-a",
    mode="run",
    image="image",
    os="linux",
    backend="cloud-hypervisor",
    managed=True,
    fork_from="",
    clone_from_dir="",
    force_pull=False,
    probe_port=0,
    cpu=1,
    memory=1 << 30,
    storage=10 << 30,
)
QUICK = Speeds(boot=0, save=0)


def engine(folder: Path, faults: Faults | None = None) -> Engine:
    return Engine(folder, QUICK, faults or Faults(), NodeJournal(Journal(), "n1"))


def travel(snapshot: SnapshotRecord, name: str) -> SnapshotRecord:
    """Send a snapshot through the registry's format, as a push and a pull do."""
    layers = manifest.layers_of(snapshot)
    config = manifest.config_of(snapshot, layers)
    body = manifest.parse(manifest.manifest_of(config, layers, ""))
    files = {
        layer["annotations"]["org.opencontainers.image.title"]: blob.data
        for layer, blob in zip(body.layers, layers, strict=True)
    }
    return manifest.imported(name, manifest.read_config(body.config, config.data), files, "sha256:0")


@pytest.mark.scenario("N066", "N088")
def test_ids_are_fresh_and_of_one_form() -> None:
    ids = {new_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(re.fullmatch(r"[a-z2-7]{26}", each) for each in ids)


@pytest.mark.asyncio
@pytest.mark.scenario("N067")
async def test_a_save_under_a_taken_name_replaces_it_with_a_new_id(tmp_path: Path) -> None:
    host = engine(tmp_path)
    vm = await host.run(REQUEST)
    first = await host.save(vm, vm.name)
    second = await host.save(vm, vm.name)
    assert first.id != second.id
    assert [snapshot.id for snapshot in host.snapshots()] == [second.id]


@pytest.mark.asyncio
@pytest.mark.scenario("N088")
async def test_an_import_gets_its_own_id_and_keeps_the_memory(tmp_path: Path) -> None:
    host = engine(tmp_path)
    vm = await host.run(REQUEST)
    host.work(vm.name, "precious")
    saved = await host.save(vm, vm.name)
    imported = host.import_snapshot(travel(saved, "copy"))
    assert imported.id not in {"", saved.id}
    assert imported.origin == saved.id
    assert imported.memory == saved.memory


@pytest.mark.asyncio
@pytest.mark.scenario("N111", "N186")
async def test_another_engine_on_the_same_disk_knows_everything(tmp_path: Path) -> None:
    host = engine(tmp_path)
    vm = await host.run(REQUEST)
    host.work(vm.name, "precious")
    saved = await host.save(vm, "team/base:v2")
    other = engine(tmp_path)
    assert other.by_id(vm.id) == host.by_name(vm.name)
    assert other.snapshot("team/base:v2") == saved
    await other.remove(vm.name)
    await other.remove_snapshot("team/base:v2")
    again = engine(tmp_path)
    assert (again.vms(), again.snapshots()) == ([], [])


@pytest.mark.asyncio
@pytest.mark.scenario("N193")
async def test_a_boot_that_is_cut_off_leaves_a_vm_in_creating(tmp_path: Path) -> None:
    faults = Faults()
    faults.arm("vm.boot", fail=False, hold=True)
    host = engine(tmp_path, faults)
    boot = asyncio.ensure_future(host.run(REQUEST))
    await asyncio.sleep(0)
    boot.cancel()
    await asyncio.gather(boot, return_exceptions=True)
    vm = engine(tmp_path).by_name(REQUEST.vm_name)
    assert vm is not None
    assert vm.state == "creating"


@pytest.mark.asyncio
@pytest.mark.scenario("N027")
async def test_a_boot_that_fails_leaves_nothing(tmp_path: Path) -> None:
    faults = Faults()
    faults.arm("vm.boot", times=1)
    host = engine(tmp_path, faults)
    with pytest.raises(EngineError):
        await host.run(REQUEST)
    assert host.vms() == []
    await host.run(REQUEST)


@pytest.mark.asyncio
@pytest.mark.scenario("N027", "N032")
@pytest.mark.parametrize("name", ["", "-a", "a/b", "a" * 64, "a b"])
async def test_a_name_that_the_engine_does_not_take_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(EngineError):
        await engine(tmp_path).run(replace(REQUEST, vm_name=name))


@pytest.mark.asyncio
@pytest.mark.scenario("N035")
async def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    host = engine(tmp_path)
    await host.run(REQUEST)
    with pytest.raises(EngineError):
        await host.run(REQUEST)


@pytest.mark.asyncio
@pytest.mark.scenario("N027")
async def test_run_wants_half_a_gibibyte_and_ten_of_disk(tmp_path: Path) -> None:
    host = engine(tmp_path)
    for small in (replace(REQUEST, memory=511 << 20), replace(REQUEST, storage=9 << 30)):
        with pytest.raises(EngineError):
            await host.run(small)


@pytest.mark.asyncio
@pytest.mark.scenario("N032")
async def test_a_snapshot_of_another_hypervisor_is_refused(tmp_path: Path) -> None:
    host = engine(tmp_path)
    vm = await host.run(REQUEST)
    await host.save(vm, "base")
    with pytest.raises(EngineError):
        await host.clone(replace(REQUEST, vm_name="vm-b", backend="firecracker"), "base")
    with pytest.raises(EngineError):
        await host.clone(replace(REQUEST, vm_name="vm-b"), "missing")


@pytest.mark.asyncio
@pytest.mark.scenario("N068", "N168")
async def test_a_vm_that_does_not_run_is_not_saved(tmp_path: Path) -> None:
    host = engine(tmp_path)
    vm = await host.run(REQUEST)
    host.crash(vm.name, "stopped")
    with pytest.raises(EngineError):
        await host.save(vm, vm.name)
    assert host.snapshots() == []
    assert host.work(vm.name, "lost") is None


@pytest.mark.asyncio
@pytest.mark.scenario("N181")
async def test_a_restart_in_place_keeps_id_and_disk_but_is_another_boot(tmp_path: Path) -> None:
    host = engine(tmp_path)
    losses: list[str] = []
    host.on_loss = losses.append
    vm = await host.run(REQUEST)
    boot_id = vm.memory.boot_id
    host.work(vm.name, "on disk")
    host.crash(vm.name, "stopped")
    await host.start(vm)
    after = host.by_name(vm.name)
    assert after is not None
    assert (after.id, after.state, after.memory.work) == (vm.id, "running", ["on disk"])
    assert after.memory.boot_id != boot_id
    assert losses == [vm.name]


@pytest.mark.scenario("N067", "N082", "N108")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["work", "sleep here", "sleep there", "fail to save"]), max_size=12))
def test_whatever_happens_a_vm_that_wakes_remembers_everything(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    asyncio.run(_live(tmp_path_factory.mktemp("node"), tmp_path_factory.mktemp("other"), steps))


async def _live(first: Path, second: Path, steps: list[str]) -> None:
    """Drive one VM over two nodes; at every step its boot id and all work ever written must be there."""
    faults = Faults()
    hosts = [engine(first, faults), engine(second, faults)]
    here = 0
    vm = await hosts[here].run(REQUEST)
    written: list[str] = []
    boot_id, ticks = vm.memory.boot_id, 0
    for number, step in enumerate(steps):
        host = hosts[here]
        if step == "work":
            written.append(str(number))
            host.work(vm.name, str(number))
        elif step == "fail to save":
            faults.arm("snapshot.save", times=1)
            with pytest.raises(EngineError):
                await host.save(vm, vm.name)
        else:
            saved = await host.save(vm, vm.name)
            await host.remove(vm.name)
            source = vm.name
            if step == "sleep there":
                here = 1 - here
                source = hosts[here].import_snapshot(travel(saved, "import")).name
            vm = await hosts[here].clone(REQUEST, source, restored=Origin())
        memory = vm.live_memory()
        assert (memory.boot_id, memory.work) == (boot_id, written)
        assert memory.ticks >= ticks
        ticks = memory.ticks
    assert sum(len(host.vms()) for host in hosts) == 1


@pytest.mark.asyncio
@pytest.mark.scenario("N120", "N121")
async def test_an_export_leases_and_is_an_access(tmp_path: Path) -> None:
    host = engine(tmp_path)
    saved = await host.save(await host.run(REQUEST), "kept")
    host.change_snapshot("kept", last_accessed_at=1.0)
    with host.exporting(saved):
        assert host.snapshot("kept") == replace(saved, leased=True)
        assert nodegc.collect(host) == []
        # An agent that died in the middle of it leaves no lease behind.
        again = engine(tmp_path).snapshot("kept")
        assert again is not None
        assert not again.leased
    assert nodegc.collect(host, age=60.0) == []
    assert nodegc.collect(host) == ["kept"]


@pytest.mark.asyncio
@pytest.mark.scenario("N135")
async def test_an_image_without_a_nic_makes_a_vm_without_one_and_a_restore_gives_it_back(tmp_path: Path) -> None:
    host = engine(tmp_path)
    vm = await host.run(REQUEST)
    await host.set_nic(vm, present=False)
    await host.save(vm, "slept")
    await host.remove(vm.name)
    assert not (await host.clone(replace(REQUEST, vm_name="vm-b"), "slept")).nic
    assert (await host.clone(REQUEST, "slept", restored=Origin())).nic


def test_what_a_record_does_not_have_cannot_be_changed(tmp_path: Path) -> None:
    host = engine(tmp_path)
    host.plant_vm(REQUEST)
    with pytest.raises(ValueError, match="colour"):
        host.change_vm(REQUEST.vm_name, ip="10.0.0.1", colour="red")
    assert host.vms()[0].ip != "10.0.0.1"
    assert host.change_vm("nobody", ip="10.0.0.1") is None
