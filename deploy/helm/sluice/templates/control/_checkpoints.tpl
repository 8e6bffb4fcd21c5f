{{/* Where the control API keeps the audit trail's checkpoints, and who cosigns them
(`control_api/log/checkpoints/README.md`). The schema has checked each value by itself. */}}

{{/* Settings and credentials, as environment variables. Fails if values contradict each other. */}}
{{- define "sluice.checkpoints.environment" -}}
{{- include "sluice.checkpoints.check" . -}}
{{- $checkpoints := .Values.checkpoints -}}
{{- if eq $checkpoints.store "volume" }}
# A folder below the mount: the root of a file system may hold `lost+found`.
- {name: SLUICE_CHECKPOINT_STORE, value: "file:///var/lib/checkpoints/notes"}
{{- else if $checkpoints.store }}
- {name: SLUICE_CHECKPOINT_STORE, value: {{ $checkpoints.store | quote }}}
{{- end }}
{{- with $checkpoints.s3.endpoint }}
- {name: AWS_ENDPOINT_URL_S3, value: {{ . | quote }}}
{{- end }}
{{- with $checkpoints.s3.region }}
- {name: AWS_DEFAULT_REGION, value: {{ . | quote }}}
{{- end }}
{{- with $checkpoints.s3.credentialsSecret }}
{{- range list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: {{ . }}
  valueFrom:
    secretKeyRef: {name: {{ $checkpoints.s3.credentialsSecret }}, key: {{ . }}}
{{- end }}
{{- end }}
{{- with $checkpoints.witnesses }}
- {name: SLUICE_WITNESSES, value: {{ join "," . | quote }}}
{{- end }}
{{- with $checkpoints.quorum }}
- {name: SLUICE_WITNESS_QUORUM, value: {{ . | quote }}}
{{- end }}
{{- end -}}

{{/* Renders nothing. A value that would have no effect is refused: its author expects one. */}}
{{- define "sluice.checkpoints.check" -}}
{{- $checkpoints := .Values.checkpoints -}}
{{- $environment := .Values.control.environment -}}
{{- $witnesses := len $checkpoints.witnesses -}}
{{- if gt (int $checkpoints.quorum) $witnesses -}}
{{- fail (printf "`checkpoints.quorum` is %d, but `checkpoints.witnesses` lists %d: expected at most as many" (int $checkpoints.quorum) $witnesses) -}}
{{- end -}}
{{- range $name, $value := $checkpoints.s3 -}}
{{- if and $value (not (hasPrefix "s3://" $checkpoints.store)) -}}
{{- fail (printf "`checkpoints.s3.%s` has no effect, because `checkpoints.store` is `%s`: expected `s3://bucket/prefix`" $name $checkpoints.store) -}}
{{- end -}}
{{- end -}}
{{- if and $checkpoints.volume.existingClaim (ne $checkpoints.store "volume") -}}
{{- fail (printf "`checkpoints.volume.existingClaim` has no effect, because `checkpoints.store` is `%s`: expected `volume`" $checkpoints.store) -}}
{{- end -}}
{{- range $name, $set := dict "SLUICE_CHECKPOINT_STORE" $checkpoints.store "SLUICE_WITNESSES" $checkpoints.witnesses "SLUICE_WITNESS_QUORUM" $checkpoints.quorum -}}
{{- if and $set (hasKey $environment $name) -}}
{{- fail (printf "`control.environment.%s` and `checkpoints` both set the same: remove the former" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if checkpoints go with the pod: nothing names a place for them, and there is no volume. */}}
{{- define "sluice.checkpoints.lost" -}}
{{- $named := or .Values.checkpoints.store (hasKey .Values.control.environment "SLUICE_CHECKPOINT_STORE") -}}
{{- if and (eq .Values.control.database "postgresql") (not $named) }}true{{ end -}}
{{- end -}}

{{/* The claim of store `volume`. */}}
{{- define "sluice.checkpoints.claim" -}}
{{ .Values.checkpoints.volume.existingClaim | default "sluice-checkpoints" }}
{{- end -}}

{{/* The ports of bucket and witnesses, as a JSON list of texts. */}}
{{- define "sluice.checkpoints.ports" -}}
{{- $urls := list -}}
{{- if hasPrefix "s3://" .Values.checkpoints.store -}}
{{- /* A pod's role is exchanged for credentials by https, wherever the bucket is. */}}
{{- $urls = list "https://sts" (.Values.checkpoints.s3.endpoint | default "https://s3") -}}
{{- end -}}
{{- range .Values.checkpoints.witnesses -}}
{{- $urls = append $urls (splitList "@" . | last) -}}
{{- end -}}
{{- $ports := list -}}
{{- range $urls -}}
{{- $port := regexFind ":[0-9]+$" (urlParse .).host | trimPrefix ":" -}}
{{- $ports = append $ports ($port | default (ternary "443" "80" (hasPrefix "https://" .))) -}}
{{- end -}}
{{ $ports | uniq | toJson }}
{{- end -}}
