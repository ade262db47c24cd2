"""Names of the contract, each in one place (``docs/contract/operator.md``, section 2).

They are wire format: a change of one byte orphans every object in every cluster.
"""

from typing import Final

GROUP: Final = "cocoonset.cocoonstack.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND_SET: Final = "CocoonSet"
KIND_HIBERNATION: Final = "CocoonHibernation"
PLURAL_SETS: Final = "cocoonsets"
PLURAL_HIBERNATIONS: Final = "cocoonhibernations"

SET_FINALIZER: Final = "cocoonset.cocoonstack.io/finalizer"
HIBERNATION_FINALIZER: Final = "cocoonhibernation.cocoonset.cocoonstack.io/finalizer"

LEASE_NAME: Final = "cocoon-operator.cocoonset.cocoonstack.io"
EVENT_COMPONENT: Final = "cocoon-operator"

# Labels of a pod.
LABEL_SET: Final = "cocoonset.cocoonstack.io/name"
LABEL_ROLE: Final = "cocoonset.cocoonstack.io/role"
LABEL_SLOT: Final = "cocoonset.cocoonstack.io/slot"
LABEL_APP: Final = "app.kubernetes.io/name"

# Labels of a node that pods select.
NODE_POOL: Final = "cocoonstack.io/pool"
NODE_CPU_CLASS: Final = "cocoonstack.io/snapshot-cpu-class"
NODE_HOSTNAME: Final = "kubernetes.io/hostname"
PROVIDER_TOLERATION: Final = "virtual-kubelet.io/provider"

# Annotations of a pod that describe its VM: the operator writes them at creation, the node agent reads them.
VM_NAME: Final = "vm.cocoonstack.io/name"
IMAGE: Final = "cocoonset.cocoonstack.io/image"
MODE: Final = "cocoonset.cocoonstack.io/mode"
OS: Final = "cocoonset.cocoonstack.io/os"
STORAGE: Final = "cocoonset.cocoonstack.io/storage"
NETWORK: Final = "cocoonset.cocoonstack.io/network"
SNAPSHOT_POLICY: Final = "cocoonset.cocoonstack.io/snapshot-policy"
MANAGED: Final = "cocoonset.cocoonstack.io/managed"
FORCE_PULL: Final = "cocoonset.cocoonstack.io/force-pull"
NO_DIRECT_IO: Final = "vm.cocoonstack.io/no-direct-io"
FORK_FROM: Final = "vm.cocoonstack.io/fork-from"
CONN_TYPE: Final = "vm.cocoonstack.io/conn-type"
BACKEND: Final = "vm.cocoonstack.io/backend"
PROBE_PORT: Final = "vm.cocoonstack.io/probe-port"

# Annotations of a pod by which the operator steers the node agent.
GENERATION: Final = "cocoonset.cocoonstack.io/generation"
HIBERNATE: Final = "vm.cocoonstack.io/hibernate"
RESTORE: Final = "vm.cocoonstack.io/restore-from-hibernate"
KEEP_SNAPSHOT: Final = "vm.cocoonstack.io/keep-snapshot-on-delete"
DEAD_LETTER: Final = "cocoonset.cocoonstack.io/dead-letter"
# What the spec asked for when the pod was made, so that values the API server filled in are never taken for drift (W-10).
APPLIED_RESOURCES: Final = "cocoonset.cocoonstack.io/applied-resources"

# Annotations of a pod that the node agent writes (a static toolbox's id, ip and vnc-port are the operator's).
VM_ID: Final = "vm.cocoonstack.io/id"
VM_IP: Final = "vm.cocoonstack.io/ip"
VNC_PORT: Final = "vm.cocoonstack.io/vnc-port"
LIFECYCLE_STATE: Final = "vm.cocoonstack.io/lifecycle-state"
LIFECYCLE_GENERATION: Final = "vm.cocoonstack.io/lifecycle-observed-generation"
LIFECYCLE_MESSAGE: Final = "vm.cocoonstack.io/lifecycle-state-message"

# Live snapshots: between an API user and the node agent; the operator neither reads nor writes them.
SNAPSHOT_REQUEST: Final = "vm.cocoonstack.io/snapshot"
SNAPSHOT_STATUS: Final = "vm.cocoonstack.io/snapshot-status"

# Annotations of a CocoonSet.
HINT_NODE: Final = "cocoonset.cocoonstack.io/hibernated-on-node"
DELETE_VM_NAMES: Final = "cocoonset.cocoonstack.io/delete-vm-names"
REBUILD_HISTORY: Final = "cocoonset.cocoonstack.io/rebuild-history"
# The Go operator reads the key above and expects slots only, so toolboxes have one of their own.
TOOLBOX_REBUILD_HISTORY: Final = "cocoonset.cocoonstack.io/toolbox-rebuild-history"
DEAD_LETTER_POLICY: Final = "cocoonset.cocoonstack.io/dead-letter-policy"
REMOVING_VM_NAMES: Final = "cocoonset.cocoonstack.io/removing-vm-names"
SNAPSHOT_DIGESTS: Final = "cocoonset.cocoonstack.io/snapshot-digests"
START_FRESH: Final = "cocoonset.cocoonstack.io/start-fresh"

# Tags in the registry; the repository is the VM name.
TAG_HIBERNATE: Final = "hibernate"
TAG_LATEST: Final = "latest"

# Manifest annotation that tells which image a saved VM was made from.
MANIFEST_BASE_IMAGE: Final = "cocoonstack.snapshot.baseimage"
