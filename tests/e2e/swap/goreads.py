"""What the Go operator makes of what it finds, from the contract's text alone: every key and field, drift, and its next step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from cocoon_devkit.rawapi import Obj
from cocoon_operator.api import keys

Reads = Callable[[str], bool]


def one_of(*words: str) -> Reads:
    return lambda value: value in words


def like(pattern: str) -> Reads:
    return lambda value: re.fullmatch(pattern, value) is not None


FLAG: Final = one_of("true")
DECIMAL: Final = like(r"[0-9]+")
TEXT: Final = like(r".+")


def _names(value: str) -> bool:
    """Joined by commas, ascending bytewise, each once; an empty text is an empty list (2.6)."""
    names = value.split(",") if value else []
    return all(names) and names == sorted(set(names), key=str.encode)


def _history(value: str) -> bool:
    """What ``encoding/json`` puts into ``map[string]struct{Count int; LastDeleted time.Time}`` (2.6)."""
    entries = json.loads(value)
    return all(
        DECIMAL(slot) and isinstance(entry["count"], int) and datetime.fromisoformat(entry["lastDeleted"]).tzinfo
        for slot, entry in entries.items()
    )


POD_ANNOTATIONS: Final[dict[str, Reads]] = {
    keys.GENERATION: DECIMAL,
    keys.HIBERNATE: FLAG,
    keys.RESTORE: FLAG,
    keys.KEEP_SNAPSHOT: FLAG,
    keys.DEAD_LETTER: FLAG,
    keys.VM_NAME: like(r"vk-[-a-z0-9]+"),
    keys.IMAGE: TEXT,
    keys.MODE: one_of("clone", "run", "static"),
    keys.OS: one_of("linux", "windows", "android", "macos"),
    keys.STORAGE: like(r"[0-9]+([numkMGTPE]|[KMGTPE]i|e[0-9]+)?"),
    keys.NETWORK: TEXT,
    keys.SNAPSHOT_POLICY: one_of("always", "main-only", "never"),
    keys.MANAGED: FLAG,
    keys.FORCE_PULL: FLAG,
    keys.NO_DIRECT_IO: FLAG,
    keys.FORK_FROM: like(r"vk-[-a-z0-9]+"),
    keys.CONN_TYPE: one_of("ssh", "rdp", "vnc", "adb"),
    keys.BACKEND: one_of("cloud-hypervisor", "firecracker"),
    keys.PROBE_PORT: DECIMAL,
    # Of a static toolbox, at its creation (2.3).
    keys.VM_ID: TEXT,
    keys.VM_IP: TEXT,
    keys.VNC_PORT: DECIMAL,
}
"""Sections 2.3 and 2.4: what the Go operator reads of what an operator writes to a pod, and in which form."""

SET_ANNOTATIONS: Final[dict[str, Reads]] = {
    keys.HINT_NODE: TEXT,
    keys.DELETE_VM_NAMES: _names,
    keys.REBUILD_HISTORY: _history,
}
"""Section 2.6."""

POD_LABELS: Final = frozenset({keys.LABEL_SET, keys.LABEL_ROLE, keys.LABEL_SLOT, keys.LABEL_APP})

STATUS: Final[dict[str, type]] = {
    "observedGeneration": int,
    "phase": str,
    "readyAgents": int,
    "desiredAgents": int,
    "readyToolboxes": int,
    "desiredToolboxes": int,
    "agents": list,
    "toolboxes": list,
    "conditions": list,
}
PHASES: Final = one_of(
    "Pending", "Running", "Scaling", "Suspending", "Suspended", "Waking", "Migrating", "Failed"
)  # fmt: skip
AGENT: Final[dict[str, type]] = {
    "slot": int,
    "role": str,
    "podName": str,
    "vmName": str,
    "vmID": str,
    "ip": str,
    "phase": str,
    "forkedFrom": str,
}
TOOLBOX: Final[dict[str, type]] = {
    "name": str,
    "podName": str,
    "vmName": str,
    "vmID": str,
    "ip": str,
    "phase": str,
    "vncPort": int,
    "connType": str,
}
CONDITION: Final[dict[str, type]] = {
    "type": str,
    "status": str,
    "reason": str,
    "message": str,
    "observedGeneration": int,
    "lastTransitionTime": str,
}
"""Sections 1.4 to 1.7."""


# -- drift (3.6) -------------------------------------------------------------------------------------------------------


def matches(target: Obj, pod: Obj) -> bool:
    """Whether the Go operator leaves a living pod as it is."""
    labels, notes = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    spec, role = target["spec"], labels[keys.LABEL_ROLE]
    if role == "toolbox":
        found = [box for box in spec.get("toolboxes", []) if box["name"] == labels[keys.LABEL_SLOT]]
        if not found:
            return False
        options, mode = found[0], found[0].get("mode", "run")
    else:
        options, mode = spec["agent"], spec["agent"].get("mode", "clone")
    return (
        _described(notes) == _wanted(spec, options, mode)
        and (role == "sub-agent" or keys.FORK_FROM not in notes)
        and _same_resources(pod["spec"]["containers"][0].get("resources", {}), options.get("resources", {}))
        and pod["spec"]["nodeSelector"]["cocoonstack.io/pool"] == spec.get("nodePool", "default")
        and pod["spec"]["nodeSelector"].get("cocoonstack.io/snapshot-cpu-class")
        in (None, spec.get("snapshotCompatibilityClass"))
        and (role == "toolbox" or _same_agent(pod, options))
        and (mode != "static" or _same_static(notes, options))
    )


_OPTIONS: Final = (
    (keys.IMAGE, "image", ""),
    (keys.OS, "os", "linux"),
    (keys.NETWORK, "network", ""),
    (keys.CONN_TYPE, "connType", ""),
    (keys.BACKEND, "backend", "cloud-hypervisor"),
)


def _described(notes: Obj) -> Obj:
    wanted = (
        keys.IMAGE,
        keys.MODE,
        keys.OS,
        keys.STORAGE,
        keys.NETWORK,
        keys.SNAPSHOT_POLICY,
        keys.MANAGED,
        keys.FORCE_PULL,
        keys.NO_DIRECT_IO,
        keys.CONN_TYPE,
        keys.BACKEND,
        keys.PROBE_PORT,
    )
    return {key: notes.get(key, "") for key in wanted}


def _wanted(spec: Obj, options: Obj, mode: str) -> Obj:
    port = int(options.get("probePort", 0))
    return {
        **{key: options.get(field) or default for key, field, default in _OPTIONS},
        keys.MODE: mode,
        keys.STORAGE: str(options.get("storage", "")),
        keys.SNAPSHOT_POLICY: spec.get("snapshotPolicy", "always"),
        keys.MANAGED: "" if mode == "static" else "true",
        keys.FORCE_PULL: "true" if options.get("forcePull") else "",
        keys.NO_DIRECT_IO: "true" if options.get("noDirectIO") else "",
        keys.PROBE_PORT: str(port) if port else "",
    }


def _same_resources(pod: Obj, spec: Obj) -> bool:
    requests = spec.get("requests") or spec.get("limits") or {}
    sides = ((pod.get("limits", {}), spec.get("limits", {})), (pod.get("requests", {}), requests))
    return all(_amount(has.get(name)) == _amount(wants.get(name)) for has, wants in sides for name in ("cpu", "memory"))


_UNITS: Final[dict[str, int | Decimal]] = {
    "": 1,
    "m": Decimal("0.001"),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
}


def _amount(text: Any) -> Decimal | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(text))
    assert found is not None, text
    return Decimal(found[1]) * _UNITS[found[2]]


def _same_agent(pod: Obj, options: Obj) -> bool:
    account = pod["spec"].get("serviceAccountName") or "default"
    return account == (options.get("serviceAccountName") or "default") and pod["spec"]["containers"][0].get(
        "envFrom", []
    ) == options.get("envFrom", [])


def _same_static(notes: Obj, options: Obj) -> bool:
    port = int(options.get("vncPort", 0))
    return (notes.get(keys.VM_ID), notes.get(keys.VM_IP), notes.get(keys.VNC_PORT, "")) == (
        options["staticVMID"],
        options["staticIP"],
        str(port) if port else "",
    )


# -- its next step (4.1) -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """A set, its living pods, and whether main's ``:hibernate`` tag is there."""

    target: Obj
    pods: list[Obj]
    tagged: bool

    @property
    def main(self) -> Obj | None:
        found = [pod for pod in self.pods if pod["metadata"]["labels"][keys.LABEL_ROLE] == "main"]
        return found[0] if found else None

    @property
    def phase(self) -> str:
        return str(self.target.get("status", {}).get("phase", ""))

    @property
    def hint(self) -> str:
        return str(self.target["metadata"].get("annotations", {}).get(keys.HINT_NODE, ""))


