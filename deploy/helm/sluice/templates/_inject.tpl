{{/* The mutations of the MutatingAdmissionPolicy, as a JSON list of expressions. Each sees the pod as
the one before left it. The API server stores no empty list, so that a list is never added empty and
then filled. */}}
{{- define "sluice.inject.mutations" -}}
{{- $own := list -}}
{{- range .fragment.initContainers }}{{ $own = append $own .name }}{{ end -}}
{{- $ordinary := list -}}
{{- range .fragment.containers }}{{ $ordinary = append $ordinary .name }}{{ end -}}
{{- $first := list -}}
{{- range .fragment.initContainers }}{{ if not (has .name $ordinary) }}{{ $first = append $first . }}{{ end }}{{ end -}}
{{- /* A pod that asks for an ordinary container gets the sidecar there, and as no init container. */ -}}
{{- $list := include "sluice.inject.list" (dict "at" "object.spec.initContainers" "path" "/spec/initContainers" "items" .fragment.initContainers) -}}
{{- if $ordinary -}}
{{- $other := ternary (include "sluice.inject.list" (dict "at" "object.spec.initContainers" "path" "/spec/initContainers" "items" $first)) "[]" (gt (len $first) 0) -}}
{{- $list = printf "(variables.ordinary ? %s : %s)" $other $list -}}
{{- end -}}
{{- $mutations := list $list -}}
{{- range $place, $container := .fragment.initContainers -}}
{{- $placed := include "sluice.inject.place" (dict "list" "initContainers" "place" $place "container" $container) -}}
{{- $mutations = append $mutations (ternary (printf "(variables.ordinary ? [] : %s)" $placed) $placed (has .name $ordinary)) -}}
{{- end -}}
{{- range $place, $container := .fragment.containers -}}
{{- $placed := include "sluice.inject.place" (dict "list" "containers" "place" $place "container" $container) -}}
{{- $mutations = append $mutations (printf "(variables.ordinary ? %s : [])" $placed) -}}
{{- end -}}
{{- $volumes := list (include "sluice.inject.list" (dict "at" "object.spec.volumes" "path" "/spec/volumes" "items" .fragment.volumes)) -}}
{{- range .fragment.volumes -}}
{{- $volumes = append $volumes (printf "(has(object.spec.volumes) && !object.spec.volumes.exists(v, v.name == %s) ? [JSONPatch{op: \"add\", path: \"/spec/volumes/-\", value: %s}] : [])" (toJson .name) (include "sluice.cel.value" .)) -}}
{{- end -}}
{{- $mutations = append $mutations (join " + " $volumes) -}}
{{- if .fragment.environment -}}
{{- range $kind := list "initContainers" "containers" -}}
{{- $mutations = append $mutations (include "sluice.inject.environment" (dict "kind" $kind "own" $own "environment" $.fragment.environment)) -}}
{{- end -}}
{{- end -}}
{{- $mutations = append $mutations (include "sluice.inject.status" .) -}}
{{- toJson $mutations -}}
{{- end -}}

{{/* Adds a list that the pod does not have, with all of ours. */}}
{{- define "sluice.inject.list" -}}
(has({{ .at }}) ? [] : [JSONPatch{op: "add", path: {{ toJson .path }}, value: {{ include "sluice.cel.value" .items }}}])
{{- end -}}

{{/* Puts a container of ours in its place, before all others. */}}
{{- define "sluice.inject.place" -}}
{{- $list := printf "object.spec.%s" .list -}}
{{- $name := toJson .container.name -}}
{{- $path := printf "/spec/%s/%d" .list .place | toJson -}}
(!{{ $list }}.exists(c, c.name == {{ $name }}) ? [JSONPatch{op: "add", path: {{ $path }}, value: {{ include "sluice.cel.value" .container }}}] : {{ $list }}[{{ .place }}].name == {{ $name }} ? [] : [JSONPatch{op: "move", from: "/spec/{{ .list }}/" + string({{ include "sluice.inject.places" . }}.filter(i, i < size({{ $list }}) && {{ $list }}[i].name == {{ $name }})[0]), path: {{ $path }}}])
{{- end -}}

{{/* The indexes of containers: CEL before Kubernetes 1.32 can't count. The webhook refuses a pod with
more than 200 containers. */}}
{{- define "sluice.inject.places" -}}
{{ until 208 | toJson }}
{{- end -}}

{{/* Tells the pod's own containers of the proxy, without overwriting what their author set. */}}
{{- define "sluice.inject.environment" -}}
{{- $list := printf "object.spec.%s" .kind -}}
{{- $ours := printf "i < size(%s) && !(%s[i].name in %s)" $list $list (toJson .own) -}}
{{- $path := printf "\"/spec/%s/\" + string(i) + \"/env\"" .kind -}}
{{- $places := include "sluice.inject.places" . -}}
{{- $parts := list (printf "%s.filter(i, %s && !has(%s[i].env)).map(i, JSONPatch{op: \"add\", path: %s, value: %s})" $places $ours $list $path (include "sluice.cel.value" .environment)) -}}
{{- range .environment -}}
{{- $parts = append $parts (printf "%s.filter(i, %s && has(%s[i].env) && !%s[i].env.exists(e, e.name == %s)).map(i, JSONPatch{op: \"add\", path: %s + \"/-\", value: %s})" $places $ours $list $list (toJson .name) $path (include "sluice.cel.value" .)) -}}
{{- end -}}
(has({{ $list }}) ? {{ join " + " $parts }} : [])
{{- end -}}

{{/* The annotation `sluice/status`. Whatever stands there is not believed, only replaced. */}}
{{- define "sluice.inject.status" -}}
{{- $digest := .fragment | toRawJson | sha256sum | trunc 16 -}}
{{- $status := printf "{\"version\":%s,\"mode\":%s,\"fragment\":\"sha256:%s\"}" (toJson .version) (toJson .fragment.mode) $digest | toJson -}}
(!has(object.metadata.annotations) ? [JSONPatch{op: "add", path: "/metadata/annotations", value: {"sluice/status": {{ $status }}}}] : "sluice/status" in object.metadata.annotations && object.metadata.annotations["sluice/status"] == {{ $status }} ? [] : [JSONPatch{op: "add", path: "/metadata/annotations/sluice~1status", value: {{ $status }}}])
{{- end -}}
