{{/* The rules by which the ValidatingAdmissionPolicy refuses pods, in CEL. The table
`deploy/kubernetes/admission/refusing/rules.py` holds the same rules in Python, with the reason of each; a
test compares names, messages and verdicts. */}}

{{/* What the rules read: a list of variables, each of which may use those before it. */}}
{{- define "sluice.refusals.variables" -}}
{{- $fragment := .fragment -}}
{{- $own := list -}}
{{- range $fragment.initContainers }}{{ $own = append $own .name }}{{ end -}}
{{- $ordinary := list -}}
{{- range $fragment.containers }}{{ $ordinary = append $ordinary .name }}{{ end -}}
{{- $ownVolumes := list -}}
{{- range $fragment.volumes }}{{ $ownVolumes = append $ownVolumes .name }}{{ end -}}
- name: account
  expression: {{ include "sluice.cel.account" . | quote }}
- name: label
  expression: "has(object.metadata.labels) && 'sluice/inject' in object.metadata.labels ? object.metadata.labels['sluice/inject'] : ''"
- name: oldLabel
  expression: "oldObject != null && has(oldObject.metadata.labels) && 'sluice/inject' in oldObject.metadata.labels ? oldObject.metadata.labels['sluice/inject'] : ''"
- name: options
  expression: "has(object.metadata.annotations) ? object.metadata.annotations.filter(k, k.startsWith('config.sluice/')) : []"
- name: oldOptions
  expression: "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations.filter(k, k.startsWith('config.sluice/')) : []"
# An update of neither the spec nor anything that we read, such as a finalizer that a controller
# removes: refusing it would keep a pod from before the namespace's label from ending.
- name: unchanged
  expression: "request.operation == 'UPDATE' && object.spec == oldObject.spec && variables.label == variables.oldLabel && variables.oldOptions.all(k, k in variables.options) && variables.options.all(k, k in variables.oldOptions && object.metadata.annotations[k] == oldObject.metadata.annotations[k])"
- name: optedOut
  expression: "variables.label == 'disabled' && namespaceObject.metadata.labels['sluice/inject'] == 'optional'"
{{- if $ordinary }}
# Whether the pod has the sidecar as an ordinary container.
- name: ordinary
  expression: {{ include "sluice.cel.ordinary" . | quote }}
{{- end }}
# The names of our containers, by the list that holds them in a pod of this form.
- name: ownInit
  {{- $first := list }}
  {{- range $own }}{{ if not (has . $ordinary) }}{{ $first = append $first . }}{{ end }}{{ end }}
  expression: "{{ if $ordinary }}variables.ordinary ? {{ include "sluice.refusals.texts" $first }} : {{ end }}{{ include "sluice.refusals.texts" $own }}"
- name: ownOrdinary
  expression: "{{ if $ordinary }}variables.ordinary ? {{ include "sluice.refusals.texts" $ordinary }} : {{ end }}[]"
- name: initContainers
  expression: "has(object.spec.initContainers) ? object.spec.initContainers : []"
- name: initNames
  expression: "variables.initContainers.map(c, c.name)"
- name: names
  expression: "object.spec.containers.map(c, c.name)"
- name: foreign
  expression: "object.spec.containers.filter(c, !(c.name in variables.ownOrdinary)) + variables.initContainers.filter(c, !(c.name in variables.ownInit))"
- name: volumes
  expression: "has(object.spec.volumes) ? object.spec.volumes : []"
- name: foreignVolumes
  expression: "variables.volumes.filter(v, variables.optedOut || !(v.name in {{ toJson $ownVolumes | replace "\"" "'" }}))"
{{- end -}}

