"""The description of a VM that a pod carries for the node agent (contract 2.3, S030-S034)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cocoon_operator.api import keys, quantity
from cocoon_operator.api.cocoonset import CocoonSetSpec, ToolboxSpec, VMOptions
from cocoon_operator.api.enums import ToolboxMode
from cocoon_operator.api.pod import parse_int


@dataclass(frozen=True, slots=True)
class VMSpec:
    """One VM, described. An empty text means that its annotation is absent; ``probe_port`` 0 likewise."""

    name: str = ""
    image: str = ""
    mode: str = ""
    os: str = ""
    storage: str = ""
    network: str = ""
    snapshot_policy: str = ""
    managed: bool = False
    force_pull: bool = False
    no_direct_io: bool = False
    fork_from: str = ""
    conn_type: str = ""
    backend: str = ""
    probe_port: int = 0

    @classmethod
    def for_agent(cls, spec: CocoonSetSpec, vm_name: str, fork_from: str = "") -> VMSpec:
        """Describe an agent's VM (S031, S032); ``fork_from`` is the main agent's VM name for a sub-agent."""
        agent = spec.agent
        return cls._describe(
            agent, vm_name, image=agent.image, mode=agent.mode, policy=spec.snapshot_policy, fork_from=fork_from
        )

    @classmethod
    def for_toolbox(cls, spec: CocoonSetSpec, toolbox: ToolboxSpec, vm_name: str) -> VMSpec:
        """Describe a toolbox's VM; a static one is not managed by the node agent (S033)."""
        return cls._describe(
            toolbox,
            vm_name,
            image=toolbox.image,
            mode=toolbox.mode,
            policy=spec.snapshot_policy,
            managed=toolbox.mode is not ToolboxMode.STATIC,
        )

    @classmethod
    def from_annotations(cls, annotations: Mapping[str, str]) -> VMSpec:
        """Read a description back (S030). Never raises: what is malformed reads as absent."""
        text = annotations.get
        return cls(
            name=text(keys.VM_NAME, ""),
            image=text(keys.IMAGE, ""),
            mode=text(keys.MODE, ""),
            os=text(keys.OS, ""),
            storage=text(keys.STORAGE, ""),
            network=text(keys.NETWORK, ""),
            snapshot_policy=text(keys.SNAPSHOT_POLICY, ""),
            managed=text(keys.MANAGED) == "true",
            force_pull=text(keys.FORCE_PULL) == "true",
            no_direct_io=text(keys.NO_DIRECT_IO) == "true",
            fork_from=text(keys.FORK_FROM, ""),
            conn_type=text(keys.CONN_TYPE, ""),
            backend=text(keys.BACKEND, ""),
            probe_port=max(0, parse_int(text(keys.PROBE_PORT))),
        )

    def to_annotations(self) -> dict[str, str]:
        """Return the annotations to merge into a pod's: only what is set; nothing existing is cleared (S034)."""
        annotations = {
            keys.VM_NAME: self.name,
            keys.IMAGE: self.image,
            keys.MODE: self.mode,
            keys.OS: self.os,
            keys.STORAGE: self.storage,
            keys.NETWORK: self.network,
            keys.SNAPSHOT_POLICY: self.snapshot_policy,
            keys.MANAGED: _flag(self.managed),
            keys.FORCE_PULL: _flag(self.force_pull),
            keys.NO_DIRECT_IO: _flag(self.no_direct_io),
            keys.FORK_FROM: self.fork_from,
            keys.CONN_TYPE: self.conn_type,
            keys.BACKEND: self.backend,
            keys.PROBE_PORT: str(self.probe_port) if self.probe_port > 0 else "",
        }
        return {key: value for key, value in annotations.items() if value}

    @classmethod
    def _describe(
        cls,
        options: VMOptions,
        vm_name: str,
        *,
        image: str,
        mode: str,
        policy: str,
        managed: bool = True,
        fork_from: str = "",
    ) -> VMSpec:
        return cls(
            name=vm_name,
            image=image,
            mode=str(mode),
            os=str(options.os),
            storage="" if options.storage is None else quantity.canonical(options.storage),
            network=options.network,
            snapshot_policy=str(policy),
            managed=managed,
            force_pull=options.force_pull,
            no_direct_io=options.no_direct_io,
            fork_from=fork_from,
            conn_type=str(options.conn_type or ""),
            backend=str(options.backend),
            probe_port=options.probe_port,
        )


def _flag(value: bool) -> str:
    return "true" if value else ""
