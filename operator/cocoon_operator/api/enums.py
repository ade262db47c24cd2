"""Closed vocabularies of the contract (sections 1 and 2.5): wire text as members, and what an empty text means."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class AgentMode(StrEnum):
    """How an agent's VM comes to be: cloned from a snapshot image, or run from a disk image (S001)."""

    CLONE = "clone"
    RUN = "run"


class ToolboxMode(StrEnum):
    """As :class:`AgentMode`, and ``static`` for a machine that exists anyway and is only represented (S002)."""

    RUN = "run"
    CLONE = "clone"
    STATIC = "static"


class OperatingSystem(StrEnum):
    """The guest's operating system (S003)."""

    LINUX = "linux"
    WINDOWS = "windows"
    ANDROID = "android"
    MACOS = "macos"


class Backend(StrEnum):
    """The hypervisor (S007)."""

    CLOUD_HYPERVISOR = "cloud-hypervisor"
    FIRECRACKER = "firecracker"


class ConnType(StrEnum):
    """How a person connects to a VM (S006)."""

    SSH = "ssh"
    RDP = "rdp"
    VNC = "vnc"
    ADB = "adb"


class SnapshotPolicy(StrEnum):
    """Which VMs are pushed as ``:latest`` when their pod is deleted (S004)."""

    ALWAYS = "always"
    MAIN_ONLY = "main-only"
    NEVER = "never"


class HibernatePolicy(StrEnum):
    """What a suspend does with the pod of a saved VM: keep it, or delete it and free the seat (S005)."""

    RETAIN = "retain"
    RELEASE = "release"


class Desire(StrEnum):
    """What a CocoonHibernation asks for (S008)."""

    HIBERNATE = "Hibernate"
    WAKE = "Wake"


class SetPhase(StrEnum):
    """``status.phase`` of a CocoonSet (contract 1.4)."""

    PENDING = "Pending"
    RUNNING = "Running"
    SCALING = "Scaling"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    WAKING = "Waking"
    MIGRATING = "Migrating"
    FAILED = "Failed"


class HibernationPhase(StrEnum):
    """``status.phase`` of a CocoonHibernation (contract 1.8)."""

    PENDING = "Pending"
    HIBERNATING = "Hibernating"
    HIBERNATED = "Hibernated"
    WAKING = "Waking"
    ACTIVE = "Active"
    FAILED = "Failed"


class Role(StrEnum):
    """What a VM is in its set (contract 2.1)."""

    MAIN = "main"
    SUB_AGENT = "sub-agent"
    TOOLBOX = "toolbox"


class LifecycleState(StrEnum):
    """What the node agent says about a VM (contract 2.5)."""

    CREATING = "creating"
    READY = "ready"
    HIBERNATING = "hibernating"
    HIBERNATED = "hibernated"
    FAILED = "failed"


DEFAULTS: Final[Mapping[type[StrEnum], StrEnum]] = MappingProxyType(
    {
        AgentMode: AgentMode.CLONE,
        ToolboxMode: ToolboxMode.RUN,
        OperatingSystem: OperatingSystem.LINUX,
        Backend: Backend.CLOUD_HYPERVISOR,
        SnapshotPolicy: SnapshotPolicy.ALWAYS,
        HibernatePolicy: HibernatePolicy.RETAIN,
    }
)


def is_member(vocabulary: type[StrEnum], value: str) -> bool:
    """Whether a text is one of the vocabulary's words; empty and unknown texts are not (S001-S008)."""
    return value in vocabulary.__members__.values()


def or_default(vocabulary: type[StrEnum], value: str) -> str:
    """Return the default for an empty text and every other text unchanged (S009).

    Raises :class:`KeyError` for a vocabulary without a default, such as :class:`ConnType`.
    """
    return value or DEFAULTS[vocabulary]
