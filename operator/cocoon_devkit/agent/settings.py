"""What a test can choose about a node: speeds of the imaginary hypervisor, the agent's windows, capacity, policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SWITCHES: Final = {
    "orphan_policy": ("destroy", "keep", "alert"),
    "live_snapshot": ("deferred", "strict", "off"),
    "storage_allocatable": ("dynamic", "startup"),
}
"""What a node's switches know; the first is the default (contract 0.2)."""
CACHE_RECLAIM: Final = ("node-gc", "in-agent")


@dataclass(slots=True)
class Speeds:
    """How long the imaginary parts take, in real seconds (not scaled)."""

    boot: float = 0.2
    save: float = 0.2
    push: float = 0.0
    pull: float = 0.0
    probe: float = 0.0


@dataclass(slots=True)
class Windows:
    """The agent's own waits in seconds, all multiplied by ``scale`` (F-24); 0.1 makes the 15 s retry 1.5 s.

    A change counts from the next wait on.
    """

    scale: float = 1.0
    patch_pause: float = 0.5
    retry_first: float = 15.0
    retry_max: float = 300.0
    flush: float = 15.0
    status_drift: float = 30.0
    ip_wait: float = 45.0
    ip_poll: float = 0.2
    probe_first: float = 0.1
    probe_max: float = 1.0
    probe_steady: float = 5.0
    cache_removal: float = 10.0
    restart_cooldown: float = 30.0
    inspect_first: float = 1.0
    inspect_max: float = 30.0
    inspect_total: float = 1800.0
    storage_refresh: float = 60.0
    reclaim: float = 600.0
    queue_base: float = 0.005
    queue_max: float = 1000.0

    def of(self, seconds: float) -> float:
        """Return a window's real length."""
        return seconds * self.scale


@dataclass(slots=True)
class Capacity:
    """What the imaginary host has (R1.7): whole CPUs, bytes, pods.

    ``reserve`` is a percentage (R1.8); ``base_images`` are the bytes of disk that are taken before any VM or snapshot.
    """

    cpu: int = 128
    memory: int = 1024 << 30
    storage: int = 64 << 40
    pods: int = 256
    base_images: int = 0
    reserve: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.reserve <= 100:
            raise ValueError(f"the reserve is a percentage from 0 to 100, not {self.reserve}")

    def usable(self, value: int) -> int:
        """Return what is left of ``value`` after the reserve, on whole units (R1.8)."""
        return value * (100 - self.reserve) // 100


@dataclass(slots=True)
class NodeSettings:
    """One node of the double.

    ``registry`` is ``host:port[/prefix]`` without a scheme, "" for an agent without a registry (R3.8, N087).
    ``keep_from_informer`` False is fault F-13: the keep flag is read from the last update only. ``storage_allocatable`` is
    ``dynamic`` or ``startup`` (R1.9); ``pinned_storage`` in bytes, 0 for none, is an operator's own word on the disk.
    ``live_snapshot`` is ``deferred``, ``strict`` or ``off`` (3.5). ``cache_reclaim`` is the subset of ``node-gc`` and
    ``in-agent`` that bounds the cache (4.4). ``ready`` False makes the Node say that it is not (F-16). ``taints`` are those of
    the Node's template, as in a Node's ``spec`` (R1.2).
    """

    name: str
    state_dir: Path
    registry: str = ""
    registry_username: str = ""
    registry_password: str = ""
    registry_tls: bool = False
    registry_ca: Path | None = None
    pool: str = "default"
    cpu_class: str = ""
    provider_id: str = ""
    address: str = "127.0.0.1"
    kubelet_port: int = 10250
    orphan_policy: str = "destroy"
    workers: int = 32
    capacity: Capacity = field(default_factory=Capacity)
    speeds: Speeds = field(default_factory=Speeds)
    windows: Windows = field(default_factory=Windows)
    keep_from_informer: bool = True
    storage_allocatable: str = "dynamic"
    pinned_storage: int = 0
    live_snapshot: str = "deferred"
    cache_reclaim: Sequence[str] = CACHE_RECLAIM
    ready: bool = True
    taints: Sequence[dict[str, str]] = ()

    def __post_init__(self) -> None:
        """Refuse a switch that is set to what it does not know. Raises :class:`ValueError`, which names both."""
        for switch, known in SWITCHES.items():
            if getattr(self, switch) not in known:
                raise ValueError(f"{switch} is one of {', '.join(known)}, not {getattr(self, switch)!r}")
        if not set(self.cache_reclaim) <= set(CACHE_RECLAIM):
            raise ValueError(f"cache_reclaim is made of {' and '.join(CACHE_RECLAIM)}, not {list(self.cache_reclaim)}")
