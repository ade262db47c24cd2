"""The resources that the operator talks about, and their addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cocoon_operator.api import keys


@dataclass(frozen=True, slots=True)
class Resource:
    """A namespaced resource of the Kubernetes API; ``group`` is "" for core."""

    group: str
    version: str
    plural: str

    @property
    def root(self) -> str:
        """The path of the group and version, which is also where its discovery document is."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of a collection, an object or its subresource; without a namespace, of all namespaces."""
        parts = [self.root]
        if namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


PODS: Final = Resource("", "v1", "pods")
EVENTS: Final = Resource("", "v1", "events")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
SETS: Final = Resource(keys.GROUP, keys.VERSION, keys.PLURAL_SETS)
HIBERNATIONS: Final = Resource(keys.GROUP, keys.VERSION, keys.PLURAL_HIBERNATIONS)
