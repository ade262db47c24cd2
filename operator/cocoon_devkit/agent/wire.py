"""The agent's own vocabulary: annotation keys, states, media types (contract 0.4, 1.2, 5.3).

The agent stands in for a foreign program, so it spells the wire format itself and shares no constant with the operator: a
misspelt key on either side shows up as a failing end-to-end test.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Obj: TypeAlias = dict[str, Any]

# What the operator asks for.
VM_NAME: Final = "vm.cocoonstack.io/name"
MODE: Final = "cocoonset.cocoonstack.io/mode"
IMAGE: Final = "cocoonset.cocoonstack.io/image"
STORAGE: Final = "cocoonset.cocoonstack.io/storage"
MANAGED: Final = "cocoonset.cocoonstack.io/managed"
OS: Final = "cocoonset.cocoonstack.io/os"
SNAPSHOT_POLICY: Final = "cocoonset.cocoonstack.io/snapshot-policy"
FORCE_PULL: Final = "cocoonset.cocoonstack.io/force-pull"
GENERATION: Final = "cocoonset.cocoonstack.io/generation"
HIBERNATE: Final = "vm.cocoonstack.io/hibernate"
RESTORE: Final = "vm.cocoonstack.io/restore-from-hibernate"
KEEP_SNAPSHOT: Final = "vm.cocoonstack.io/keep-snapshot-on-delete"
FORK_FROM: Final = "vm.cocoonstack.io/fork-from"
CLONE_FROM_DIR: Final = "vm.cocoonstack.io/clone-from-dir"
BACKEND: Final = "vm.cocoonstack.io/backend"
PROBE_PORT: Final = "vm.cocoonstack.io/probe-port"

# What a user asks for (3.5).
SNAPSHOT: Final = "vm.cocoonstack.io/snapshot"

# What the agent answers.
VM_ID: Final = "vm.cocoonstack.io/id"
VM_IP: Final = "vm.cocoonstack.io/ip"
LIFECYCLE_STATE: Final = "vm.cocoonstack.io/lifecycle-state"
LIFECYCLE_GENERATION: Final = "vm.cocoonstack.io/lifecycle-observed-generation"
LIFECYCLE_MESSAGE: Final = "vm.cocoonstack.io/lifecycle-state-message"
POST_CLONE_STATE: Final = "vm.cocoonstack.io/post-clone-state"
POST_CLONE_HINT: Final = "vm.cocoonstack.io/post-clone-hint"
POST_CLONE_ERRORS: Final = "vm.cocoonstack.io/post-clone-errors"
SNAPSHOT_STATUS: Final = "vm.cocoonstack.io/snapshot-status"

AGENT_KEYS: Final = frozenset(
    {
        VM_ID,
        VM_IP,
        LIFECYCLE_STATE,
        LIFECYCLE_GENERATION,
        LIFECYCLE_MESSAGE,
        POST_CLONE_STATE,
        POST_CLONE_HINT,
        POST_CLONE_ERRORS,
        SNAPSHOT_STATUS,
    }
)
"""Annotations that the agent writes: a change in one of them is never news for the agent."""

# Lifecycle states (R0.7).
CREATING: Final = "creating"
READY: Final = "ready"
HIBERNATING: Final = "hibernating"
HIBERNATED: Final = "hibernated"
FAILED: Final = "failed"

HIBERNATE_PREFIX: Final = "hibernate: "
"""Start of the message of a failure that leaves a living VM and may be lifted (R3.6, R3.9)."""

TAG_HIBERNATE: Final = "hibernate"
TAG_LATEST: Final = "latest"

# Node labels and taint (R1.1, R1.2).
NODE_POOL: Final = "cocoonstack.io/pool"
NODE_CPU_CLASS: Final = "cocoonstack.io/snapshot-cpu-class"
NODE_HOSTNAME: Final = "kubernetes.io/hostname"
TAINT_KEY: Final = "virtual-kubelet.io/provider"

# Registry media types (5.3).
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
SNAPSHOT_V1: Final = "application/vnd.cocoonstack.snapshot.v1+json"
SNAPSHOT_V2: Final = "application/vnd.cocoonstack.snapshot.v2+json"
SNAPSHOT_CONFIG: Final = "application/vnd.cocoonstack.snapshot.config.v1+json"
OS_IMAGE: Final = "application/vnd.cocoonstack.os-image.v1+json"
WINDOWS_IMAGE: Final = "application/vnd.cocoonstack.windows-image.v1+json"

TITLE: Final = "org.opencontainers.image.title"
CREATED: Final = "org.opencontainers.image.created"
BASE_IMAGE: Final = "cocoonstack.snapshot.baseimage"
FROM_NODE: Final = "cocoonstack.snapshot.from-node"
