"""The imaginary hypervisor of one node: VMs and local snapshots, on disk, with faults (contract 0.3)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from cocoon_devkit.agent.faults import FaultError, Faults
from cocoon_devkit.agent.journal import NodeJournal
from cocoon_devkit.agent.podview import VMRequest
from cocoon_devkit.agent.records import Memory, SnapshotRecord, Store, VMRecord, new_id
from cocoon_devkit.agent.settings import Speeds

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_SNAPSHOT_BYTES: Final = 64 << 20
_OVERLAY_BYTES: Final = 256 << 20


class EngineError(Exception):
    """The engine refused or failed."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a clone's state comes from, when it is a VM's saved state: ids for the record, and how it was found."""

    digest: str = ""
    via: str = ""


class Engine:
    """VMs and snapshots of one node. Every call is journaled; every change is on disk when the call returns.

    ``on_loss`` is called with the name of a VM that stopped, failed or was deleted, whoever did it.
    """

    def __init__(self, folder: Path, speeds: Speeds, faults: Faults, journal: NodeJournal) -> None:
        self._vms = Store(folder / "vms", VMRecord)
        self._snapshots = Store(folder / "snapshots", SnapshotRecord)
        self._speeds = speeds
        self._faults = faults
        self._journal = journal
        self._addresses = len(list(self._vms))
        self._reserved: dict[str, str] = {}
        self._paused: set[str] = set()
        # A lease belongs to whoever exports, and with the agent that one ended.
        for snapshot in self._snapshots:
            self.change_snapshot(snapshot.name, leased=False)
        self.on_loss: Callable[[str], None] = lambda _name: None

    # -- VMs --------------------------------------------------------------------------------------------------------

    def vms(self) -> list[VMRecord]:
        return list(self._vms)

    def by_name(self, name: str) -> VMRecord | None:
        return self._vms.get(name)

    def by_id(self, vm_id: str) -> VMRecord | None:
        return next((vm for vm in self._vms if vm.id == vm_id), None)

    async def inspect(self, name: str) -> VMRecord | None:
        """Ask the engine about a VM. Raises :class:`EngineError` when there is no answer (F-4)."""
        await self._suffer("vm.inspect", name)
        return self._vms.get(name)

    async def run(self, request: VMRequest, *, mode: str = "run") -> VMRecord:
        """Boot a fresh VM from an image (R2.8) or, with mode ``clone``, from a directory. Raises :class:`EngineError`."""
        if mode == "run" and (request.memory < 512 << 20 or request.storage < 10 << 30):
            raise EngineError("a VM needs 512Mi of memory and 10Gi of storage at least")
        memory = Memory(boot_id=new_id())
        memory.history.append(f"booted {request.clone_from_dir or request.image}")
        vm = self._new_vm(request, memory)
        return await self._bring_up(vm, mode)

    async def clone(self, request: VMRequest, source: str, *, restored: Origin | None = None) -> VMRecord:
        """Make a VM from a local snapshot; with ``restored`` its memory goes on where it was saved.

        Guest size comes from the snapshot (R2.6). Raises :class:`EngineError`, also on a foreign hypervisor (R2.5).
        """
        snapshot = self._snapshots.get(source)
        if snapshot is None:
            raise EngineError(f"no local snapshot {source}")
        if snapshot.hypervisor != request.backend:
            raise EngineError(f"snapshot {source} is of {snapshot.hypervisor}, the pod asks for {request.backend}")
        self._touch(snapshot)
        memory = snapshot.memory.copy()
        if restored is None:
            memory.boot_id = new_id()
            memory.history.append(f"cloned {source}")
        else:
            memory.history.append(f"restored {snapshot.origin}")
        vm = self._new_vm(request, memory)
        vm.cpu, vm.memory_bytes = snapshot.cpu, snapshot.memory_bytes
        vm.cloned_from = source
        # What hibernation took off a guest its wake gives back; an image is taken as it is (R3.18).
        vm.nic = snapshot.nics > 0 or restored is not None
        if restored is not None:
            vm.restored_from, vm.restored_digest, vm.restored_via = snapshot.origin, restored.digest, restored.via
        return await self._bring_up(vm, "clone", source=source)

    def _new_vm(self, request: VMRequest, memory: Memory) -> VMRecord:
        name = request.vm_name
        if not _NAME.match(name):
            raise EngineError(f"{name!r} is not a VM name")
        if self._vms.get(name) is not None:
            raise EngineError(f"a VM named {name} exists")
        self._addresses += 1
        number = self._addresses
        return VMRecord(
            id=self._reserved.pop(name, "") or new_id(),
            name=name,
            state="creating",
            ip=f"10.{88 + number // 65536}.{number // 256 % 256}.{number % 256}",
            mac="52:54:00:" + ":".join(f"{number >> shift & 255:02x}" for shift in (16, 8, 0)),
            image=request.image,
            backend=request.backend,
            os=request.os,
            cpu=request.cpu,
            memory_bytes=request.memory,
            storage_bytes=request.storage,
            overlay_bytes=_OVERLAY_BYTES,
            memory=memory,
            created_at=time.time(),
            resumed_at=time.time(),
        )

    async def _bring_up(self, vm: VMRecord, mode: str, **details: str) -> VMRecord:
        """Create the record first: a crash in the middle leaves a VM in state ``creating``, which nobody adopts (R1.32)."""
        self._vms.put(vm)
        self._journal.engine("boot", vm=vm.name, id=vm.id, mode=mode, **details)
        try:
            await self._suffer(f"vm.boot.{mode}", vm.name)
            await asyncio.sleep(self._speeds.boot)
        except EngineError:
            self._vms.drop(vm.name)
            raise
        vm.state = "running"
        vm.resumed_at = time.time()
        self._vms.put(vm)
        self._journal.engine("running", vm=vm.name, id=vm.id)
        return vm

    def reserve(self, name: str) -> str:
        """Return the id that the next VM of this name will have (F-20)."""
        return self._reserved.setdefault(name, new_id())

    async def start(self, vm: VMRecord) -> None:
        """Start a stopped VM in place: another boot id, but the disk, and so ``work``, is kept. Raises :class:`EngineError`."""
        self._journal.engine("start", vm=vm.name, id=vm.id)
        await self._suffer("vm.boot.start", vm.name)
        await asyncio.sleep(self._speeds.boot)
        vm.memory.boot_id = new_id()
        vm.memory.history.append("restarted")
        vm.state = "running"
        vm.resumed_at = time.time()
        self._vms.put(vm)

    async def remove(self, name: str) -> None:
        """Remove a VM; one that is not there is success (R4.1 step 7). Raises :class:`EngineError`."""
        vm = self._vms.get(name)
        if vm is None:
            return
        self._journal.engine("remove", vm=name, id=vm.id)
        await self._suffer("vm.remove", name)
        self._vms.drop(name)
        self._journal.engine("removed", vm=name, id=vm.id)
        self.on_loss(name)

    async def set_nic(self, vm: VMRecord, *, present: bool) -> None:
        """Drop or re-add the guest's NIC around a Windows hibernation (R3.4). Raises :class:`EngineError`."""
        self._journal.engine("nic", vm=vm.name, present=present)
        if not present:
            await self._suffer("vm.net", vm.name)
        vm.nic = present
        self._vms.put(vm)

    def paused(self, name: str) -> bool:
        """Whether a VM stands still because it is being saved."""
        return name in self._paused

    def change_vm(self, name: str, **changes: object) -> VMRecord | None:
        """Change a VM behind the agent's back, such as ``ip`` (F-18) or ``overlay_bytes`` (R1.10). None when there is none."""
        vm = self._vms.get(name)
        if vm is not None:
            _change(vm, changes)
            self._vms.put(vm)
        return vm

    def crash(self, name: str, state: str) -> VMRecord | None:
        """Let a VM fail by itself (F-3): ``stopped``, ``error``, or ``gone``. Returns what it was."""
        vm = self._vms.get(name)
        if vm is None:
            return None
        self._journal.engine("crash", vm=name, id=vm.id, state=state)
        vm.memory = vm.live_memory()
        vm.state = state
        if state == "gone":
            self._vms.drop(name)
        else:
            self._vms.put(vm)
        self.on_loss(name)
        return vm

    def work(self, name: str, text: str) -> VMRecord | None:
        """Write a line into a running VM's memory, as a user's work. None when no such VM runs."""
        vm = self._vms.get(name)
        if vm is None or vm.state != "running":
            return None
        vm.memory.work.append(text)
        self._vms.put(vm)
        return vm

    def plant_vm(self, request: VMRequest) -> VMRecord:
        """Put a running VM on the node that no agent made: an orphan, or one to adopt."""
        vm = self._new_vm(request, Memory(boot_id=new_id(), history=["planted"]))
        vm.state = "running"
        self._vms.put(vm)
        return vm

    # -- snapshots --------------------------------------------------------------------------------------------------

    def snapshots(self) -> list[SnapshotRecord]:
        return list(self._snapshots)

    def snapshot(self, name: str) -> SnapshotRecord | None:
        return self._snapshots.get(name)

    async def save(self, vm: VMRecord, name: str) -> SnapshotRecord:
        """Save a VM under a name; a snapshot that has it is replaced, with a new id (R0.4). Raises :class:`EngineError`."""
        snapshot_id = new_id()
        self._journal.engine("save", vm=vm.name, snapshot=name, id=snapshot_id)
        await self._suffer("snapshot.save", vm.name)
        self._paused.add(vm.name)
        try:
            await asyncio.sleep(self._speeds.save)
        finally:
            self._paused.discard(vm.name)
        current = self._vms.get(vm.name)
        if current is None or current.id != vm.id or current.state != "running":
            raise EngineError(f"VM {vm.name} does not run")
        current.memory.history.append(f"saved {snapshot_id}")
        self._vms.put(current)
        now = time.time()
        snapshot = SnapshotRecord(
            name=name,
            id=snapshot_id,
            origin=snapshot_id,
            size=_SNAPSHOT_BYTES,
            created_at=now,
            last_accessed_at=now,
            hypervisor=current.backend,
            image=current.image,
            cpu=current.cpu,
            memory_bytes=current.memory_bytes,
            storage_bytes=current.storage_bytes,
            memory=current.live_memory(),
            nics=1 if current.nic else 0,
        )
        self._snapshots.put(snapshot)
        self._journal.engine("saved", vm=vm.name, snapshot=name, id=snapshot_id)
        return snapshot

    def import_snapshot(self, snapshot: SnapshotRecord) -> SnapshotRecord:
        """Store a downloaded snapshot. It always gets a new id; the one inside the archive is ignored (R0.3, X-9)."""
        snapshot.id = new_id()
        snapshot.last_accessed_at = time.time()
        self._snapshots.put(snapshot)
        self._journal.engine("import", snapshot=snapshot.name, id=snapshot.id)
        return snapshot

    async def remove_snapshot(self, name: str) -> None:
        """Remove a local snapshot; one that is not there is success. Raises :class:`EngineError`."""
        if self._snapshots.get(name) is None:
            return
        self._journal.engine("remove-snapshot", snapshot=name)
        await self._suffer("snapshot.remove", name)
        self._snapshots.drop(name)

    def change_snapshot(self, name: str, **changes: object) -> SnapshotRecord | None:
        """Change a local snapshot behind the agent's back (F-10). None when there is none of that name."""
        snapshot = self._snapshots.get(name)
        if snapshot is not None:
            _change(snapshot, changes)
            self._snapshots.put(snapshot)
        return snapshot

    @contextlib.contextmanager
    def exporting(self, snapshot: SnapshotRecord) -> Iterator[None]:
        """Read a local snapshot out: meanwhile it is leased, and it has been accessed (R4.11)."""
        self.change_snapshot(snapshot.name, leased=True, last_accessed_at=time.time())
        try:
            yield
        finally:
            self.change_snapshot(snapshot.name, leased=False)

    async def measure(self) -> None:
        """Ask for the sizes on the disk, which the records then tell. Raises :class:`EngineError` when there is no answer."""
        await self._suffer("storage", "")

    def forget_snapshot(self, name: str) -> None:
        """Lose a local snapshot behind the agent's back (F-10)."""
        self._snapshots.drop(name)

    def _touch(self, snapshot: SnapshotRecord) -> None:
        snapshot.last_accessed_at = time.time()
        self._snapshots.put(snapshot)

    async def _suffer(self, point: str, vm: str) -> None:
        try:
            await self._faults.hit(point, vm)
        except FaultError as fault:
            raise EngineError(str(fault)) from fault


def _change(record: VMRecord | SnapshotRecord, changes: Mapping[str, object]) -> None:
    """Set fields of a record. Raises :class:`ValueError`, with nothing changed, for one that it does not have."""
    unknown = set(changes) - {field.name for field in fields(record)}
    if unknown:
        raise ValueError(f"no such fields: {sorted(unknown)}")
    for name, value in changes.items():
        setattr(record, name, value)
