{{/* The control API's settings (`control_api/README.md`). */}}
{{- define "sluice.controlEnvironment" -}}
{{- $control := .Values.control -}}
- {name: SLUICE_CONTROL_LISTEN, value: "*:8700"}
- {name: SLUICE_METRICS_LISTEN, value: "*:8701"}
- {name: SLUICE_DATA_DIR, value: /var/lib/sluice}
- {name: SLUICE_LOG_FORMAT, value: json}
- {name: SLUICE_LOG_LEVEL, value: {{ $control.logLevel }}}
- {name: SLUICE_WORKERS, value: {{ $control.workers | quote }}}
- {name: SLUICE_REQUIRE_AGENT_ID, value: {{ ternary "1" "0" $control.requireAgentId | quote }}}
- {name: SLUICE_PII_MASKING, value: {{ ternary "1" "0" $control.piiMasking | quote }}}
- {name: SLUICE_RATE_LIMIT, value: {{ $control.rateLimit | quote }}}
{{ include "sluice.databaseEnvironment" . }}
{{- if $control.redisUrl.secretName }}
- name: SLUICE_REDIS_URL
  valueFrom:
    secretKeyRef: {name: {{ $control.redisUrl.secretName }}, key: {{ $control.redisUrl.key }}}
{{- end }}
{{- if $control.oidcClientSecret.secretName }}
- name: SLUICE_OIDC_CLIENT_SECRET
  valueFrom:
    secretKeyRef: {name: {{ $control.oidcClientSecret.secretName }}, key: {{ $control.oidcClientSecret.key }}}
{{- end }}
{{- if $control.consoleUrl }}
- {name: SLUICE_CONSOLE_URL, value: {{ $control.consoleUrl | quote }}}
{{- end }}
{{- if $control.policies }}
- {name: SLUICE_POLICY_DIR, value: /etc/sluice/policies}
{{- end }}
{{- if $control.tls.secretName }}
- {name: SLUICE_TLS_CERTIFICATE, value: /etc/sluice/tls/tls.crt}
- {name: SLUICE_TLS_KEY, value: /etc/sluice/tls/tls.key}
{{- end }}
{{- if eq .Values.identity "workload" }}
- name: SLUICE_ENROL_ISSUERS
  value: {{ include "sluice.issuers" . | quote }}
{{- end }}
# All replicas sign with one key, and accept one admin key from the first start on.
- {name: SLUICE_KEYS_DIR, value: /etc/sluice/keys}
- name: SLUICE_SUPERADMIN_KEY
  valueFrom:
    secretKeyRef: {name: {{ $control.keys.secretName }}, key: superadmin.key}
{{ include "sluice.commandEnvironment" . }}
{{- include "sluice.checkpoints.environment" . }}
{{- range $name, $value := $control.environment }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* For an operator's commands, such as `kubectl exec … -- sluice agents list`: the address, the key, and
the authority of the address's certificate. */}}
{{- define "sluice.commandEnvironment" -}}
- {name: SLUICE_URL, value: {{ include "sluice.controlUrl" . | quote }}}
- {name: SLUICE_KEY_FILE, value: /etc/sluice/keys/admin.key}
{{- if .Values.control.tls.ca }}
- {name: SLUICE_CA, value: /etc/sluice/ca/ca.crt}
{{- end }}
{{- end -}}

{{/* How a process reaches the database. */}}
{{- define "sluice.databaseEnvironment" -}}
{{- $control := .Values.control -}}
{{- if eq $control.database "postgresql" -}}
- name: SLUICE_DATABASE_URL
  valueFrom:
    secretKeyRef: {name: {{ $control.databaseUrl.secretName }}, key: {{ $control.databaseUrl.key }}}
- {name: SLUICE_DATABASE_CONNECTIONS, value: {{ $control.databaseConnections | quote }}}
{{- if $control.databasePooled }}
- {name: SLUICE_DATABASE_POOLED, value: "1"}
{{- end }}
{{- if include "sluice.authority.mount" (dict "name" "database-ca" "from" $control.databaseCa) }}
- {name: PGSSLROOTCERT, value: /etc/sluice/database-ca/ca.crt}
{{- end }}
{{- with $control.listenDatabaseUrl }}
{{- if .secretName }}
- name: SLUICE_LISTEN_DATABASE_URL
  valueFrom:
    secretKeyRef: {name: {{ .secretName }}, key: {{ .key }}}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Where a container finds the authority of a server's certificate, if a value names one:
(dict "name" "database-ca" "from" .Values.control.databaseCa). */}}
{{- define "sluice.authority.mount" -}}
{{- if or .from.configMapName .from.secretName -}}
- {name: {{ .name }}, mountPath: /etc/sluice/{{ .name }}, readOnly: true}
{{- end -}}
{{- end -}}

{{/* The volume of the same. */}}
{{- define "sluice.authority.volume" -}}
{{- if .from.configMapName -}}
- name: {{ .name }}
  configMap:
    name: {{ .from.configMapName }}
    items:
      - {key: {{ .from.key }}, path: ca.crt}
{{- else if .from.secretName -}}
- name: {{ .name }}
  secret:
    secretName: {{ .from.secretName }}
    defaultMode: 0400
    items:
      - {key: {{ .from.key }}, path: ca.crt}
{{- end -}}
{{- end -}}

{{/* SLUICE_ENROL_ISSUERS: the clusters whose service accounts may enrol. This cluster's API server is
verified with the cluster's own authority, and asked with the control API's account. */}}
{{- define "sluice.issuers" -}}
{{- $account := "/var/run/secrets/kubernetes.io/serviceaccount" -}}
{{- $entries := list -}}
{{- range .Values.issuers -}}
{{- $own := ternary (printf ",ca=%s/ca.crt,token_file=%s/token" $account $account) "" (hasPrefix "https://kubernetes.default.svc" .jwks) -}}
{{- $entries = append $entries (printf "%s=%s,tenant=%s%s" .issuer .jwks .tenant $own) -}}
{{- end -}}
{{ join ";" $entries }}
{{- end -}}

{{/* "true" if the control API reads the keys of this cluster's own service accounts. */}}
{{- define "sluice.ownIssuer" -}}
{{- if eq .Values.identity "workload" -}}
{{- range .Values.issuers -}}
{{- if hasPrefix "https://kubernetes.default.svc" .jwks }}true{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
