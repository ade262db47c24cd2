{{/*
Every object has this one name, or begins with it: an admission webhook lets only the ServiceAccount cocoon-operator
create the pods of VMs. So two releases that would work on the same sets cannot both be installed either.
*/}}
{{- define "cocoon-operator.name" -}}cocoon-operator{{- end }}

{{- define "cocoon-operator.selector" -}}
app.kubernetes.io/name: {{ include "cocoon-operator.name" . }}
{{- end }}

{{- define "cocoon-operator.labels" -}}
{{ include "cocoon-operator.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Labels of an object that gets more of them, which win.
*/}}
{{- define "cocoon-operator.labelsWith" -}}
{{- merge (deepCopy .more) (include "cocoon-operator.labels" .root | fromYaml) | toYaml }}
{{- end }}

{{/*
The pods themselves, and nothing else that carries the name.
*/}}
{{- define "cocoon-operator.pods" -}}
{{ include "cocoon-operator.selector" . }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "cocoon-operator.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "cocoon-operator.metricsService" -}}
{{ include "cocoon-operator.name" . }}-metrics
{{- end }}

{{- define "cocoon-operator.subject" -}}
- kind: ServiceAccount
  name: {{ include "cocoon-operator.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "cocoon-operator.registry" -}}
{{- $registry := required "registry must be set: where the VMs' snapshots are, host[:port][/path], for example --set registry=registry.example.com/cocoon" .Values.registry -}}
{{- if contains "://" $registry }}
{{- fail (printf "registry has no scheme: write host[:port][/path] instead of %s" $registry) }}
{{- end }}
{{- $registry -}}
{{- end }}

{{/*
Where the files of the registry's credentials are in the container.
*/}}
{{- define "cocoon-operator.secrets" -}}/var/run/secrets/cocoonstack.io{{- end }}

{{/*
The pod of `helm test`, which is none of the operator's.
*/}}
{{- define "cocoon-operator.testPod" -}}
app.kubernetes.io/name: {{ include "cocoon-operator.name" . }}-test
app.kubernetes.io/component: test
{{- end }}
