{{/*
Every object has this one name: an admission webhook lets only the ServiceAccount cocoon-operator create the pods of VMs.
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
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- define "cocoon-operator.registry" -}}
{{- $registry := required "registry must be set: where the VMs' snapshots are, host[:port][/path], for example --set registry=registry.example.com/cocoon" .Values.registry -}}
{{- if contains "://" $registry }}
{{- fail (printf "registry has no scheme: write host[:port][/path] instead of %s" $registry) }}
{{- end }}
{{- $registry -}}
{{- end }}
