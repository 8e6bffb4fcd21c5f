{{/* What is injected into the pods of governed namespaces: one fragment, from which the webhook, both
admission policies and `sluice inject` are made. `deploy/kubernetes/admission/README.md` describes its
keys; `deploy/kubernetes/admission/injection.yaml` is this with the default values. Static but for the
text `{serviceAccountName}`: a pod's options reach the containers by the downward API. */}}
{{- define "sluice.injection" -}}
{{- $options := .Values.injection.options -}}
mode: {{ .Values.injection.mode }}
initContainers:
{{- if eq .Values.injection.mode "transparent" }}
- name: sluice-init
  image: {{ include "sluice.image" (dict "root" . "image" .Values.images.sidecar) }}
  imagePullPolicy: {{ .Values.images.sidecar.pullPolicy }}
  args:
  - redirect
  - --port
  - "8712"
  - --sidecar-user
  - "20102"
  {{- if eq .Values.injection.kubernetesApi "direct" }}
  - --kubernetes-api
  - kubernetes.default.svc.{{ .Values.clusterDomain }}:443
  {{- end }}
  {{- if or (has "skip-outbound-ports" $options) (has "skip-subnets" $options) }}
  env:
  {{- range $option := list "skip-outbound-ports" "skip-subnets" }}
  {{- if has $option $options }}
  - name: SLUICE_{{ $option | upper | replace "-" "_" }}
    valueFrom:
      fieldRef:
        fieldPath: metadata.annotations['config.sluice/{{ $option }}']
  {{- end }}
  {{- end }}
  {{- end }}
  resources: {{- include "sluice.quantities" .Values.injection.initResources | trim | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext:
    # Kubernetes gives a capability to root alone (sidecar/redirect/README.md). Without any other,
    # root can set the rules of the pod's own network namespace, and nothing else.
    runAsUser: 0
    runAsGroup: 0
    runAsNonRoot: false
    privileged: false
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
      add: [NET_ADMIN]
    seccompProfile:
      type: RuntimeDefault
{{- end }}
{{ include "sluice.injection.proxy" (dict "root" . "native" true) }}
{{- if has "native-sidecar" $options }}
# For pods whose option `native-sidecar` is `false`: in place of the one above.
containers:
{{ include "sluice.injection.proxy" (dict "root" . "native" false) }}
{{- end }}
volumes:
- name: sluice-data
  emptyDir:
    sizeLimit: {{ .Values.injection.dataSize }}
{{- if eq .Values.identity "workload" }}
- name: sluice-identity
  projected:
    sources:
    - serviceAccountToken:
        audience: sluice
        expirationSeconds: 600
        path: token
{{- else }}
- name: sluice-agent
  secret:
    secretName: sluice-agent-{serviceAccountName}
{{- end }}
- name: sluice-sources-account
  configMap:
    name: sluice-sources-{serviceAccountName}
    optional: true
- name: sluice-sources-namespace
  configMap:
    name: sluice-sources
    optional: true
environment:
{{- if eq .Values.injection.mode "explicit" }}
{{- range list "HTTP_PROXY" "http_proxy" "HTTPS_PROXY" "https_proxy" }}
- name: {{ . }}
  value: http://127.0.0.1:8711
{{- end }}
{{- range list "NO_PROXY" "no_proxy" }}
- name: {{ . }}
  # The kubelet fills in the address of the API server.
  value: localhost,127.0.0.1,::1,kubernetes.default.svc,kubernetes.default.svc.{{ $.Values.clusterDomain }},$(KUBERNETES_SERVICE_HOST)
{{- end }}
{{- else }} []
{{- end }}
options: {{ toJson $options }}
reserved:
  user: 20102
  group: 20102
{{- end -}}

{{/* The container `sluice-proxy`: (dict "root" . "native" true), as a native sidecar, or as an ordinary
container. */}}
{{- define "sluice.injection.proxy" -}}
{{- $values := .root.Values -}}
- name: sluice-proxy
  image: {{ include "sluice.image" (dict "root" .root "image" $values.images.sidecar) }}
  imagePullPolicy: {{ $values.images.sidecar.pullPolicy }}
  {{- if .native }}
  # A native sidecar: it starts before the containers that follow, and ends after them.
  restartPolicy: Always
  {{- end }}
  args: [sidecar, --config-env, SLUICE_SIDECAR_SETTINGS]
  env:
  - name: SLUICE_SIDECAR_SETTINGS
    value: |
      {{- include "sluice.sidecarSettings" .root | nindent 6 }}
      {{- if and (not .native) $values.injection.quitEndpoint }}
      quit_listen: 127.0.0.1:8714
      {{- end }}
  - name: SLUICE_LOG_LEVEL
    {{- if has "log-level" $values.injection.options }}
    valueFrom:
      fieldRef:
        fieldPath: metadata.annotations['config.sluice/log-level']
    {{- else }}
    value: {{ $values.injection.logLevel }}
    {{- end }}
  - name: SLUICE_LOG_FORMAT
    value: json
  ports:
  - name: sluice-api
    containerPort: 8710
    protocol: TCP
  {{- if .native }}
  # Later containers start when the sidecar can decide. It has no liveness probe: a restart would
  # cut the responses that are under way.
  startupProbe:
    httpGet: {path: /health/ready, port: 8710}
    periodSeconds: 1
    timeoutSeconds: 1
    failureThreshold: 120
  {{- else }}
  # Later containers start when the sidecar can decide: beside an ordinary container, the kubelet
  # waits for its hook and for no probe.
  lifecycle:
    postStart:
      exec:
        command: [sluice, wait, --port, "8710", --seconds, "120"]
  {{- end }}
  readinessProbe:
    httpGet: {path: /health/ready, port: 8710}
    periodSeconds: 5
    timeoutSeconds: 2
    failureThreshold: 3
  resources: {{- include "sluice.quantities" $values.injection.resources | trim | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext:
    {{- include "sluice.containerSecurity" .root | nindent 4 }}
    privileged: false
  volumeMounts:
  - name: sluice-data
    mountPath: /var/lib/sluice
  {{- if eq $values.identity "workload" }}
  - name: sluice-identity
    mountPath: /var/run/secrets/sluice
    readOnly: true
  {{- else }}
  - name: sluice-agent
    mountPath: /etc/sluice/agent
    readOnly: true
  {{- end }}
  - name: sluice-sources-account
    mountPath: /etc/sluice/sources/account
    readOnly: true
  - name: sluice-sources-namespace
    mountPath: /etc/sluice/sources/namespace
    readOnly: true
{{- end -}}

{{/* The settings of an injected sidecar (`sluice sidecar --example` explains each). */}}
{{- define "sluice.sidecarSettings" -}}
control: {{ include "sluice.controlUrl" . }}
{{- with .Values.control.tls.ca }}
control_tls:
  ca: {{ toJson . }}
{{- end }}
{{- /* The kubelet's probes arrive at the pod's address, which may be of either IP version. */}}
listen: "*:8710"
{{- if eq .Values.injection.mode "explicit" }}
forward_proxy: 127.0.0.1:8711
{{- else }}
transparent: 127.0.0.1:8712
{{- /* Rules that disappear while the pod runs make it not ready. */}}
redirect_check_seconds: 10
{{- end }}
cache: /var/lib/sluice/cache
spool:
  dir: /var/lib/sluice/spool
  max_bytes: 536870912
drain_seconds: {{ .Values.injection.drainSeconds }}
staleness_seconds: {{ .Values.injection.stalenessSeconds }}
{{- with .Values.authzen }}
authzen: {{ toJson . }}
{{- end }}
{{- if eq .Values.identity "workload" }}
enrol:
  token_file: /var/run/secrets/sluice/token
{{- else }}
key_file: /etc/sluice/agent/sidecar.key
agent:
  key_file: /etc/sluice/agent/agent.key
{{- /* Brings the agent's `id` and `role`. */}}
agent_file: /etc/sluice/agent/agent.yaml
{{- end }}
{{- /* The first of these files that exists replaces `sources`. */}}
sources_files:
- /etc/sluice/sources/account/sources.yaml
- /etc/sluice/sources/namespace/sources.yaml
sources:
{{- if .Values.defaultSources }}
{{ toYaml .Values.defaultSources }}
{{- else }} []
{{- end }}
{{- end -}}

{{/* Requests and limits as texts: the API server stores `cpu: 1` as "1", and what it stores is
compared with this. */}}
{{- define "sluice.quantities" -}}
{{- range $part, $amounts := . }}
{{ $part }}:
  {{- range $name, $amount := $amounts }}
  {{ $name }}: {{ $amount | toString | quote }}
  {{- end }}
{{- end }}
{{- end -}}
