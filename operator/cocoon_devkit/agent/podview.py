"""Reading a pod as the agent does: annotations, the VM it asks for, its role (contract 0.4, R0.8)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cocoon_devkit.agent import wire
from cocoon_devkit.agent.wire import Obj

_SLOT = re.compile(r"[0-9]+\Z")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REF = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?\Z")


def key_of(pod: Obj) -> str:
    """Return ``namespace/name``."""
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def uid_of(pod: Obj) -> str:
    return str(pod["metadata"].get("uid", ""))


def version_of(pod: Obj) -> int:
    """Return the resourceVersion as a number; 0 when it has none."""
    text = str(pod["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


def notes(pod: Obj) -> dict[str, str]:
    """Return the annotations."""
    return pod["metadata"].get("annotations") or {}


def annotation(pod: Obj, key: str) -> str:
    return notes(pod).get(key, "")


def flag(pod: Obj, key: str) -> bool:
    """True only for the exact text ``true``."""
    return annotation(pod, key) == "true"


def stamp(pod: Obj) -> int:
    """Return the generation stamp; unparsable reads as 0 (N197)."""
    return parse_int(annotation(pod, wire.GENERATION))


def parse_int(text: str) -> int:
    return int(text) if _INTEGER.match(text) else 0


def phase(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def deleting(pod: Obj) -> bool:
    return pod["metadata"].get("deletionTimestamp") is not None


def terminal(pod: Obj) -> bool:
    """Phase Failed or Succeeded: never created or updated (R1.19)."""
    return phase(pod) in {"Failed", "Succeeded"}


def has_live_container(pod: Obj) -> bool:
    """Some container is neither terminated nor waiting: the pod's deletion goes through the provider first (R1.34)."""
    statuses: list[Obj] = (pod.get("status") or {}).get("containerStatuses") or []
    return any(not {"terminated", "waiting"} & set(status.get("state") or {}) for status in statuses)


def role(pod: Obj) -> str:
    """Return ``main``, ``sub-agent`` or ``toolbox``, from the owner's name and the VM name (R0.8)."""
    owner = next((ref for ref in pod["metadata"].get("ownerReferences") or [] if ref.get("kind") == "CocoonSet"), None)
    if owner is None:
        return "toolbox"
    prefix = f"vk-{pod['metadata']['namespace']}-{owner['name']}-"
    name = annotation(pod, wire.VM_NAME)
    rest = name[len(prefix) :] if name.startswith(prefix) else ""
    if not _SLOT.match(rest):
        return "toolbox"
    return "main" if int(rest) == 0 else "sub-agent"


def wants_latest(pod: Obj) -> bool:
    """Whether a delete pushes ``latest`` (4.2); an absent policy means ``always`` (R3.30)."""
    policy = annotation(pod, wire.SNAPSHOT_POLICY) or "always"
    return policy == "always" or (policy == "main-only" and role(pod) == "main")


def is_ref(text: str) -> bool:
    """Whether a text names something in the registry: no port, no digest, no upper case, no empty tag (R5.2)."""
    return _REF.match(text) is not None


def split_ref(ref: str) -> tuple[str, str]:
    """Split at the first colon; the tag defaults to ``latest`` (R5.2)."""
    repository, _, tag = ref.partition(":")
    return repository, tag or wire.TAG_LATEST


def local_image_name(ref: str) -> str:
    """Return the local snapshot name of a clone image: the tag is part of it unless it is ``latest`` (R2.4)."""
    repository, tag = split_ref(ref)
    return repository if tag == wire.TAG_LATEST else f"{repository}:{tag}"


def inputs(pod: Obj) -> Any:
    """Return what the agent reacts to, without its own answers: a change here restarts a waiting retry at once (R3.7)."""
    foreign = {key: value for key, value in notes(pod).items() if key not in wire.AGENT_KEYS}
    return pod["metadata"].get("uid"), foreign, pod["metadata"].get("labels") or {}, _spec_part(pod)


def same_for_provider(left: Obj, right: Obj) -> bool:
    """Whether the framework would not call Update: these fields are all it compares (R1.16)."""
    return (
        notes(left) == notes(right)
        and (left["metadata"].get("labels") or {}) == (right["metadata"].get("labels") or {})
        and _spec_part(left) == _spec_part(right)
    )


def _spec_part(pod: Obj) -> Any:
    spec = pod.get("spec") or {}
    fields = ("containers", "initContainers", "ephemeralContainers", "activeDeadlineSeconds", "tolerations")
    return [spec.get(name) for name in fields]


@dataclass(frozen=True, slots=True)
class VMRequest:
    """The VM that a pod asks for, as its annotations and resources say."""

    vm_name: str
    mode: str
    image: str
    os: str
    backend: str
    managed: bool
    fork_from: str
    clone_from_dir: str
    force_pull: bool
    probe_port: int
    cpu: int
    memory: int
    storage: int


def request_of(pod: Obj) -> VMRequest:
    """Read the VM request. An unknown or empty mode reads as clone (N029)."""
    asked = notes(pod)
    mode = asked.get(wire.MODE, "")
    resources = _resources(pod)
    return VMRequest(
        vm_name=asked.get(wire.VM_NAME, ""),
        mode=mode if mode in {"run", "static"} else "clone",
        image=asked.get(wire.IMAGE, ""),
        os=asked.get(wire.OS) or "linux",
        backend=asked.get(wire.BACKEND) or "cloud-hypervisor",
        managed=asked.get(wire.MANAGED) == "true",
        fork_from=asked.get(wire.FORK_FROM, ""),
        clone_from_dir=asked.get(wire.CLONE_FROM_DIR, ""),
        force_pull=asked.get(wire.FORCE_PULL) == "true",
        probe_port=parse_int(asked.get(wire.PROBE_PORT, "")),
        cpu=max(1, -(-quantity(resources.get("cpu", "1"), milli=True) // 1000)),
        memory=quantity(resources.get("memory", "1Gi")),
        storage=quantity(asked.get(wire.STORAGE) or resources.get("ephemeral-storage") or "10Gi"),
    )


def _resources(pod: Obj) -> dict[str, Any]:
    """Return the first container's resources, a limit before a request (R2.8)."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    resources = containers[0].get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


_SUFFIXES = {
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "Pi": 1 << 50,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
}


def quantity(text: Any, *, milli: bool = False) -> int:
    """Return a Kubernetes quantity in whole units, or in thousandths; what cannot be read is 0."""
    value = str(text)
    factor = 1000 if milli else 1
    try:
        for suffix, scale in _SUFFIXES.items():
            if value.endswith(suffix):
                return int(float(value[: -len(suffix)]) * scale * factor)
        if value.endswith("m"):
            return int(float(value[:-1]) * factor / 1000)
        return int(float(value) * factor)
    except (ValueError, OverflowError):
        return 0
