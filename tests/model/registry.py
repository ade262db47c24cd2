"""An in-memory registry behind the operator's port, and behind the model agent's pushes and pulls."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from cocoon_operator.api.answers import Absent, Answer, Done, Present, Refused, Unknown, WriteAnswer


@dataclass
class ModelRegistry:
    """Manifests by digest, tags by name. ``down`` makes it answer nothing; ``refuse`` makes it refuse writes."""

    manifests: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    tags: dict[tuple[str, str], str] = field(default_factory=dict)
    down: str = ""
    refuse_drops: str = ""
    refuse_copies: str = ""
    requests: list[str] = field(default_factory=list)

    def push(self, repo: str, tag: str, content: dict[str, Any]) -> str:
        """What the agent does: the manifest last, then the tag."""
        digest = "sha256:" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        self.manifests[(repo, digest)] = content
        self.tags[(repo, tag)] = digest
        return digest

    def content(self, repo: str, tag: str) -> dict[str, Any] | None:
        digest = self.tags.get((repo, tag))
        return self.manifests[(repo, digest)] if digest else None

    async def probe(self, vm_name: str, reference: str) -> Answer:
        return self._answer("HEAD", vm_name, reference, with_image=False)

    async def inspect(self, vm_name: str, reference: str) -> Answer:
        return self._answer("GET", vm_name, reference, with_image=True)

    async def drop(self, vm_name: str, tag: str) -> WriteAnswer:
        self.requests.append(f"DELETE {vm_name}:{tag}")
        if self.down:
            return Unknown(self.down)
        if self.refuse_drops:
            return Refused(self.refuse_drops)
        self.tags.pop((vm_name, tag), None)
        return Done()

    async def copy(self, vm_name: str, source: str, tag: str) -> WriteAnswer:
        self.requests.append(f"PUT {vm_name}:{tag}")
        if self.down:
            return Unknown(self.down)
        digest = source if source.startswith("sha256:") else self.tags.get((vm_name, source), "")
        if self.refuse_copies or (vm_name, digest) not in self.manifests:
            return Refused(self.refuse_copies or f"{source} does not exist")
        self.tags[(vm_name, tag)] = digest
        return Done()

    def _answer(self, verb: str, repo: str, reference: str, *, with_image: bool) -> Answer:
        self.requests.append(f"{verb} {repo}:{reference}")
        if self.down:
            return Unknown(self.down)
        digest = reference if reference.startswith("sha256:") else self.tags.get((repo, reference), "")
        manifest = self.manifests.get((repo, digest))
        if manifest is None:
            return Absent()
        return Present(digest, str(manifest.get("image", "")) if with_image else "")
