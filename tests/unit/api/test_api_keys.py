"""The wire format: a change of one byte here orphans every object in every cluster."""

from __future__ import annotations

from cocoon_operator.api import keys


def test_the_names_of_the_contract() -> None:
    expected = {
        "GROUP": "cocoonset.cocoonstack.io",
        "API_VERSION": "cocoonset.cocoonstack.io/v1",
        "SET_FINALIZER": "cocoonset.cocoonstack.io/finalizer",
        "HIBERNATION_FINALIZER": "cocoonhibernation.cocoonset.cocoonstack.io/finalizer",
        "LEASE_NAME": "cocoon-operator.cocoonset.cocoonstack.io",
        "LABEL_SET": "cocoonset.cocoonstack.io/name",
        "LABEL_ROLE": "cocoonset.cocoonstack.io/role",
        "LABEL_SLOT": "cocoonset.cocoonstack.io/slot",
        "LABEL_APP": "app.kubernetes.io/name",
        "NODE_POOL": "cocoonstack.io/pool",
        "NODE_CPU_CLASS": "cocoonstack.io/snapshot-cpu-class",
        "PROVIDER_TOLERATION": "virtual-kubelet.io/provider",
        "GENERATION": "cocoonset.cocoonstack.io/generation",
        "HIBERNATE": "vm.cocoonstack.io/hibernate",
        "RESTORE": "vm.cocoonstack.io/restore-from-hibernate",
        "KEEP_SNAPSHOT": "vm.cocoonstack.io/keep-snapshot-on-delete",
        "DEAD_LETTER": "cocoonset.cocoonstack.io/dead-letter",
        "LIFECYCLE_STATE": "vm.cocoonstack.io/lifecycle-state",
        "LIFECYCLE_GENERATION": "vm.cocoonstack.io/lifecycle-observed-generation",
        "LIFECYCLE_MESSAGE": "vm.cocoonstack.io/lifecycle-state-message",
        "HINT_NODE": "cocoonset.cocoonstack.io/hibernated-on-node",
        "DELETE_VM_NAMES": "cocoonset.cocoonstack.io/delete-vm-names",
        "REBUILD_HISTORY": "cocoonset.cocoonstack.io/rebuild-history",
        "SNAPSHOT_REQUEST": "vm.cocoonstack.io/snapshot",
        "SNAPSHOT_STATUS": "vm.cocoonstack.io/snapshot-status",
        "TAG_HIBERNATE": "hibernate",
        "TAG_LATEST": "latest",
    }
    assert {name: getattr(keys, name) for name in expected} == expected
