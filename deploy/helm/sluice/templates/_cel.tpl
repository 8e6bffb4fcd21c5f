{{/* Writes the fragment's objects in CEL: as a comparison with what a pod holds, and as values.
`deploy/kubernetes/admission/refusing/sidecar_rules.py` makes the same comparison in Python; a property test
compares the two. Every field is tested by `has` before it is read: an expression whose value is an
optional would be accepted by the API server, and then admit silently. */}}

{{/* A text in CEL. The name of the pod's ServiceAccount is filled in when the policy runs. */}}
{{- define "sluice.cel.text" -}}
{{- $text := toJson . -}}
{{- if contains "{serviceAccountName}" $text -}}
({{ $text | replace "{serviceAccountName}" "\" + variables.account + \"" }})
{{- else -}}
{{ $text }}
{{- end -}}
{{- end -}}

{{/* The name of the pod's ServiceAccount. The API server copies the field's old name to the new one. */}}
{{- define "sluice.cel.account" -}}
has(object.spec.serviceAccountName) && object.spec.serviceAccountName != '' ? object.spec.serviceAccountName : has(object.spec.serviceAccount) && object.spec.serviceAccount != '' ? object.spec.serviceAccount : 'default'
{{- end -}}

{{/* Whether the pod asks for the sidecar as an ordinary container, by the option `native-sidecar`. */}}
{{- define "sluice.cel.ordinary" -}}
has(object.metadata.annotations) && 'config.sluice/native-sidecar' in object.metadata.annotations && object.metadata.annotations['config.sluice/native-sidecar'] == 'false'
{{- end -}}

{{/* What the API server fills in, by the field that holds the object. */}}
{{- define "sluice.cel.defaults" -}}
container: {terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}
securityContext: {procMount: Default}
fieldRef: {apiVersion: v1}
httpGet: {scheme: HTTP}
grpc: {service: ""}
startupProbe: &probe {timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}
readinessProbe: *probe
livenessProbe: *probe
ports: {protocol: TCP}
secret: {defaultMode: 420}
configMap: {defaultMode: 420}
projected: {defaultMode: 420}
downwardAPI: {defaultMode: 420}
serviceAccountToken: {expirationSeconds: 3600}
{{- end -}}

{{/* Whether `at` is `value`: (dict "value" v "at" "c" "field" "container"). */}}
{{- define "sluice.cel.same" -}}
{{- if kindIs "map" .value -}}
{{- include "sluice.cel.sameObject" . -}}
{{- else if kindIs "slice" .value -}}
{{- $parts := list (printf "size(%s) == %d" .at (len .value)) -}}
{{- range $place, $each := .value -}}
{{- $parts = append $parts (include "sluice.cel.same" (dict "value" $each "at" (printf "%s[%d]" $.at $place) "field" $.field)) -}}
{{- end -}}
{{ join " && " $parts }}
{{- else if kindIs "string" .value -}}
{{ .at }} == {{ include "sluice.cel.text" .value }}
{{- else -}}
{{ .at }} == {{ toJson .value }}
{{- end -}}
{{- end -}}

{{- define "sluice.cel.sameObject" -}}
{{- $defaults := get (include "sluice.cel.defaults" . | fromYaml) .field | default dict -}}
{{- $added := list -}}
{{- $parts := list -}}
{{- if eq .field "container" -}}
{{- $added = list "imagePullPolicy" "volumeMounts" "resizePolicy" "resources" -}}
{{- $parts = include "sluice.cel.added" . | fromJsonArray -}}
{{- end -}}
{{- range $key, $value := .value -}}
{{- if not (has $key $added) -}}
{{- $at := printf "%s.%s" $.at $key -}}
{{- if eq $key "sizeLimit" -}}
{{- include "sluice.cel.canonical" (dict "resource" $key "quantity" $value) -}}
{{- end -}}
{{- $parts = append $parts (printf "has(%s) && %s" $at (include "sluice.cel.same" (dict "value" $value "at" $at "field" $key))) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := $defaults -}}
{{- if not (hasKey $.value $key) -}}
{{- $parts = append $parts (printf "(!has(%s.%s) || %s.%s == %s)" $.at $key $.at $key (toJson $value)) -}}
{{- end -}}
{{- end -}}
{{- /* No other field: `dyn`, as an object of a known type can't be iterated over otherwise. */ -}}
{{- $keys := concat (keys .value) (keys $defaults) $added | uniq | sortAlpha -}}
{{- $parts = append $parts (printf "dyn(%s).all(k, k in %s)" .at (toJson $keys)) -}}
{{ join " && " $parts }}
{{- end -}}

