{{/*
Only what is really called; nothing on Nodes, Secrets, ConfigMaps or the CRDs themselves, and no set is ever made or
deleted (W-38).
*/}}
{{- define "cocoon-operator.rules" -}}
# patch: annotations and finalizers. Nothing ever changes a spec.
- apiGroups: [cocoonset.cocoonstack.io]
  resources: [cocoonsets]
  verbs: [get, list, watch, patch]
- apiGroups: [cocoonset.cocoonstack.io]
  resources: [cocoonsets/status]
  verbs: [patch]
# Pods refer to their set with blockOwnerDeletion; clusters that enforce owner references ask for this right.
- apiGroups: [cocoonset.cocoonstack.io]
  resources: [cocoonsets/finalizers]
  verbs: [update]
- apiGroups: [cocoonset.cocoonstack.io]
  resources: [cocoonhibernations]
  verbs: [get, list, watch, patch]
- apiGroups: [cocoonset.cocoonstack.io]
  resources: [cocoonhibernations/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}