{{/* The rules: a list of rule (its name), variable, optedOut (whether it also holds for a pod that
declined the sidecar), offenders (a CEL list of names) and message (`{}` is the first of them). */}}
{{- define "sluice.refusals.rules" -}}
{{- $fragment := .fragment -}}
{{- $ownVolumes := list -}}
{{- range $fragment.volumes }}{{ $ownVolumes = append $ownVolumes .name }}{{ end -}}
{{- $transparent := eq $fragment.mode "transparent" -}}
{{- $user := int $fragment.reserved.user -}}
{{- $group := int $fragment.reserved.group -}}
{{- $podUser := "has(object.spec.securityContext) && has(object.spec.securityContext.runAsUser)" -}}
{{- $ownUser := "has(c.securityContext) && has(c.securityContext.runAsUser)" -}}
- rule: opt-out
  offenders: >-
    variables.label == 'disabled' && namespaceObject.metadata.labels['sluice/inject'] == 'enabled'
    ? [namespaceObject.metadata.name] : []
  message: >-
    the label `sluice/inject: disabled` has no effect in namespace `{}`: remove it, or ask for the
    namespace's label to be `optional`
- rule: restricted
  {{- if $transparent }}
  offenders: >-
    'pod-security.kubernetes.io/enforce' in namespaceObject.metadata.labels
    && namespaceObject.metadata.labels['pod-security.kubernetes.io/enforce'] == 'restricted'
    ? [namespaceObject.metadata.name] : []
  {{- end }}
  message: >-
    namespace `{}` enforces the Pod Security Standard `restricted`, which forbids the init container
    of the mode `transparent`: use the mode `explicit`, or another namespace
- rule: windows
  offenders: >-
    (has(object.spec.os) && has(object.spec.os.name) && object.spec.os.name == 'windows'
    ? ['os.name'] : [])
    + (has(object.spec.nodeSelector) ? ['kubernetes.io/os', 'beta.kubernetes.io/os'].filter(k,
    k in object.spec.nodeSelector && object.spec.nodeSelector[k] == 'windows') : [])
  message: >-
    `{}` asks for Windows nodes, and the sidecar runs on Linux only: put the pod in a namespace that
    is not governed
- rule: mirror
  offenders: >-
    has(object.metadata.annotations) && 'kubernetes.io/config.mirror' in object.metadata.annotations
    ? ['kubernetes.io/config.mirror'] : []
  message: >-
    `{}` marks a static pod, which can't be governed, as the kubelet starts it from a file: remove
    the file from the node, or put the pod in a namespace that is not governed
- rule: host-namespace
  offenders: >-
    {{- range $place, $field := list "hostNetwork" "hostPID" "hostIPC" "shareProcessNamespace" }}
    {{ if $place }}+ {{ end }}(has(object.spec.{{ $field }}) && object.spec.{{ $field }} == true
    ? ['{{ $field }}'] : [])
    {{- end }}
  message: >-
    `{}` opens the sidecar's network or processes to others: remove it
- rule: sidecar-missing
  offenders: >-
    variables.ownInit.filter(n, !(n in variables.initNames))
    + variables.ownOrdinary.filter(n, !(n in variables.names))
  message: >-
    the pod has no `{}`: create it again once the injector is available, or add it by `sluice
    inject`; a pod from before the namespace's label must be recreated
- rule: sidecar-order
  offenders: >-
    {{- range $place, $container := $fragment.initContainers }}
    {{ if $place }}+ {{ end }}{{ include "sluice.refusals.displaced" (dict "name" .name "place" $place "own" "ownInit" "names" "initNames") }}
    {{- end }}
    {{- range $place, $container := $fragment.containers }}
    + {{ include "sluice.refusals.displaced" (dict "name" .name "place" $place "own" "ownOrdinary" "names" "names") }}
    {{- end }}
  message: >-
    `{}` must come before the pod's own containers: what starts before it is not governed
- rule: sidecar-altered
  offenders: >-
    {{- range $place, $container := $fragment.initContainers }}
    {{ if $place }}+ {{ end }}{{ include "sluice.refusals.altered" (dict "container" . "place" $place "own" "ownInit" "names" "initNames" "kind" "initContainers") }}
    {{- end }}
    {{- range $place, $container := $fragment.containers }}
    + {{ include "sluice.refusals.altered" (dict "container" . "place" $place "own" "ownOrdinary" "names" "names" "kind" "containers") }}
    {{- end }}
  message: >-
    `{}` is not as Sluice injects it: leave it out of the manifest, and keep other webhooks from
    changing it
