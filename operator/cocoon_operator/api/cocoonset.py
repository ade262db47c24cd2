"""The CocoonSet as types (contract 1.1-1.6). The CRD is generated from them: a field's text here is its text there."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from pydantic import ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from cocoon_operator.api import quantity, setrules
from cocoon_operator.api.conditions import Condition
from cocoon_operator.api.enums import (
    AgentMode,
    Backend,
    ConnType,
    HibernatePolicy,
    OperatingSystem,
    SetPhase,
    SnapshotPolicy,
    ToolboxMode,
)
from cocoon_operator.api.wire import CRD_DEFAULT, Bool, Int32, Int64, WireModel, list_map

DEFAULT_POOL: Final = "default"


def _quantity(value: Any) -> Any:
    quantity.check(value)
    return value


QuantityValue: TypeAlias = Annotated[
    str | int | float,
    PlainValidator(_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": quantity.PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
Port: TypeAlias = Annotated[Int32, Field(ge=0, le=65535)]


def _object_reference(kind: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": f"The {kind} to read from; it must be in the set's namespace.",
        "properties": {
            "name": {"type": "string", "default": "", "description": f"Name of the {kind}.", **CRD_DEFAULT},
            "optional": {"type": "boolean", "description": f"Whether the pod may start without the {kind}."},
        },
        "x-kubernetes-map-type": "atomic",
    }


EnvFromSource: TypeAlias = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "description": "A ConfigMap or Secret whose keys become environment variables (core/v1 EnvFromSource).",
            "properties": {
                "prefix": {"type": "string", "description": "Text put before every key."},
                "configMapRef": _object_reference("ConfigMap"),
                "secretRef": _object_reference("Secret"),
            },
        }
    ),
]


class ResourceClaim(WireModel):
    """A reference to an entry of a pod's resourceClaims (core/v1)."""

    name: str
    """Name of the claim."""
    request: str = ""
    """Name of one request of the claim; empty means all of them."""


class ResourceRequirements(WireModel):
    """Compute resources (core/v1 ResourceRequirements)."""

    limits: dict[str, QuantityValue] = Field(default_factory=dict)
    """The most that may be used, by resource name."""
    requests: dict[str, QuantityValue] = Field(default_factory=dict)
    """The least that is needed, by resource name; the limits where it is left out."""
    claims: Annotated[tuple[ResourceClaim, ...], Field(json_schema_extra=list_map("name"))] = ()
    """Resources of the pod's resourceClaims that are used."""


_NO_RESOURCES: Final = ResourceRequirements()


class VMOptions(WireModel):
    """What agents and toolboxes have in common."""

    os: OperatingSystem = Field(default=OperatingSystem.LINUX, json_schema_extra=dict(CRD_DEFAULT))
    """Operating system of the guest."""
    backend: Backend = Field(default=Backend.CLOUD_HYPERVISOR, json_schema_extra=dict(CRD_DEFAULT))
    """Hypervisor that runs the VM."""
    conn_type: ConnType | None = None
    """How a person connects; inferred from the VNC port and the operating system when left out."""
    network: str = ""
    """Network that the VM is attached to; empty means the node's own choice."""
    force_pull: Bool = False
    """Pull the image even if the node has it."""
    no_direct_io: Bool = Field(default=False, alias="noDirectIO")
    """Open the VM's disks through the host's page cache; cloud-hypervisor only."""
    probe_port: Port = 0
    """TCP port of the guest that must answer before the VM is ready; 0 means that it is pinged instead."""
    storage: QuantityValue | None = None
    """Size of the VM's disk. It is also requested from the node as ephemeral storage."""
    resources: ResourceRequirements = _NO_RESOURCES
    """Processors and memory of the VM."""


class AgentSpec(VMOptions):
    """The main agent, and the sub-agents that are forked from it."""

    model_config = ConfigDict(json_schema_extra=setrules.AGENT)

    replicas: Annotated[Int32, Field(ge=0)] = Field(default=0, json_schema_extra=dict(CRD_DEFAULT))
    """Number of sub-agents. The main agent exists in addition to them."""
    image: str = Field(min_length=1, json_schema_extra={"maxLength": setrules.MAX_IMAGE})
    """Image that the VM is cloned or run from."""
    mode: AgentMode = Field(default=AgentMode.CLONE, json_schema_extra=dict(CRD_DEFAULT))
    """Clone the VM from a snapshot image, or run it from a disk image."""
    env_from: tuple[EnvFromSource, ...] = ()
    """Sources of environment variables for the agent."""
    service_account_name: str = ""
    """ServiceAccount of the agents' pods; empty means the namespace's default."""


class ToolboxSpec(VMOptions):
    """A VM beside the agents, or a machine that exists anyway."""

    model_config = ConfigDict(json_schema_extra=setrules.TOOLBOX)

    name: str = Field(
        min_length=1, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", json_schema_extra={"maxLength": setrules.MAX_NAME}
    )
    """Name of the toolbox, part of its pod's and its VM's name."""
    image: str = Field(default="", json_schema_extra={"maxLength": setrules.MAX_IMAGE})
    """Image that the VM is run or cloned from; not used in mode static."""
    mode: ToolboxMode = Field(default=ToolboxMode.RUN, json_schema_extra=dict(CRD_DEFAULT))
    """Run the VM from a disk image, clone it from a snapshot image, or only represent a machine that exists anyway."""
    static_ip: str = Field(default="", alias="staticIP")
    """Address of the machine; only in mode static."""
    static_vm_id: str = Field(default="", alias="staticVMID")
    """Identity of the machine; only in mode static."""
    vnc_port: Port = 0
    """VNC port of the machine; only in mode static."""


