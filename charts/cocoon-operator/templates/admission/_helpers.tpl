{{/*
"true" where policies are wanted. They are objects of the whole cluster, which an installation for one namespace has no say in.
*/}}
{{- define "cocoon-operator.admission.enabled" -}}
{{- if and .Values.admission.enabled (not .Values.watchNamespace) }}true{{ end }}
{{- end }}

{{- define "cocoon-operator.admission.metadata" -}}
name: {{ include "cocoon-operator.name" .root }}-{{ .rule }}
labels:
  {{- include "cocoon-operator.labels" .root | nindent 2 }}
  app.kubernetes.io/component: admission
{{- end }}

{{/*
What becomes of a request that breaks the rule.
*/}}
{{- define "cocoon-operator.admission.binding" -}}
policyName: {{ include "cocoon-operator.name" .root }}-{{ .rule }}
validationActions: [{{ .root.Values.admission.action }}]
{{- end }}

{{/*
A list of texts as CEL writes it.
*/}}
{{- define "cocoon-operator.admission.list" -}}
[{{ range $index, $text := . }}{{ if $index }}, {{ end }}{{ $text | trim | toJson }}{{ end }}]
{{- end }}

{{- define "cocoon-operator.admission.operator" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "cocoon-operator.name" . }}
{{- end }}

{{/*
Match conditions that let the exempt through. The operator itself is exempt from what is not about its own pods.
*/}}
{{- define "cocoon-operator.admission.notExempt" -}}
{{- $users := .root.Values.admission.exemptUsers }}
{{- if .operator }}
{{- $users = prepend $users (include "cocoon-operator.admission.operator" .root) }}
{{- end }}
{{- with $users }}
- name: user-is-not-exempt
  expression: >-
    !(request.userInfo.username in {{ include "cocoon-operator.admission.list" . }})
{{- end }}
{{- with .root.Values.admission.exemptGroups }}
- name: group-is-not-exempt
  expression: >-
    !has(request.userInfo.groups) || !request.userInfo.groups.exists(group,
    group in {{ include "cocoon-operator.admission.list" . }})
{{- end }}
{{- end }}

{{/*
Whether a pod's spec is that of a VM: it tolerates the taint of the nodes that run them, by its key.
*/}}
{{- define "cocoon-operator.admission.tolerates" -}}
(has({{ . }}.tolerations) && {{ . }}.tolerations.exists(t, has(t.key) && t.key == 'virtual-kubelet.io/provider'))
{{- end }}

{{- define "cocoon-operator.admission.message.scaleDown" -}}
{{ .kind }} + ' ' + request.namespace + '/' + request.name + ': spec.replicas must not become smaller (' +
string({{ .old }}) + ' to ' + string({{ .new }}) + '), which would delete VMs; to put a single one to sleep, create a
CocoonHibernation for its pod'
{{- end }}