- rule: volumes
  offenders: >-
    request.operation == 'UPDATE' ? [] :
    {{- range $place, $volume := $fragment.volumes }}
    {{ if $place }}+ {{ end }}(variables.volumes.exists(v,
    {{ include "sluice.cel.same" (dict "value" $volume "at" "v" "field" "volume") }})
    ? [] : ['{{ $volume.name }}'])
    {{- end }}
  message: >-
    volume `{}` is missing or not as Sluice injects it: leave it out of the manifest
- rule: names
  optedOut: true
  offenders: >-
    variables.names.filter(n, n in ['sluice-init', 'sluice-proxy']
    && (variables.optedOut || !(n in variables.ownOrdinary)))
    + variables.initNames.filter(n, n in ['sluice-init', 'sluice-proxy']
    && (variables.optedOut || !(n in variables.ownInit)))
  message: >-
    the name of container `{}` is reserved for Sluice: give it another
- rule: mounts
  offenders: >-
    variables.foreign.filter(c, has(c.volumeMounts)
    && c.volumeMounts.exists(m, m.name in {{ toJson $ownVolumes | replace "\"" "'" }})).map(c, c.name)
  message: >-
    container `{}` mounts a volume of the sidecar: remove the mount
- rule: count
  offenders: >-
    size(variables.foreign) > 200 ? [string(size(variables.foreign))] : []
  message: >-
    the pod has {} containers, over the limit of 200: make several pods of it
- rule: ports
  offenders: >-
    variables.foreign.filter(c, has(c.ports) && c.ports.exists(p,
    p.containerPort in [8710, 8711, 8712] || (has(p.hostPort) && p.hostPort in [8710, 8711, 8712]))
    ).map(c, c.name)
  message: >-
    container `{}` claims one of the ports 8710 to 8712, which are the sidecar's: choose another
- rule: token
  optedOut: true
  offenders: >-
    variables.foreignVolumes.filter(v, has(v.projected) && has(v.projected.sources)
    && v.projected.sources.exists(s, has(s.serviceAccountToken)
    && has(s.serviceAccountToken.audience) && s.serviceAccountToken.audience == 'sluice')
    ).map(v, v.name)
  message: >-
    volume `{}` holds a token of the audience `sluice`, by which only sidecars enrol: use another
    audience
- rule: secret-volume
  optedOut: true
  offenders: >-
    variables.foreignVolumes.filter(v, (has(v.secret) && has(v.secret.secretName)
    && v.secret.secretName.startsWith('sluice-agent-'))
    || (has(v.csi) && has(v.csi.nodePublishSecretRef) && has(v.csi.nodePublishSecretRef.name)
    && v.csi.nodePublishSecretRef.name.startsWith('sluice-agent-'))
    || (has(v.projected) && has(v.projected.sources) && v.projected.sources.exists(s,
    has(s.secret) && has(s.secret.name) && s.secret.name.startsWith('sluice-agent-')))
    ).map(v, v.name)
  message: >-
    volume `{}` holds a Secret `sluice-agent-…`, which only the sidecar may read: remove it
- rule: secret-variable
  optedOut: true
  offenders: >-
    variables.foreign.filter(c, (has(c.env) && c.env.exists(e, has(e.valueFrom)
    && has(e.valueFrom.secretKeyRef) && has(e.valueFrom.secretKeyRef.name)
    && e.valueFrom.secretKeyRef.name.startsWith('sluice-agent-')))
    || (has(c.envFrom) && c.envFrom.exists(e, has(e.secretRef) && has(e.secretRef.name)
    && e.secretRef.name.startsWith('sluice-agent-')))).map(c, c.name)
  message: >-
    the environment of container `{}` holds a Secret `sluice-agent-…`, which only the sidecar may
    read: remove it
