"""Kubeconfig files of one cluster and one user."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml


def write_kubeconfig(file: Path, *, cluster: dict[str, Any], user: dict[str, Any], namespace: str = "default") -> Path:
    """Write a file that only its owner can read; ``cluster`` and ``user`` are in the kubeconfig's own form."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cocoon", "cluster": cluster}],
        "users": [{"name": "cocoon", "user": user}],
        "contexts": [{"name": "cocoon", "context": {"cluster": "cocoon", "user": "cocoon", "namespace": namespace}}],
        "current-context": "cocoon",
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


def cluster_entry(server: str, authority: Path) -> dict[str, Any]:
    """A cluster that is reached at ``server`` and trusted through ``authority``, which is copied into the entry."""
    return {"server": server, "certificate-authority-data": base64.b64encode(authority.read_bytes()).decode()}
