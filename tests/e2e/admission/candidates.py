"""Objects that admission has to judge."""

from __future__ import annotations

from typing import Any, Final

from cocoon_operator.api import keys

Obj = dict[str, Any]

TAINT: Final = "virtual-kubelet.io/provider"
TOLERATION: Final = {"key": TAINT, "operator": "Exists"}

_NOWHERE: Final = {"nobody": "has-this-label"}


def cocoon_set(namespace: str, agent: Obj | None = None, name: str = "demo", **spec: Any) -> Obj:
    return {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_SET,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"agent": {"image": "team/base:1", **(agent or {})}, **spec},
    }


def hibernation(namespace: str, pod: str, name: str = "", **spec: Any) -> Obj:
    return {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_HIBERNATION,
        "metadata": {"name": name or pod, "namespace": namespace},
        "spec": {"podRef": {"name": pod}, "desire": "Hibernate", **spec},
    }


def pod(namespace: str, *tolerations: Obj, owner: Obj | None = None, name: str = "candidate") -> Obj:
    metadata: Obj = {"name": name, "namespace": namespace}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod_spec(tolerations)}


def owner(name: str = "demo", uid: str = "5b5b0a5c-0000-4000-8000-000000000000", **other: str) -> Obj:
    return {"apiVersion": keys.API_VERSION, "kind": keys.KIND_SET, "name": name, "uid": uid, **other}


def workload(namespace: str, kind: str, *tolerations: Obj, replicas: int = 3, name: str = "vms") -> Obj:
    """A Deployment or StatefulSet whose pods nobody makes: one is paused, no controller runs for the other."""
    template = {"metadata": {"labels": {"app": name}}, "spec": _pod_spec(tolerations)}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    extra: Obj = {"paused": True} if kind == "Deployment" else {"serviceName": name}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {**spec, **extra}}


def _pod_spec(tolerations: tuple[Obj, ...]) -> Obj:
    container = {"name": "agent", "image": "example.invalid/placeholder:latest"}
    return {"containers": [container], "nodeSelector": _NOWHERE, "tolerations": list(tolerations)}