- rule: host-path
  offenders: >-
    variables.foreignVolumes.filter(v, has(v.hostPath)).map(v, v.name)
  message: >-
    volume `{}` is a `hostPath`, which shows the tokens and keys of other pods: use a
    PersistentVolumeClaim
- rule: host-alias
  offenders: >-
    has(object.spec.hostAliases) ? object.spec.hostAliases.map(a, a.ip) : []
  message: >-
    `hostAliases` names `{}`, and the sidecar would believe it: use a Service or the cluster's DNS
- rule: dns
  # `hostnameOverride` exists from Kubernetes 1.34 on: `dyn`, so that older ones don't warn of it.
  offenders: >-
    (has(object.spec.dnsPolicy) && object.spec.dnsPolicy == 'None' ? ['dnsPolicy'] : [])
    + (has(object.spec.dnsConfig) && has(object.spec.dnsConfig.nameservers)
    && size(object.spec.dnsConfig.nameservers) > 0 ? ['dnsConfig.nameservers'] : [])
    + (has(object.spec.dnsConfig) && has(object.spec.dnsConfig.searches)
    && size(object.spec.dnsConfig.searches) > 0 ? ['dnsConfig.searches'] : [])
    + (has(dyn(object.spec).hostnameOverride) && dyn(object.spec).hostnameOverride != ''
    ? ['hostnameOverride'] : [])
  message: >-
    `{}` replaces the cluster's DNS, which the sidecar relies on: remove it
- rule: user
  offenders: >-
    ({{ $podUser }} && object.spec.securityContext.runAsUser == {{ $user }}
    ? ['spec.securityContext'] : [])
    + variables.foreign.filter(c, {{ $ownUser }} && c.securityContext.runAsUser == {{ $user }}
    ).map(c, c.name)
  message: >-
    `{}` runs as the sidecar's user: choose another `runAsUser`
- rule: group
  offenders: >-
    (has(object.spec.securityContext)
    && ((has(object.spec.securityContext.runAsGroup)
    && object.spec.securityContext.runAsGroup == {{ $group }})
    || (has(object.spec.securityContext.fsGroup)
    && object.spec.securityContext.fsGroup == {{ $group }})
    || (has(object.spec.securityContext.supplementalGroups)
    && {{ $group }} in object.spec.securityContext.supplementalGroups))
    ? ['spec.securityContext'] : [])
    + variables.foreign.filter(c, has(c.securityContext) && has(c.securityContext.runAsGroup)
    && c.securityContext.runAsGroup == {{ $group }}).map(c, c.name)
  message: >-
    `{}` has the sidecar's group: choose another in `runAsGroup`, `fsGroup` and
    `supplementalGroups`
- rule: user-unset
  {{- if $transparent }}
  offenders: >-
    variables.foreign.filter(c, !({{ $ownUser }}) && !({{ $podUser }})).map(c, c.name)
  {{- end }}
  message: >-
    container `{}` leaves its user to the image: set `runAsUser`, which the mode `transparent` needs
- rule: root
  {{- if $transparent }}
  offenders: >-
    variables.foreign.filter(c, {{ $ownUser }} ? c.securityContext.runAsUser == 0
    : {{ $podUser }} && object.spec.securityContext.runAsUser == 0).map(c, c.name)
  {{- end }}
  message: >-
    container `{}` runs as root, which can become the sidecar's user: set another `runAsUser`
- rule: escalation
  {{- if $transparent }}
  offenders: >-
    variables.foreign.filter(c, !(has(c.securityContext)
    && has(c.securityContext.allowPrivilegeEscalation)
    && c.securityContext.allowPrivilegeEscalation == false)).map(c, c.name)
  {{- end }}
  message: >-
    container `{}` may become root, and so the sidecar's user: set `allowPrivilegeEscalation: false`
- rule: privileged
  offenders: >-
    variables.foreign.filter(c, has(c.securityContext) && has(c.securityContext.privileged)
    && c.securityContext.privileged == true).map(c, c.name)
  message: >-
    container `{}` is privileged: remove `privileged`
