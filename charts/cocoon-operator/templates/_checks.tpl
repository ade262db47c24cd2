{{/*
What the schema of the values cannot say.
*/}}
{{- define "cocoon-operator.checks" -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled }}
{{- fail "serviceMonitor.enabled and podMonitor.enabled: everything would be counted twice, enable one of them" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enabled) }}
{{- fail "serviceMonitor.enabled: it finds the pods through the Service, set service.enabled=true or use podMonitor" }}
{{- end }}
{{- $taken := concat (list "METRICS_ADDR" "PROBE_ADDR" "LEADER_ELECT") (include "cocoon-operator.variables" . | fromYaml | keys) }}
{{- range .Values.extraEnv }}
{{- if has .name $taken }}
{{- fail (printf "extraEnv: %s is set by the chart, use the value that it has for it" .name) }}
{{- end }}
{{- end }}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" "helm.sh/chart" }}
{{- range $value := list "commonLabels" "podLabels" }}
{{- range $label, $_ := get $.Values $value }}
{{- if has $label $own }}
{{- fail (printf "%s: %s is set by the chart, and found by others" $value $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
