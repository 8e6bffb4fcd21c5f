{{/* The control API's pod: the same in the Deployment (PostgreSQL) and the StatefulSet (SQLite). */}}
{{- define "sluice.controlPod" -}}
{{- $control := .Values.control -}}
{{- $authorities := list (dict "name" "database-ca" "from" $control.databaseCa) (dict "name" "redis-ca" "from" $control.redisCa) -}}
{{- $scheme := ternary "HTTPS" "HTTP" (not (empty $control.tls.secretName)) -}}
metadata:
  labels: {{- include "sluice.labels" (dict "root" . "component" "control") | nindent 4 }}
  annotations:
    # A restart at a change that a running process does not notice.
    checksum/policies: {{ keys $control.policies | sortAlpha | toJson | sha256sum }}
    {{- with $control.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: sluice-control
  automountServiceAccountToken: false
  # Kubernetes would set SLUICE_CONTROL_PORT and the like, which the service refuses as settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $control.terminationGracePeriodSeconds }}
  securityContext: {{- include "sluice.podSecurity" . | nindent 4 }}
  {{- include "sluice.scheduling" (dict "root" . "component" "control" "values" $control) | nindent 2 }}
  containers:
    - name: control
      image: {{ include "sluice.image" (dict "root" . "image" .Values.images.control) }}
      imagePullPolicy: {{ .Values.images.control.pullPolicy }}
      args: [control]
      env: {{- include "sluice.controlEnvironment" . | nindent 8 }}
      ports:
        - name: api
          containerPort: 8700
        - name: metrics
          containerPort: 8701
      # Longer than a start retries a database that does not answer (SLUICE_START_SECONDS).
      startupProbe:
        httpGet: {path: /health, port: api, scheme: {{ $scheme }}}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /health, port: api, scheme: {{ $scheme }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /health/ready, port: api, scheme: {{ $scheme }}}
        periodSeconds: 5
        timeoutSeconds: 5
      {{- include "sluice.preStop" . | nindent 6 }}
      resources: {{- toYaml $control.resources | nindent 8 }}
      securityContext: {{- include "sluice.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - name: data
          mountPath: /var/lib/sluice
        {{- if eq .Values.checkpoints.store "volume" }}
        - name: checkpoints
          mountPath: /var/lib/checkpoints
        {{- end }}
        - name: keys
          mountPath: /etc/sluice/keys
          readOnly: true
        {{- if $control.tls.secretName }}
        - name: tls
          mountPath: /etc/sluice/tls
          readOnly: true
        {{- end }}
        {{- if $control.tls.ca }}
        - name: ca
          mountPath: /etc/sluice/ca
          readOnly: true
        {{- end }}
        {{- range $authorities }}
        {{- with include "sluice.authority.mount" . }}{{ . | nindent 8 }}{{ end }}
        {{- end }}
        {{- if $control.policies }}
        - name: policies
          mountPath: /etc/sluice/policies
          readOnly: true
        {{- end }}
        {{- if include "sluice.ownIssuer" . }}
        - name: api-server
          mountPath: /var/run/secrets/kubernetes.io/serviceaccount
          readOnly: true
        {{- end }}
  volumes:
    {{- if eq $control.database "postgresql" }}
    # A replica keeps nothing: what is here may go with it.
    - name: data
      emptyDir: {sizeLimit: 64Mi}
    {{- end }}
    {{- if eq .Values.checkpoints.store "volume" }}
    - name: checkpoints
      persistentVolumeClaim: {claimName: {{ include "sluice.checkpoints.claim" . }}}
    {{- end }}
    - name: keys
      secret:
        secretName: {{ $control.keys.secretName }}
        # With `fsGroup`, the kubelet lets the service's group read it.
        defaultMode: 0400
    {{- if $control.tls.secretName }}
    - name: tls
      secret:
        secretName: {{ $control.tls.secretName }}
        defaultMode: 0400
    {{- end }}
    {{- if $control.tls.ca }}
    - name: ca
      configMap: {name: sluice-control-ca}
    {{- end }}
    {{- range $authorities }}
    {{- with include "sluice.authority.volume" . }}{{ . | nindent 4 }}{{ end }}
    {{- end }}
    {{- if $control.policies }}
    - name: policies
      configMap:
        name: sluice-policies
        items:
          {{- range $path, $text := $control.policies }}
          - {key: {{ $path | replace "/" "." }}, path: {{ $path | quote }}}
          {{- end }}
    {{- end }}
    {{- if include "sluice.ownIssuer" . }}
    # To read the keys of this cluster's service accounts: no other right goes with this token.
    - name: api-server
      projected:
        sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3600}
          - configMap:
              name: kube-root-ca.crt
              items:
                - {key: ca.crt, path: ca.crt}
    {{- end }}
{{- end -}}

{{/* A pause before SIGTERM, until no load balancer sends new connections here any more. The kubelet
does it itself from 1.30 on; the image needs no shell. */}}
{{- define "sluice.preStop" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}
lifecycle:
  preStop:
    sleep: {seconds: 5}
{{- end -}}
{{- end -}}