- rule: capability
  offenders: >-
    variables.foreign.filter(c, has(c.securityContext) && has(c.securityContext.capabilities)
    && has(c.securityContext.capabilities.add) && c.securityContext.capabilities.add.exists(k,
    k.matches('(?i)^(cap_)?(all|net_admin|net_raw|sys_admin|sys_ptrace|sys_module|bpf)$'))
    ).map(c, c.name)
  message: >-
    container `{}` asks for a capability by which the sidecar can be passed by: remove
    `capabilities.add`
- rule: capability-kept
  {{- if $transparent }}
  offenders: >-
    variables.foreign.filter(c, !(has(c.securityContext) && has(c.securityContext.capabilities)
    && has(c.securityContext.capabilities.drop) && 'ALL' in c.securityContext.capabilities.drop)
    || (has(c.securityContext.capabilities.add) && c.securityContext.capabilities.add.exists(k,
    k.matches('(?i)^(cap_)?setuid$')))).map(c, c.name)
  {{- end }}
  message: >-
    container `{}` keeps capabilities by which it can become the sidecar's user: set
    `capabilities.drop: [ALL]`, and add no SETUID
- rule: proc-mount
  offenders: >-
    variables.foreign.filter(c, has(c.securityContext) && has(c.securityContext.procMount)
    && c.securityContext.procMount != 'Default').map(c, c.name)
  message: >-
    container `{}` unmasks `/proc`: remove `procMount`
- rule: host-process
  offenders: >-
    (has(object.spec.securityContext) && has(object.spec.securityContext.windowsOptions)
    && has(object.spec.securityContext.windowsOptions.hostProcess)
    && object.spec.securityContext.windowsOptions.hostProcess == true
    ? ['spec.securityContext'] : [])
    + variables.foreign.filter(c, has(c.securityContext) && has(c.securityContext.windowsOptions)
    && has(c.securityContext.windowsOptions.hostProcess)
    && c.securityContext.windowsOptions.hostProcess == true).map(c, c.name)
  message: >-
    `{}` asks for a process of the node: remove `hostProcess`
- rule: ephemeral
  offenders: >-
    has(object.spec.ephemeralContainers) ? object.spec.ephemeralContainers.map(c, c.name) : []
  message: >-
    container `{}` is ephemeral, and could run as the sidecar's user: debug a copy of the pod in a
    namespace that is not governed
- rule: option
  offenders: >-
    variables.options.filter(k, !(k in [
    {{- range $place, $option := $fragment.options }}{{ if $place }}, {{ end }}'config.sluice/{{ $option }}'{{ end -}}
    ]))
  message: >-
    annotation `{}` is not allowed: ask for the option in the chart's `injection.options`
- rule: option-value
  {{- if $fragment.options }}
  offenders: >-
    {{- range $place, $option := sortAlpha $fragment.options }}
    {{ if $place }}+ {{ end }}variables.options.filter(k, k == 'config.sluice/{{ $option }}'
    && !({{ include "sluice.refusals.fits" $option }}))
    {{- end }}
  {{- end }}
  message: >-
    the value of annotation `{}` has another form: `log-level` is debug, info, warning or error;
    `native-sidecar` true or false; `skip-outbound-ports` at most 32 ports or ranges from 1 to 65535, such as `5432,8080-8090`;
    `skip-subnets` at most 32 networks of /8 or narrower, /32 for IPv6, such as
    `10.20.0.0/16,fd00:7::/48`, and none of 192.0.2.0/24 and 2001:db8::/32
{{- end -}}


