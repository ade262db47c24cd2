"""The chart's policies, and objects that were there before them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from asking import Asking, Refusal, Request, create, patch
from candidates import TOLERATION, Obj, cocoon_set, hibernation, pod, workload

EXEMPT_GROUP: Final = "admission-administrators"
EXEMPT_USER: Final = "root-of-all"
OTHER_CREATOR: Final = "system:serviceaccount:elsewhere:cocoon-operator"

VALUES: Final = {
    "registry": "registry.example.com/cocoon",
    "admission": {
        "exemptUsers": ["somebody-else", EXEMPT_USER],
        "exemptGroups": [EXEMPT_GROUP],
        "pods": {"creators": ["somebody", f" {OTHER_CREATOR} "]},
        # An API server that has once lost these two reads no workloads any more; so they have a cluster of their own.
        "workloads": {"scale": False},
    },
}
_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Standing:
    """What was there before the policies: workloads and objects of older rules, in a namespace of its own."""

    namespace: str

    def workload(self, kind: str, *tolerations: Obj, name: str = "vms") -> Obj:
        return workload(self.namespace, kind, *tolerations, name=name)

    def pod(self) -> Obj:
        return pod(self.namespace, TOLERATION, name="older")

    def hibernation(self) -> Obj:
        return hibernation(self.namespace, "held-0", name="older")

    def long_set(self) -> Obj:
        """A set whose agents' and toolbox's VM names are longer than they may be."""
        name = "x" * (47 - len(f"vk-{self.namespace}--0"))
        box = {"name": "older", "image": "x", "mode": "run"}
        return cocoon_set(self.namespace, name=name, toolboxes=[box])

    def without_spec(self) -> list[Obj]:
        """An object of each kind that an older CRD let in, with a finalizer."""
        bare = [cocoon_set(self.namespace, name="bare"), hibernation(self.namespace, "bare-0")]
        for each in bare:
            del each["spec"]
            each["metadata"]["finalizers"] = ["example.com/held"]
        return bare

    def everything(self) -> list[Obj]:
        """What else there is."""
        kinds = ("Deployment", "StatefulSet")
        of_vms = [self.workload(kind, TOLERATION) for kind in kinds]
        plain = [self.workload(kind, name="plain") for kind in kinds]
        return [*of_vms, *plain, self.pod(), self.hibernation(), self.long_set()]


def probes_of(standing: Standing) -> dict[str, Request]:
    """One request for each policy by its name, which it refuses."""
    namespace = standing.namespace
    down = {"spec": {"replicas": 1}}
    return {
        "cocoon-operator-pods": create(pod(namespace, TOLERATION)),
        "cocoon-operator-workloads": patch(standing.workload("Deployment"), down),
        "cocoon-operator-hibernation-name": create(hibernation(namespace, "a", name="b")),
        "cocoon-operator-hibernation-one": create(hibernation(namespace, "held-0")),
        "cocoon-operator-vm-names": create(cocoon_set(namespace, name="x" * 50)),
    }


def refusing(ask: Asking, probes: dict[str, Request]) -> set[str]:
    """Which policies refuse what they should, by their own rule and not because they are not ready yet."""
    said = {name: ask.says(probe) for name, probe in probes.items()}
    return {name for name, words in said.items() if f"'{name}' denied" in words and "failed to configure" not in words}


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {_SECONDS} seconds: {what}"
        time.sleep(0.05)


def denied(refusal: Refusal, policy: str, message: str) -> None:
    """Check that a policy's own rule refused: 403, the policy's name, and the message that tells the field."""
    assert (refusal.code, refusal.reason) == (403, "Forbidden")
    name = f"cocoon-operator-{policy}"
    assert refusal.message.endswith(
        f" is forbidden: ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {message}"
    )


def scaled_down(kind: str, namespace: str, old: int, new: int) -> str:
    """Return what is said to who scales ``vms`` down."""
    return (
        f"{kind} {namespace}/vms: spec.replicas must not become smaller ({old} to {new}), which would delete "
        "VMs; to put a single one to sleep, create a CocoonHibernation for its pod"
    )