class CocoonSetSpec(WireModel):
    """What a user asks for."""

    model_config = ConfigDict(json_schema_extra=setrules.SPEC)

    suspend: Bool = False
    """Save every VM and put it to sleep; hibernatePolicy says what becomes of the pods."""
    snapshot_policy: SnapshotPolicy = Field(default=SnapshotPolicy.ALWAYS, json_schema_extra=dict(CRD_DEFAULT))
    """Which VMs are pushed as :latest when their pod is deleted: always, main-only or never."""
    hibernate_policy: HibernatePolicy = Field(default=HibernatePolicy.RETAIN, json_schema_extra=dict(CRD_DEFAULT))
    """Keep the pods of a suspended set (retain), or delete them and free their seat (release)."""
    node_pool: str = Field(default=DEFAULT_POOL, json_schema_extra=dict(CRD_DEFAULT))
    """Pool of nodes that the VMs run on, by the node label cocoonstack.io/pool."""
    snapshot_compatibility_class: str = Field(
        default="", max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
    )
    """Class of processors that snapshots of this set can be restored on, by the node label
    cocoonstack.io/snapshot-cpu-class. It can be set once and never be changed."""
    node_name: str = ""
    """Node that the main agent is pinned to. Changing it moves the agent, its memory included."""
    agent: AgentSpec
    """The main agent and its sub-agents."""
    toolboxes: Annotated[
        tuple[ToolboxSpec, ...], Field(json_schema_extra={"maxItems": setrules.MAX_TOOLBOXES, **setrules.TOOLBOXES})
    ] = ()
    """VMs and machines beside the agents."""


class AgentStatus(WireModel):
    """One agent as it was last seen."""

    slot: Int32
    """0 for the main agent, else the number of the sub-agent."""
    role: str
    """main or sub-agent."""
    pod_name: str = ""
    """Name of the pod."""
    vm_name: str = ""
    """Name of the VM, and of its repository in the registry."""
    vm_id: str = Field(default="", alias="vmID")
    """Identity of the VM on its node; empty while there is none."""
    ip: str = ""
    """Address of the VM."""
    phase: str = ""
    """Phase of the pod."""
    forked_from: str = ""
    """Name of the VM that this one is forked from."""
    snapshot_digest: str = ""
    """Digest of the manifest under which the VM's state was seen saved."""


class ToolboxStatus(WireModel):
    """One toolbox as it was last seen."""

    name: str
    """Name of the toolbox."""
    pod_name: str = ""
    """Name of the pod."""
    vm_name: str = ""
    """Name of the VM, and of its repository in the registry."""
    vm_id: str = Field(default="", alias="vmID")
    """Identity of the VM on its node; empty while there is none."""
    ip: str = ""
    """Address of the VM."""
    vnc_port: Int32 = 0
    """VNC port of the VM."""
    conn_type: ConnType | None = None
    """How a person connects to the VM."""
    phase: str = ""
    """Phase of the pod."""
    snapshot_digest: str = ""
    """Digest of the manifest under which the VM's state was seen saved."""


class CocoonSetStatus(WireModel):
    """What was last seen of the set."""

    observed_generation: Int64 = 0
    """Generation of the spec that this status was computed for."""
    phase: SetPhase | None = None
    """The set in one word."""
    ready_agents: Int32 = 0
    """Number of ready agents, the main agent included."""
    desired_agents: Int32 = 0
    """Number of agents asked for, the main agent included."""
    ready_toolboxes: Int32 = 0
    """Number of ready toolboxes."""
    desired_toolboxes: Int32 = 0
    """Number of toolboxes asked for."""
    agents: Annotated[tuple[AgentStatus, ...], Field(json_schema_extra=list_map("slot"))] = ()
    """The agents, the main agent first."""
    toolboxes: Annotated[tuple[ToolboxStatus, ...], Field(json_schema_extra=list_map("name"))] = ()
    """The toolboxes by name."""
    conditions: Annotated[tuple[Condition, ...], Field(json_schema_extra=list_map("type"))] = ()
    """Conditions in the usual sense; Ready and Progressing are always there."""


class SpecError(ValueError):
    """A stored spec that cannot be read; ``field`` is its path, e.g. ``spec.agent.image``."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def parse_spec(raw: Any) -> CocoonSetSpec:
    """Read ``spec`` of a CocoonSet. Raises :class:`SpecError`, and nothing else, when it cannot be read."""
    if raw is None:
        raise SpecError("spec", "is required")
    try:
        return CocoonSetSpec.model_validate(raw)
    except ValidationError as error:
        raise spec_error(error) from None


def spec_error(error: ValidationError) -> SpecError:
    """Turn the first finding of a failed reading into one sentence that names the field."""
    details = error.errors(include_url=False, include_input=False)[0]
    field = "spec"
    for part in details["loc"]:
        field += f"[{part}]" if isinstance(part, int) else f".{part}"
    return SpecError(field, _sentence(details))


_SENTENCES: Final = {
    "missing": "is required",
    "string_too_short": "must not be empty",
    "string_too_long": "must not be longer than {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "enum": "must be one of {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "value_error": "{error}",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "tuple_type": "must be a list",
}


def _sentence(details: ErrorDetails) -> str:
    sentence = _SENTENCES.get(details["type"])
    if sentence is None:
        return details["msg"].replace("Input should be", "must be")
    return sentence.format(**details.get("ctx", {}))
