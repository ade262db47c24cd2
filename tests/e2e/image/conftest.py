"""The image, built as the Dockerfile says, and an empty cluster with a registry and nodes, as a reader of the pages has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cocoon_devkit.agent.launch import AgentOptions, AgentProcess
from cocoon_devkit.controlplane import ControlPlane, ControlPlaneOptions
from cocoon_devkit.dev import NODES
from cocoon_devkit.registry import Registry
from cocoon_devkit.scratch import Scratch
from tests.e2e.image.imagebuild import Image, build_image
from tests.e2e.image.reader import IMAGE, PREFIX, Reader


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """The image of the checkout."""
    with Scratch("image") as scratch:
        yield build_image(scratch.path)


@pytest.fixture(scope="session")
def reader(tools: Path, registry: Registry) -> Iterator[Reader]:
    """A cluster without anything of ours, the nodes, and an image in the registry."""
    options = AgentOptions(nodes=NODES, registry=f"{registry.address}/{PREFIX}", time_scale=0.1)
    with (
        Scratch("pages") as scratch,
        ControlPlane(tools, scratch.path / "cluster", ControlPlaneOptions()) as cluster,
        AgentProcess(cluster.kubeconfig, scratch.path / "nodes", options) as nodes,
    ):
        nodes.client.publish_image(IMAGE)
        yield Reader(cluster, registry, nodes, scratch.path)