{{/* Whether the annotation `k` has a value that the option `.` can have, as in
`deploy/kubernetes/admission/settings.py`. The length of a list comes first: it bounds what the rest costs. */}}
{{- define "sluice.refusals.fits" -}}
{{- $value := "object.metadata.annotations[k]" -}}
{{- if eq . "log-level" -}}
{{ $value }} in ['debug', 'info', 'warning', 'error']
{{- else if eq . "native-sidecar" -}}
{{ $value }} in ['true', 'false']
{{- else if eq . "skip-outbound-ports" -}}
size({{ $value }}) <= 512 && size({{ $value }}.split(',')) <= 32
    && {{ $value }}.split(',').all(p, p.matches('^[0-9]{1,5}(-[0-9]{1,5})?$')
    && [p.split('-').map(n, int(n))].all(r, 1 <= r[0] && r[0] <= r[size(r) - 1]
    && r[size(r) - 1] <= 65535))
{{- else if eq . "skip-subnets" -}}
{{- $byte := "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])" -}}
{{- $word := "[0-9a-fA-F]{1,4}" -}}
{{- $ipv4 := printf "(%s[.]){3}%s/([89]|[12][0-9]|3[0-2])" $byte $byte -}}
{{- $ipv6 := list (printf "(%s:){7}%s" $word $word) (printf "(%s:){1,7}:" $word) -}}
{{- range $before := untilStep 1 7 1 -}}
{{- $ipv6 = append $ipv6 (printf "(%s:){1,%d}(:%s){1,%d}" $word $before $word (sub 7 $before)) -}}
{{- end -}}
{{- $ipv6 = concat $ipv6 (list (printf ":(:%s){1,7}" $word) "::") -}}
{{- /* An IPv4 network overlaps 192.0.2.0/24, which is 12582914 of 256 addresses each, if both are
equal once divided by the number of such blocks in it; a narrower one is in a block. An IPv6 network
of /32 or narrower overlaps 2001:db8::/32 if it begins like it. */ -}}
size({{ $value }}) <= 512 && size({{ $value }}.split(',')) <= 32
    && {{ $value }}.split(',').all(p,
    p.matches('^(({{ join "|" $ipv6 }})/(3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-8]))$')
    ? !p.matches('^(?i)2001:0?db8:') : p.matches('^{{ $ipv4 }}$')
    && [p.split('/')[0].split('.').map(n, int(n))].all(b, [[65536, 32768, 16384, 8192, 4096, 2048,
    1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1][int(p.split('/')[1]) < 24 ? int(p.split('/')[1]) - 8
    : 16]].all(d, (b[0] * 65536 + b[1] * 256 + b[2]) / d != 12582914 / d)))
{{- else -}}
true
{{- end -}}
{{- end -}}


{{/* A list of texts in CEL. */}}
{{- define "sluice.refusals.texts" -}}
{{ toJson . | replace "\"" "'" }}
{{- end -}}

{{/* The offender if our container `name` belongs to a list of this pod and is not at its `place`. */}}
{{- define "sluice.refusals.displaced" -}}
('{{ .name }}' in variables.{{ .own }} && '{{ .name }}' in variables.{{ .names }}
    && (size(variables.{{ .names }}) <= {{ .place }} || variables.{{ .names }}[{{ .place }}] != '{{ .name }}')
    ? ['{{ .name }}'] : [])
{{- end -}}

{{/* The offender if our `container` is at its `place` and not as we would inject it. An update may
leave it as it was. */}}
{{- define "sluice.refusals.altered" -}}
{{- $at := printf "object.spec.%s[%d]" .kind .place -}}
{{- $old := printf "oldObject.spec.%s" .kind -}}
('{{ .container.name }}' in variables.{{ .own }} && size(variables.{{ .names }}) > {{ .place }}
    && variables.{{ .names }}[{{ .place }}] == '{{ .container.name }}'
    && !(request.operation == 'UPDATE' && has({{ $old }})
    && size({{ $old }}) > {{ .place }} && {{ $old }}[{{ .place }}] == {{ $at }})
    && !({{ include "sluice.cel.same" (dict "value" .container "at" $at "field" "container") }})
    ? ['{{ .container.name }}'] : [])
{{- end -}}

{{/* The variable that holds the offenders of a rule: `sidecar-missing` becomes `ruleSidecarMissing`. */}}
{{- define "sluice.refusals.variable" -}}
{{ printf "rule-%s" . | replace "-" "_" | camelcase | untitle }}
{{- end -}}
