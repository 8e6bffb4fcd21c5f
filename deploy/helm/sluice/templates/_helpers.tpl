{{/* Names, labels and settings that several objects share. Knows nothing of what is injected
(`_injection.tpl`) nor of what is refused (`_cel.tpl`). */}}

{{/* The labels of an object: (dict "root" $ "component" "control"). */}}
{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: sluice
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* The labels that select a component's pods. They never change: a selector is immutable. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* An image's reference: (dict "root" $ "image" .Values.images.control). */}}
{{- define "sluice.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Where sidecars find the control API. */}}
{{- define "sluice.controlUrl" -}}
{{ ternary "https" "http" (not (empty .Values.control.tls.secretName)) }}://sluice-control.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:8700
{{- end -}}

{{/* The security context of every container of this chart's own pods: the Pod Security Standard
`restricted`, and a read-only root. */}}
{{- define "sluice.containerSecurity" -}}
runAsNonRoot: true
runAsUser: 20102
runAsGroup: 20102
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The security context of this chart's own pods. `fsGroup` lets the service's group read the
Secrets that are mounted. */}}
{{- define "sluice.podSecurity" -}}
runAsNonRoot: true
runAsUser: 20102
runAsGroup: 20102
fsGroup: 20102
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The namespaces that are never governed, as a JSON list: a governed cluster must still be able to
start its own system pods, and the pods that govern it. */}}
{{- define "sluice.excludedNamespaces" -}}
{{ concat (list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace) .Values.injection.excludedNamespaces | uniq | toJson }}
{{- end -}}

{{/* Where pods of a component may run: spread over nodes and zones.
(dict "root" $ "component" "control" "values" .Values.control) */}}
{{- define "sluice.scheduling" -}}
{{- with .root.Values.priorityClass.name }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    # A cluster with one node or one zone must still be able to start all replicas.
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "sluice.selector" $ | nindent 8 }}
    # Count only the pods of the same roll-out, so that the old ones don't skew the new.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end -}}
