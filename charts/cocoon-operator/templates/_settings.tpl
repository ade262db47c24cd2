{{/*
The operator's variables and what the values say for them; an empty one is not set.
*/}}
{{- define "cocoon-operator.variables" -}}
{{- $files := include "cocoon-operator.secrets" . }}
OCI_REGISTRY: {{ include "cocoon-operator.registry" . | quote }}
WATCH_NAMESPACE: {{ .Values.watchNamespace | quote }}
OPERATOR_LOG_LEVEL: {{ .Values.logLevel | quote }}
LOG_FORMAT: {{ .Values.logFormat | quote }}
COCOONSET_CONCURRENCY: {{ .Values.cocoonsetConcurrency | int | quote }}
HIBERNATION_CONCURRENCY: {{ .Values.hibernationConcurrency | int | quote }}
HIBERNATE_TIMEOUT: {{ .Values.hibernateTimeout | quote }}
WAKE_TIMEOUT: {{ .Values.wakeTimeout | quote }}
TAG_COLLECTION_TIMEOUT: {{ .Values.tagCollectionTimeout | quote }}
REGISTRY_TIMEOUT: {{ .Values.registryTimeout | quote }}
RESYNC_INTERVAL: {{ .Values.resyncInterval | quote }}
CRD_TIMEOUT: {{ .Values.crdTimeout | quote }}
LEADER_ELECT_LEASE_DURATION: {{ .Values.leaderElection.leaseDuration | quote }}
LEADER_ELECT_RENEW_DEADLINE: {{ .Values.leaderElection.renewDeadline | quote }}
LEADER_ELECT_RETRY_PERIOD: {{ .Values.leaderElection.retryPeriod | quote }}
{{- if .Values.registryCredentialsSecret }}
DOCKER_CONFIG: {{ $files }}/registry
{{- end }}
{{- if .Values.registryCA.configMap }}
SSL_CERT_FILE: {{ $files }}/registry-ca/ca.crt
{{- end }}
{{- if .Values.registryClientCert.secret }}
REGISTRY_CLIENT_CERT: {{ $files }}/registry-client-cert/tls.crt
REGISTRY_CLIENT_KEY: {{ $files }}/registry-client-cert/tls.key
{{- end }}
{{- if .Values.google.credentialsSecret }}
GOOGLE_APPLICATION_CREDENTIALS: {{ $files }}/google/key.json
{{- end }}
{{- end }}

{{/*
Its files: one volume a file, of a Secret or a ConfigMap of the user.
*/}}
{{- define "cocoon-operator.volumes" -}}
{{- with .Values.registryCredentialsSecret }}
- name: registry
  secret:
    secretName: {{ . | quote }}
    items:
      - key: .dockerconfigjson
        path: config.json
{{- end }}
{{- with .Values.registryCA }}
{{- if .configMap }}
- name: registry-ca
  configMap:
    name: {{ .configMap | quote }}
    items:
      - key: {{ .key | quote }}
        path: ca.crt
{{- end }}
{{- end }}
{{- with .Values.registryClientCert.secret }}
- name: registry-client-cert
  secret:
    secretName: {{ . | quote }}
    items:
      - key: tls.crt
        path: tls.crt
      - key: tls.key
        path: tls.key
{{- end }}
{{- with .Values.google }}
{{- if .credentialsSecret }}
- name: google
  secret:
    secretName: {{ .credentialsSecret | quote }}
    items:
      - key: {{ .credentialsKey | quote }}
        path: key.json
{{- end }}
{{- end }}
{{- end }}

{{- define "cocoon-operator.volumeMounts" -}}
{{- $files := include "cocoon-operator.secrets" . }}
{{- range include "cocoon-operator.volumes" . | fromYamlArray }}
- name: {{ .name }}
  mountPath: {{ $files }}/{{ .name }}
  readOnly: true
{{- end }}
{{- end }}
