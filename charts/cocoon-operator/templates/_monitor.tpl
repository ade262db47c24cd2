{{/*
What a ServiceMonitor and a PodMonitor have in common: metadata, and how the metrics are read.
*/}}
{{- define "cocoon-operator.monitor.metadata" -}}
name: {{ include "cocoon-operator.name" .root }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "cocoon-operator.labelsWith" (dict "root" .root "more" .monitor.labels) | nindent 2 }}
{{- end }}

{{- define "cocoon-operator.monitor.endpoint" -}}
port: metrics
path: /metrics
honorLabels: true
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
