"""What somebody has who follows the pages: a cluster, nodes with a node agent, a registry with an image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.registry import Registry

PREFIX = "pages"
"""The path in the run's registry that stands for the reader's own registry."""
IMAGE = "agent-base:24.04"


@dataclass(frozen=True)
class Reader:
    """``snapshots`` is the reader's ``OCI_REGISTRY``; ``folder`` is for files of the test."""

    cluster: Cluster
    registry: Registry
    nodes: AgentProcess
    folder: Path

    @property
    def snapshots(self) -> str:
        return f"{self.registry.address}/{PREFIX}"
