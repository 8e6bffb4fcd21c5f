{{/* A job before the roll-out: (dict "root" $ "name" "keys" "arguments" (list …) "environment" "…"
"account" "sluice-keys" "weight" "-5" "authority" (dict "name" … "from" …)), the last if it needs one. */}}
{{- define "sluice.job" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: sluice-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "sluice.labels" (dict "root" .root "component" .name) | nindent 4 }}
  {{- include "sluice.hook" . | nindent 2 }}
spec:
  # Eight attempts take over ten minutes: a database that starts beside this has time to.
  backoffLimit: 8
  {{- if not .root.Values.jobs.hooks }}
  # The next version's job has the same name, and a job can't be changed.
  ttlSecondsAfterFinished: 600
  {{- end }}
  template:
    metadata:
      labels: {{- include "sluice.labels" (dict "root" .root "component" .name) | nindent 8 }}
    spec:
      restartPolicy: Never
      {{- if .account }}
      serviceAccountName: {{ .account }}
      {{- end }}
      automountServiceAccountToken: {{ not (empty .account) }}
      enableServiceLinks: false
      securityContext: {{- include "sluice.podSecurity" .root | nindent 8 }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      containers:
        - name: {{ .name }}
          image: {{ include "sluice.image" (dict "root" .root "image" .root.Values.images.control) }}
          imagePullPolicy: {{ .root.Values.images.control.pullPolicy }}
          args: {{ .arguments | toJson }}
          env:
            - {name: SLUICE_LOG_FORMAT, value: json}
            - {name: SLUICE_DATA_DIR, value: /tmp}
            {{- .environment | nindent 12 }}
          resources: {{- toYaml .root.Values.jobs.resources | nindent 12 }}
          securityContext: {{- include "sluice.containerSecurity" .root | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- with .authority }}
            {{- with include "sluice.authority.mount" . }}{{ . | nindent 12 }}{{ end }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 16Mi}
        {{- with .authority }}
        {{- with include "sluice.authority.volume" . }}{{ . | nindent 8 }}{{ end }}
        {{- end }}
{{- end -}}

{{/* The annotations of a hook before install and upgrade. What a hook leaves is removed when all of
them have succeeded, so that the right to create Secrets lasts no longer than it is needed. */}}
{{- define "sluice.hook" -}}
{{- if .root.Values.jobs.hooks -}}
annotations:
  helm.sh/hook: pre-install,pre-upgrade
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
{{- end -}}