{{/* The fields of a container that others add to after injection, as a JSON list of conditions:
AlwaysPullImages, the admission plugin ServiceAccount, Kubernetes itself, LimitRange. */}}
{{- define "sluice.cel.added" -}}
{{- $at := .at -}}
{{- $policies := list "Always" "IfNotPresent" (.value.imagePullPolicy | default "Always") | uniq -}}
{{- $parts := list (printf "(!has(%s.imagePullPolicy) || %s.imagePullPolicy in %s)" $at $at (toJson $policies)) -}}
{{- $mounts := .value.volumeMounts | default list -}}
{{- $count := printf "(has(%s.volumeMounts) ? size(%s.volumeMounts) : 0)" $at $at -}}
{{- $next := printf "%s.volumeMounts[%d]" $at (len $mounts) -}}
{{- $token := printf "%s.name.startsWith('kube-api-access-') && has(%s.readOnly) && %s.readOnly == true && %s.mountPath == '/var/run/secrets/kubernetes.io/serviceaccount' && size(dyn(%s)) == 3" $next $next $next $next $next -}}
{{- $parts = append $parts (printf "(%s == %d || (%s == %d && %s))" $count (len $mounts) $count (add1 (len $mounts)) $token) -}}
{{- range $place, $each := $mounts -}}
{{- $parts = append $parts (include "sluice.cel.same" (dict "value" $each "at" (printf "%s.volumeMounts[%d]" $at $place) "field" "volumeMounts")) -}}
{{- end -}}
{{- if .value.resizePolicy -}}
{{- $parts = append $parts (printf "has(%s.resizePolicy) && %s" $at (include "sluice.cel.same" (dict "value" .value.resizePolicy "at" (printf "%s.resizePolicy" $at) "field" "resizePolicy"))) -}}
{{- else -}}
{{- $parts = append $parts (printf "(!has(%s.resizePolicy) || %s.resizePolicy.all(p, p.restartPolicy == 'NotRequired'))" $at $at) -}}
{{- end -}}
{{- $parts = append $parts (printf "(!has(%s.resources) || dyn(%s.resources).all(k, k in ['limits', 'requests']))" $at $at) -}}
{{- range $part, $quantities := .value.resources | default dict -}}
{{- $held := printf "%s.resources.%s" $at $part -}}
{{- range $resource, $quantity := $quantities -}}
{{- include "sluice.cel.canonical" (dict "resource" $resource "quantity" $quantity) -}}
{{- $parts = append $parts (printf "has(%s.resources) && has(%s) && '%s' in %s && %s['%s'] == %s" $at $held $resource $held $held $resource (toString $quantity | toJson)) -}}
{{- end -}}
{{- end -}}
{{- toJson $parts -}}
{{- end -}}

{{/* The API server rewrites quantities: `0.5` becomes `500m`, `1024Mi` becomes `1Gi`. A quantity that
it would rewrite makes every pod differ from the template, so that none could start. */}}
{{- define "sluice.cel.canonical" -}}
{{- $text := toString .quantity -}}
{{- $number := regexFind "^[0-9]+" $text -}}
{{- $thousand := ternary 1024 1000 (hasSuffix "i" $text) -}}
{{- if or (not (regexMatch "^[1-9][0-9]*(m|k|M|G|T|Ki|Mi|Gi|Ti)?$" $text)) (and $number (eq 0 (mod (int64 $number) $thousand))) -}}
{{- fail (printf "`%s: %s` is not how Kubernetes writes this quantity: write `500m` instead of `0.5`, `1Gi` instead of `1024Mi`" .resource $text) -}}
{{- end -}}
{{- end -}}

{{/* A value in CEL: in a map each value needs `dyn`, as the API server's CEL has no mixed maps. */}}
{{- define "sluice.cel.value" -}}
{{- if kindIs "map" . -}}
{{- $parts := list -}}
{{- range $key, $value := . -}}
{{- $parts = append $parts (printf "%s: dyn(%s)" (toJson $key) (include "sluice.cel.value" $value)) -}}
{{- end -}}
{ {{- join ", " $parts -}} }
{{- else if kindIs "slice" . -}}
{{- $parts := list -}}
{{- range . -}}
{{- $parts = append $parts (printf "dyn(%s)" (include "sluice.cel.value" .)) -}}
{{- end -}}
[{{ join ", " $parts }}]
{{- else if kindIs "string" . -}}
{{ include "sluice.cel.text" . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}
