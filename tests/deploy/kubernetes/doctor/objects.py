"""A small cluster in which nothing passes a governed namespace by, as kubectl would print it. Tests
change one thing in it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

AGENTS, STORES, OTHERS = "agents", "stores", "shop"
SIDECAR = "sluice/sidecar:0.1.0"
GOVERNED = {"matchExpressions": [
    {"key": "sluice/inject", "operator": "In", "values": ["enabled", "optional"]},
    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
]}  # fmt: skip
SOURCES = """
- {alias: kb, kind: qdrant, upstream: "http://qdrant.stores:6333", sensitivity: low}
- {alias: web, kind: rest, upstream: "https://api.example.com", sensitivity: low}
"""
INJECTION = f"""
mode: transparent
initContainers:
- {{name: sluice-init, image: {SIDECAR}}}
- {{name: sluice-proxy, image: {SIDECAR}, restartPolicy: Always}}
"""


def item(kind: str, name: str, where: str | None = None, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **({} if where is None else {"namespace": where})}
    labels = more.pop("labels", None)
    if labels:
        metadata["labels"] = labels
    return {"kind": kind, "metadata": metadata, **more}


def agent_pod(name: str = "agent-1") -> dict[str, Any]:
    spec = {
        "serviceAccountName": "loans",
        "securityContext": {"runAsUser": 1000},
        "initContainers": [
            {"name": "sluice-init", "image": SIDECAR,
             "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}},
            {"name": "sluice-proxy", "image": SIDECAR, "restartPolicy": "Always"},
        ],
        "containers": [{"name": "agent", "image": "agent:1", "securityContext": {
            "capabilities": {"drop": ["ALL"]}}}],
    }  # fmt: skip
    return item("Pod", name, AGENTS, labels={"app": "agent"}, spec=spec)


def ordinary_pod(name: str, native: str) -> dict[str, Any]:
    """Its sidecar is an ordinary container, and its option `native-sidecar` says `native`."""
    pod = agent_pod(name)
    pod["metadata"]["annotations"] = {"config.sluice/native-sidecar": native}
    sidecar = {"name": "sluice-proxy", "image": SIDECAR}
    pod["spec"]["initContainers"].pop()
    pod["spec"]["containers"].insert(0, sidecar)
    return pod


def network_policies() -> Iterator[dict[str, Any]]:
    to_store = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": STORES}}}
    yield item("NetworkPolicy", "egress", AGENTS, spec={
        "podSelector": {}, "policyTypes": ["Egress"],
        "egress": [{"to": [to_store], "ports": [{"protocol": "TCP", "port": 6333}]},
                   {"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "ports": [{"port": 443}]}],
    })  # fmt: skip
    yield item("NetworkPolicy", "ingress", STORES, spec={
        "podSelector": {"matchLabels": {"app": "qdrant"}}, "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"namespaceSelector": copy.deepcopy(GOVERNED)}],
                     "ports": [{"port": 6333}]}],
    })  # fmt: skip


def admission() -> Iterator[dict[str, Any]]:
    service = {"name": "sluice-webhook", "namespace": "sluice-system", "path": "/inject"}
    yield item("MutatingWebhookConfiguration", "sluice-webhook", webhooks=[{
        "name": "enabled.inject.sluice", "namespaceSelector": copy.deepcopy(GOVERNED),
        "clientConfig": {"service": service, "caBundle": "LS0t"},
    }])  # fmt: skip
    yield item("ValidatingAdmissionPolicy", "sluice-refuse", spec={
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": copy.deepcopy(GOVERNED),
            "resourceRules": [{"resources": ["pods", "pods/ephemeralcontainers"]}],
        },
    })  # fmt: skip
    yield item("ValidatingAdmissionPolicyBinding", "sluice-refuse", spec={
        "policyName": "sluice-refuse", "validationActions": ["Deny"],
    })  # fmt: skip


def role(kind: str, name: str, where: str | None, *rules: tuple[str, str, str]) -> dict[str, Any]:
    found = [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        for group, resource, verb in rules
    ]
    return item(kind, name, where, rules=found)


def binding(
    role_name: str, where: str | None, subject: dict[str, str], kind: str = "ClusterRole"
) -> dict[str, Any]:
    bound = "ClusterRoleBinding" if where is None else "RoleBinding"
    return item(bound, f"to-{role_name}", where, subjects=[subject],
                roleRef={"kind": kind, "name": role_name})  # fmt: skip


def cluster() -> list[dict[str, Any]]:
    """The objects; each call makes new ones."""
    return [
        item("Namespace", "kube-system"),
        item("Namespace", "sluice-system"),
        item("Namespace", AGENTS, labels={"sluice/inject": "enabled"}),
        item("Namespace", STORES),
        item("Namespace", OTHERS),
        agent_pod(),
        item("Pod", "qdrant-0", STORES, labels={"app": "qdrant"}, spec={"containers": []}),
        item("Pod", "till-0", OTHERS, labels={"app": "till"}, spec={"containers": []}),
        item("Service", "qdrant", STORES, spec={"selector": {"app": "qdrant"}}),
        item("ConfigMap", "sluice-injection", "sluice-system", data={"injection.yaml": INJECTION}),
        item("ConfigMap", "sluice-sources", AGENTS, data={"sources.yaml": SOURCES}),
        *network_policies(),
        *admission(),
        role("ClusterRole", "admin", None, ("*", "*", "*")),
        binding("admin", None, {"kind": "Group", "name": "system:masters"}),
        binding("admin", None, {"kind": "ServiceAccount", "name": "x", "namespace": "kube-system"}),
        role("Role", "reader", AGENTS, ("", "configmaps", "get")),
        binding("reader", AGENTS, {"kind": "Group", "name": "system:authenticated"}, "Role"),
    ]