def next_step(seen: Seen) -> str:
    """What a pass of the Go operator does first that is more than a status; "" when it has nothing to do.

    Rows of the pipeline in their order, as far as a set that this operator left can reach them: it has a finalizer, and no
    CocoonHibernation acts on it.
    """
    spec, main = seen.target["spec"], seen.main
    generation = seen.target["metadata"]["generation"]
    if any(note(pod, keys.GENERATION) != str(generation) for pod in seen.pods):
        return "stamp"
    if main is not None and note(main, keys.LIFECYCLE_STATE) == "failed":
        return "" if matches(seen.target, main) else "delete main"
    if spec.get("suspend"):
        return _suspended(seen, generation)
    return _migrating(seen) or _waking(seen) or _awake(seen)


def _suspended(seen: Seen, generation: int) -> str:
    release = seen.target["spec"].get("hibernatePolicy") == "release"
    if not release and seen.main is None:
        return "create main, restored" if seen.tagged else "create main, fresh"
    if any(note(pod, keys.HIBERNATE) != "true" for pod in seen.pods):
        return "flag"
    done = all(
        note(pod, keys.LIFECYCLE_STATE) == "hibernated" and int(note(pod, keys.LIFECYCLE_GENERATION)) >= generation
        for pod in seen.pods
        if note(pod, keys.MANAGED) == "true"
    )
    if seen.pods and (not done or not seen.tagged):
        return "wait for the saves"
    return "release" if release and seen.pods else ""


