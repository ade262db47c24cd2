"""A double of the node agent ``vk-cocoon``: real API server, real registry, imaginary hypervisor.

``docs/contract`` tells what it does (profile ``current``); ``python -m cocoon_devkit.agent --help`` how to run it.
"""

from cocoon_devkit.agent.fakenodes import FakeNodes
from cocoon_devkit.agent.settings import Capacity, NodeSettings, Speeds, Windows

__all__ = ["Capacity", "FakeNodes", "NodeSettings", "Speeds", "Windows"]
