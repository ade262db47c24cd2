"""What the node agent says about a VM: the lifecycle triple and the runtime triple (contract 2.5, S025-S029).

The operator reads them. The writers serve the agent's side (the test double) and the one case in which the runtime
triple is the operator's: a static toolbox at its creation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cocoon_operator.api import keys
from cocoon_operator.api.enums import LifecycleState
from cocoon_operator.api.pod import Pod, parse_int

WAITABLE: Final = frozenset({LifecycleState.READY, LifecycleState.HIBERNATED, LifecycleState.FAILED})
"""The states that somebody would wait for (S027); the others are on the way to one of them."""

_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """State ("" when none was told), the generation stamp that the agent acted on, and a text for people."""

    state: str = ""
    observed_generation: int = 0
    message: str = ""

    @classmethod
    def read(cls, annotations: Mapping[str, str]) -> Lifecycle:
        """Read the triple (S025). Never raises: an absent state reads as "", a malformed generation as 0."""
        return cls(
            state=annotations.get(keys.LIFECYCLE_STATE, ""),
            observed_generation=parse_int(annotations.get(keys.LIFECYCLE_GENERATION)),
            message=annotations.get(keys.LIFECYCLE_MESSAGE, ""),
        )

    def to_patch(self) -> dict[str, str | None]:
        """Return the merge-patch map of annotations: always all three keys, an empty message removes its key (S026)."""
        return {
            keys.LIFECYCLE_STATE: self.state,
            keys.LIFECYCLE_GENERATION: str(self.observed_generation),
            keys.LIFECYCLE_MESSAGE: self.message or None,
        }

    @property
    def waitable(self) -> bool:
        """Whether the state is one that somebody would wait for (S027)."""
        return self.state in WAITABLE

    @property
    def key(self) -> str:
        """A text that is equal for equal triples only, whatever the message contains (S027)."""
        return json.dumps([self.state, self.observed_generation, self.message])


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """Where the VM is: its id on the node, its address, its VNC port (0: none)."""

    vm_id: str = ""
    ip: str = ""
    vnc_port: int = 0

    @classmethod
    def read(cls, annotations: Mapping[str, str]) -> RuntimeInfo:
        """Read the triple (S029). Never raises: a malformed or impossible port reads as 0."""
        port = parse_int(annotations.get(keys.VNC_PORT))
        return cls(
            vm_id=annotations.get(keys.VM_ID, ""),
            ip=annotations.get(keys.VM_IP, ""),
            vnc_port=port if 0 < port <= _INT32_MAX else 0,
        )

    def to_annotations(self) -> dict[str, str]:
        """Return the annotations of what is known; port 0 is not written (S029)."""
        return {key: value for key, value in self.to_patch().items() if value is not None}

    def to_patch(self) -> dict[str, str | None]:
        """Return the merge-patch map of all three keys; what is unknown is removed."""
        return {
            keys.VM_ID: self.vm_id or None,
            keys.VM_IP: self.ip or None,
            keys.VNC_PORT: str(self.vnc_port) if self.vnc_port > 0 else None,
        }


def is_terminal(pod: Pod) -> bool:
    """Whether lifecycle or pod phase says failed; phase Succeeded does not (S037).

    It does not say that the VM is dead: whoever rebuilds or deletes asks that first (W-62).
    """
    return pod.lifecycle == LifecycleState.FAILED or pod.status.phase == "Failed"
