"""What makes a pod refused, and what comes close without being refused: changes to a governed pod,
by rule. Each is judged by the rules in Python, by the chart's policy and by a real API server.

In `spec.initContainers` of a governed pod the sidecar stands last of ours; `PROXY` is its place,
filled in for the mode.
"""

from __future__ import annotations

from typing import Any

PROXY = "PROXY"
_AGENT = "/spec/containers/0"
_SECURITY = f"{_AGENT}/securityContext"
_POD = "/spec/securityContext"
_SIDECAR = f"/spec/initContainers/{PROXY}"
_VOLUME = "/spec/volumes/-"
_ANNOTATIONS = "/metadata/annotations"


def _volume(name: str, **source: Any) -> dict[str, Any]:
    return {_VOLUME: {"name": name, **source}}


def _token(audience: str | None) -> dict[str, Any]:
    token = {"path": "token"} | ({"audience": audience} if audience else {})
    return {"sources": [{"serviceAccountToken": token}]}


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("opt-out", {"/metadata/labels/sluice~1inject": "disabled"}),
    ("sidecar-altered", {f"{_SIDECAR}/image": "elsewhere/sidecar:0.1.0"}),
    ("sidecar-altered", {f"{_SIDECAR}/command": ["sleep"]}),
    ("sidecar-altered", {f"{_SIDECAR}/args/0": "doctor"}),
    ("sidecar-altered", {f"{_SIDECAR}/args/-": "--verbose"}),
    ("sidecar-altered", {f"{_SIDECAR}/env/0/value": "control: http://mine"}),
    ("sidecar-altered", {f"{_SIDECAR}/env/-": {"name": "PYTHONPATH", "value": "/mine"}}),
    ("sidecar-altered", {f"{_SIDECAR}/envFrom/-": {"configMapRef": {"name": "mine"}}}),
    ("sidecar-altered", {f"{_SIDECAR}/workingDir": "/mine"}),
    ("sidecar-altered", {f"{_SIDECAR}/lifecycle/postStart/exec/command": ["sluice"]}),
    ("sidecar-altered", {f"{_SIDECAR}/tty": True}),
    ("sidecar-altered", {f"{_SIDECAR}/securityContext/runAsUser": 1000}),
    ("sidecar-altered", {f"{_SIDECAR}/securityContext/runAsNonRoot": False}),
    ("sidecar-altered", {f"{_SIDECAR}/securityContext/capabilities/add": ["NET_ADMIN"]}),
    ("sidecar-altered", {f"{_SIDECAR}/securityContext/seLinuxOptions/level": "s0"}),
    ("sidecar-altered", {f"{_SIDECAR}/resources/limits/memory": "8Mi"}),
    ("sidecar-altered", {f"{_SIDECAR}/resources/claims": [{"name": "gpu"}],
        "/spec/resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}),
    ("sidecar-altered", {f"{_SIDECAR}/startupProbe/failureThreshold": 1}),
    ("sidecar-altered", {f"{_SIDECAR}/readinessProbe/httpGet/host": "example.com"}),
    ("sidecar-altered", {f"{_SIDECAR}/livenessProbe/exec/command": ["false"]}),
    ("sidecar-altered", {f"{_SIDECAR}/terminationMessagePath": "/dev/elsewhere"}),
    ("sidecar-altered", {f"{_SIDECAR}/ports/0/hostPort": 80}),
    ("sidecar-altered", {
        f"{_SIDECAR}/volumeMounts/-": {"name": "mine", "mountPath": "/usr/lib"},
        **_volume("mine", emptyDir={}),
    }),
    ("sidecar-altered", {  # it looks like the token of the API server, but lies elsewhere
        f"{_SIDECAR}/volumeMounts/-": {
            "name": "kube-api-access-mine", "readOnly": True, "mountPath": "/usr/lib",
        },
        **_volume("kube-api-access-mine", emptyDir={}),
    }),
    ("sidecar-altered", {
        f"{_SIDECAR}/volumeMounts/-": {
            "name": "kube-api-access-mine",
            "readOnly": True,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            "subPath": "a",
        },
        **_volume("kube-api-access-mine", emptyDir={}),
    }),
    ("volumes", {"/spec/volumes/0/emptyDir": {"sizeLimit": "8Mi"}}),
    ("volumes", {"/spec/volumes/0/emptyDir/medium": "Memory"}),
    ("volumes", {"/spec/volumes/2/configMap/name": "mine"}),
    ("volumes", {"/spec/volumes/2/configMap/name": "sluice-sources-other"}),
    ("volumes", {"/spec/volumes/3/configMap/items": [{"key": "mine", "path": "sources.yaml"}]}),
    ("volumes", {"/spec/volumes/1/projected/sources/-": {"configMap": {"name": "mine"}}}),
    ("mounts", {f"{_AGENT}/volumeMounts/-": {"name": "sluice-identity", "mountPath": "/t"}}),
    ("mounts", {f"{_AGENT}/volumeMounts/-": {"name": "sluice-data", "mountPath": "/t"}}),
    ("mounts", {"/spec/initContainers/-": {
        "name": "first", "image": "a", "securityContext": {
            "runAsUser": 1000, "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "sluice-identity", "mountPath": "/t", "readOnly": True}]}}),
    ("ports", {f"{_AGENT}/ports/-": {"containerPort": 8710}}),
    ("ports", {f"{_AGENT}/ports/-": {"containerPort": 8711, "hostPort": 8711}}),
    ("ports", {f"{_AGENT}/ports/-": {"containerPort": 80, "hostPort": 8712}}),
    ("token", _volume("mine", projected=_token("sluice"))),
    ("secret-volume", _volume("mine", secret={"secretName": "sluice-agent-default"})),
    ("secret-volume", _volume(
        "mine", projected={"sources": [{"secret": {"name": "sluice-agent-other"}}]})),
    ("secret-volume", _volume("mine", csi={
        "driver": "mine", "nodePublishSecretRef": {"name": "sluice-agent-other"}})),
    ("secret-variable", {f"{_AGENT}/env/-": {"name": "KEY", "valueFrom": {
        "secretKeyRef": {"name": "sluice-agent-other", "key": "agent.key"}}}}),
    ("secret-variable", {f"{_AGENT}/envFrom/-": {"secretRef": {"name": "sluice-agent-other"}}}),
    ("host-path", _volume("mine", hostPath={"path": "/var/lib/kubelet"})),
    ("host-alias", {"/spec/hostAliases": [{"ip": "10.0.0.9", "hostnames": ["documents"]}]}),
    ("dns", {"/spec/dnsPolicy": "None", "/spec/dnsConfig/nameservers": ["10.0.0.9"]}),
    ("dns", {"/spec/dnsConfig/nameservers": ["10.0.0.9"]}),
    ("dns", {"/spec/dnsConfig/searches": ["mine.example"]}),
    ("dns", {"/spec/hostnameOverride": "sluice-control.sluice-system.svc.cluster.local"}),
    ("user", {f"{_SECURITY}/runAsUser": 20102}),
    ("user", {f"{_POD}/runAsUser": 20102}),
    ("group", {f"{_SECURITY}/runAsGroup": 20102}),
    ("group", {f"{_POD}/runAsGroup": 20102}),
    ("group", {f"{_POD}/fsGroup": 20102}),
    ("group", {f"{_POD}/supplementalGroups": [1, 20102]}),
    ("privileged", {
        f"{_SECURITY}/privileged": True, f"{_SECURITY}/allowPrivilegeEscalation": True}),
    ("capability", {f"{_SECURITY}/capabilities/add": ["NET_ADMIN"]}),
    ("capability", {f"{_SECURITY}/capabilities/add": ["CHOWN", "net_raw"]}),
    ("capability", {f"{_SECURITY}/capabilities/add": ["CAP_SYS_PTRACE"]}),
    ("capability", {f"{_SECURITY}/capabilities/add": ["All"]}),
    ("proc-mount", {f"{_SECURITY}/procMount": "Unmasked", "/spec/hostUsers": False}),
    ("windows", {"/spec/os/name": "windows"}),
    ("windows", {"/spec/nodeSelector": {"kubernetes.io/os": "windows"}}),
    ("windows", {"/spec/nodeSelector": {"beta.kubernetes.io/os": "windows", "a": "b"}}),
    ("mirror", {f"{_ANNOTATIONS}/kubernetes.io~1config.mirror": ""}),
    ("host-namespace", {"/spec/hostNetwork": True}),
    ("host-namespace", {"/spec/hostPID": True}),
    ("host-namespace", {"/spec/hostIPC": True}),
    ("host-namespace", {"/spec/shareProcessNamespace": True}),
    ("option", {f"{_ANNOTATIONS}/config.sluice~1opaque-ports": "5432"}),
    ("option", {f"{_ANNOTATIONS}/config.sluice~1": "x"}),
]  # fmt: skip
"""The rule, and the change to a governed pod that makes it refused by this rule."""

_WITHOUT_USER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


_LEVEL = f"{_ANNOTATIONS}/config.sluice~1log-level"
_PORTS = f"{_ANNOTATIONS}/config.sluice~1skip-outbound-ports"
_NETWORKS = f"{_ANNOTATIONS}/config.sluice~1skip-subnets"

REFUSED_IF_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *(("option-value", {_LEVEL: value}) for value in ("trace", "INFO", "", "info\n", "info,debug")),
    *(("option-value", {_PORTS: value}) for value in (
        "", ",", "80,", " 80", "80\n", "0", "65536", "100000", "000080", "80-", "-80", "80-22",
        "80-90-100", "1-65536", "0-80", "+80", "0x50", "8e1", "\u0668\u0660", "80; reboot",
        ",".join(["80"] * 33), "80," * 170 + "443", "9" * 5000,
    )),
    *(("option-value", {_NETWORKS: value}) for value in (
        "", ",", "10.0.0.0/8,", " 10.0.0.0/8", "10.0.0.0/8\n", "0.0.0.0/0", "::/0", "10.0.0.0/7",
        "fd00::/31", "10.0.0.0", "10.0.0.0/", "10.0.0.0/08", "010.0.0.0/8", "10.0.0/24",
        "10.0.0.256/24", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "fd00::/129", "fe80::1%eth0/64",
        "::ffff:10.0.0.0/104", "1:2:3:4:5:6:7/64", "1:2:3:4:5:6:7:8:9/64", "1::2::3/64", ":::/64",
        "1:2:3:4::5:6:7:8/64", "12345::/64", "fd00::/48; reboot", "\u0661\u0660.0.0.0/8",
        "192.0.0.0/8", "192.1.0.0/9", "192.0.2.0/24", "192.0.3.0/23", "192.0.2.21/32",
        "2001:db8::/32", "2001:db8::21/128", "2001:0DB8:1::/48", "10.0.0.0/8,192.0.2.0/24",
        ",".join(["10.0.0.0/8"] * 33), "10.0.0.0/8," * 50,
    )),
]  # fmt: skip
"""The same for a pod whose options the chart's values allow."""

ADMITTED_IF_OPTIONS: list[dict[str, Any]] = [
    *({_LEVEL: value} for value in ("debug", "info", "warning", "error")),
    *({_PORTS: value} for value in (
        "1", "65535", "00080", "5432,8080-8090", "1-65535", "80-80", ",".join(["1-65535"] * 32),
    )),
    *({_NETWORKS: value} for value in (
        "10.0.0.0/8", "10.20.0.0/16,fd00:7::/48", "10.1.2.3/24", "192.168.0.0/16", "192.128.0.0/9",
        "192.0.3.0/24", "192.0.0.0/23", "193.0.0.0/8", "203.0.113.7/32", "::/32", "fd00::1/128",
        "2001::/32", "2001:db80::/32", "2001:db9::/32", "2001::db8:0:0:1/64", "1:2:3:4:5:6:7:8/64",
        "1:2:3:4:5:6:7::/64", "::2:3:4:5:6:7:8/64", "FD00:A::/48", ",".join(["fd00::/64"] * 32),
    )),
]  # fmt: skip

REFUSED_IF_TRANSPARENT: list[tuple[str, dict[str, Any]]] = [
    ("user-unset", {_SECURITY: _WITHOUT_USER}),
    ("root", {f"{_SECURITY}/runAsUser": 0}),
    ("root", {_SECURITY: _WITHOUT_USER, f"{_POD}/runAsUser": 0}),
    ("escalation", {_SECURITY: {"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}}),
    ("capability-kept", {_SECURITY: {"runAsUser": 1000, "allowPrivilegeEscalation": False}}),
    ("capability-kept", {f"{_SECURITY}/capabilities": {}}),
    ("capability-kept", {f"{_SECURITY}/capabilities/drop": ["NET_RAW", "SETUID"]}),
    ("capability-kept", {f"{_SECURITY}/capabilities/add": ["cap_setuid"]}),
    ("escalation", {f"{_SECURITY}/allowPrivilegeEscalation": True}),
]

ADMITTED: list[dict[str, Any]] = [
    {},
    {"/metadata/labels/sluice~1inject": "enabled"},
    {"/metadata/annotations/sluice~1status": "mine"},
    {"/metadata/annotations/config.sluice": "x"},
    {"/metadata/annotations/config.sluice.example~1a": "x"},
    # What the API server and its admission plug-ins fill in.
    {f"{_SIDECAR}/terminationMessagePath": "/dev/termination-log"},
    {f"{_SIDECAR}/imagePullPolicy": "Always"},
    {f"{_SIDECAR}/startupProbe/successThreshold": 1},
    {f"{_SIDECAR}/startupProbe/httpGet/scheme": "HTTP"},
    {f"{_SIDECAR}/resources/limits/cpu": "1"},
    {f"{_SIDECAR}/resources/limits/ephemeral-storage": "1Gi",
     f"{_SIDECAR}/resources/requests/ephemeral-storage": "1Gi"},
    {f"{_SIDECAR}/resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]},
    {f"{_SIDECAR}/volumeMounts/-": {
        "name": "kube-api-access-x",
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
     **_volume("kube-api-access-x", projected=_token(None))},
    {"/spec/volumes/1/projected/defaultMode": 420, "/spec/volumes/2/configMap/defaultMode": 420},
    # What comes close.
    _volume("mine", projected=_token("sluice-prod")),
    _volume("mine", projected=_token(None)),
    _volume("mine", secret={"secretName": "my-sluice-agent-x"}),
    _volume("mine", configMap={"name": "sluice-agent-x"}),
    {f"{_AGENT}/ports/-": {"containerPort": 8713}},
    {f"{_AGENT}/env/-": {"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}},
    {f"{_AGENT}/name": "sluice-proxy-2"},
    {"/spec/os/name": "linux", "/spec/nodeSelector": {"kubernetes.io/os": "linux"}},
    {"/spec/nodeSelector": {"example.com/os": "windows"}},
    {f"{_ANNOTATIONS}/kubernetes.io~1config.source": "file"},
    {"/spec/dnsPolicy": "Default"},
    {"/spec/dnsConfig/options": [{"name": "ndots", "value": "2"}]},
    {f"{_SECURITY}/runAsUser": 20103},
    {f"{_SECURITY}/privileged": False},
    {f"{_SECURITY}/capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}},
    {f"{_SECURITY}/procMount": "Default"},
    {f"{_POD}/runAsUser": 0},
    {"/spec/hostNetwork": False, "/spec/shareProcessNamespace": False},
    # No list but that of the containers has a limit of ours.
    {f"{_AGENT}/env": [{"name": f"V{each}", "value": "a"} for each in range(1001)]},
    _volume("mine", projected={"sources": [
        {"configMap": {"name": f"c{each}"}} for each in range(1001)]}),
]  # fmt: skip
"""Changes that leave the pod admitted."""


def placed(changes: dict[str, Any], mode: str) -> dict[str, Any]:
    """The changes with the sidecar's place filled in."""
    if mode == "ordinary":  # the sidecar is the first container, and has no startup probe
        behind = {each.replace(_AGENT, "/spec/containers/1"): changes[each] for each in changes}
        changes = {each.replace(_SIDECAR, _AGENT): behind[each] for each in behind}
        return {each.replace("/startup", "/readiness"): changes[each] for each in changes}
    place = "1" if mode == "transparent" else "0"
    return {pointer.replace(PROXY, place): value for pointer, value in changes.items()}