def _migrating(seen: Seen) -> str:
    wanted, main = seen.target["spec"].get("nodeName", ""), seen.main
    if not wanted and seen.phase != "Migrating":
        return ""
    node = main["spec"].get("nodeName", "") if main is not None else ""
    flagged = main is not None and note(main, keys.HIBERNATE) == "true"
    if seen.phase != "Migrating" and main is not None and node == wanted and live(main) and not flagged:
        return ""
    if not seen.tagged:
        return "wait for main's save" if wanted and node and node != wanted else ""
    if main is None:
        return "create main, restored"
    if wanted and node and node != wanted:
        return "delete the old main" if flagged else "drop the tag"
    if flagged:
        return "clear main's flag"
    if not live(main):
        return "wait for main" if seen.phase == "Migrating" else ""
    return "drop the tag"


def _waking(seen: Seen) -> str:
    main = seen.main
    unfinished = (
        main is not None
        and note(main, keys.RESTORE) == "true"
        and note(main, keys.HIBERNATE) != "true"
        and seen.hint != ""
    )
    waking = seen.phase == "Waking" or unfinished
    slept = seen.phase == "Suspended" or (seen.phase == "Suspending" and seen.hint != "")
    if main is None and (waking or slept):
        return "create main, restored" if seen.tagged else ""
    if waking and main is not None:
        return "drop the tag" if live(main) else "wait for main"
    return ""


def _awake(seen: Seen) -> str:
    main, spec = seen.main, seen.target["spec"]
    if any(note(pod, keys.HIBERNATE) == "true" for pod in seen.pods):
        return "clear flags"
    if main is None:
        return "create main, fresh"
    if not matches(seen.target, main):
        return "delete main"
    if not ready(main):
        return "wait for main"
    wanted = {str(slot) for slot in range(spec["agent"].get("replicas", 0) + 1)}
    wanted |= {box["name"] for box in spec.get("toolboxes", [])}
    slots = {pod["metadata"]["labels"][keys.LABEL_SLOT] for pod in seen.pods}
    if wanted != slots:
        return f"create {sorted(wanted - slots)}, delete {sorted(slots - wanted)}"
    others = [pod for pod in seen.pods if pod is not main and note(pod, keys.DEAD_LETTER) != "true"]
    drifted = [pod["metadata"]["name"] for pod in others if not matches(seen.target, pod)]
    return f"delete {drifted}" if drifted else ""


def note(pod: Obj, key: str) -> str:
    return str(pod["metadata"].get("annotations", {}).get(key, ""))


def live(pod: Obj) -> bool:
    """``vmLive`` (section 0)."""
    containers = pod["status"].get("containerStatuses", [])
    return note(pod, keys.VM_ID) != "" and any("running" in each.get("state", {}) for each in containers)


def ready(pod: Obj) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
