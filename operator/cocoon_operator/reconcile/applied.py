"""What a pod's resources were asked to be (W-10).

The API server, a LimitRange or a webhook may fill in or change a container's resources, so comparing the pod with the spec
takes their values for the user's edit and recreates the VM for ever. The pod therefore carries what the spec said when it was
made. A pod of the Go operator carries nothing: there only values that the spec states are compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from cocoon_operator.api import keys, quantity
from cocoon_operator.api.cocoonset import ResourceRequirements
from cocoon_operator.api.pod import Pod, Resources

COMPARED: Final = ("cpu", "memory")


def applied_resources_text(resources: ResourceRequirements) -> str:
    """The annotation's value: cpu and memory as asked for, in canonical quantities."""
    return json.dumps(_asked(resources), separators=(",", ":"), sort_keys=True)


def resources_match(pod: Pod, resources: ResourceRequirements) -> bool:
    """Whether the pod was made for these resources (contract 3.6, item 2)."""
    stored = pod.annotations.get(keys.APPLIED_RESOURCES)
    if stored is not None:
        return stored == applied_resources_text(resources)
    container = pod.spec.containers[0].resources if pod.spec.containers else Resources()
    return _stated_match(container, resources)


def _asked(resources: ResourceRequirements) -> dict[str, dict[str, str]]:
    sides = {"limits": resources.limits, "requests": _effective_requests(resources)}
    return {side: _canonical(values) for side, values in sides.items() if _canonical(values)}


def _effective_requests(resources: ResourceRequirements) -> Mapping[str, Any]:
    """Requests as the API server completes them: a missing one is its limit."""
    return {**resources.limits, **resources.requests}


def _canonical(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: quantity.canonical(values[name]) for name in COMPARED if name in values}


def _stated_match(container: Resources, resources: ResourceRequirements) -> bool:
    wanted = ((container.limits, resources.limits), (container.requests, _effective_requests(resources)))
    return all(
        name in actual and quantity.same(actual[name], stated[name])
        for actual, stated in wanted
        for name in COMPARED
        if name in stated
    )
