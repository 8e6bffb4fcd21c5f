"""Label selectors, and which connections NetworkPolicies let through (the Kubernetes API reference,
LabelSelector and NetworkPolicy). Knows objects. Judges nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import NamedTuple

from deploy.kubernetes.doctor.snapshot import (
    Cluster,
    Json,
    at,
    labels,
    namespace,
    objects,
    own_labels,
    texts,
)


class Endpoint(NamedTuple):
    """One side of a connection. `labels` are a pod's; None for an address outside the cluster."""

    namespace: str
    labels: Mapping[str, str] | None


def selects(selector: object, found: Mapping[str, str]) -> bool:
    """Whether a label selector selects an object with these labels. An empty or missing one selects
    everything; an operator that is not known, nothing."""
    wanted = labels(selector, "matchLabels")
    return all(found.get(key) == value for key, value in wanted.items()) and all(
        _holds(each, found) for each in objects(selector, "matchExpressions")
    )


def _holds(expression: Json, found: Mapping[str, str]) -> bool:
    key, values = str(expression.get("key")), texts(expression, "values")
    match expression.get("operator"):
        case "In":
            return found.get(key) in values
        case "NotIn":
            # An object without the label is "not in" too.
            return found.get(key) not in values
        case "Exists":
            return key in found
        case "DoesNotExist":
            return key not in found
    return False


def isolating(cluster: Cluster, pod: Endpoint, direction: str) -> list[Json]:
    """The policies that apply to the pod's connections in that direction, `Ingress` or `Egress`."""
    return [
        each
        for each in cluster.all("NetworkPolicy", pod.namespace)
        if direction in _types(each) and selects(at(each, "spec", "podSelector"), pod.labels or {})
    ]


def _types(policy: Json) -> list[str]:
    given = texts(policy, "spec", "policyTypes")
    # Without types a policy is for ingress, and for egress too if it has such rules.
    return given or ["Ingress", *(["Egress"] if at(policy, "spec", "egress") else [])]


def passes(cluster: Cluster, sender: Endpoint, receiver: Endpoint, port: int) -> bool:
    """Whether the policies of both sides let a TCP connection through. Without a policy that
    applies, everything passes."""
    return _admits(cluster, sender, receiver, "Egress", port) and (
        receiver.labels is None or _admits(cluster, receiver, sender, "Ingress", port)
    )


def _admits(cluster: Cluster, own: Endpoint, other: Endpoint, direction: str, port: int) -> bool:
    policies = isolating(cluster, own, direction)
    if not policies:
        return True
    key, peers = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    return any(
        _has_port(rule, port) and _has_peer(cluster, objects(rule, peers), own, other)
        for policy in policies
        for rule in objects(policy, "spec", key)
    )


def _has_port(rule: Json, port: int) -> bool:
    ports = objects(rule, "ports")
    # A rule without ports is for all of them, also of protocols that a sidecar can't read.
    return not ports or any(
        each.get("protocol", "TCP") == "TCP" and _covers(each, port) for each in ports
    )


def _covers(entry: Json, port: int) -> bool:
    first, last = entry.get("port"), entry.get("endPort")
    if first is None:
        return True
    if isinstance(first, int):
        return first <= port <= (last if isinstance(last, int) else first)
    return True  # a named port may be any; the doctor assumes the worse


def _has_peer(cluster: Cluster, peers: Iterable[Json], own: Endpoint, other: Endpoint) -> bool:
    found = list(peers)
    return not found or any(_is_peer(cluster, each, own, other) for each in found)


def _is_peer(cluster: Cluster, peer: Json, own: Endpoint, other: Endpoint) -> bool:
    block = at(peer, "ipBlock", "cidr")
    if isinstance(block, str):
        # Pods' addresses are not known here, so a block counts for them only if it is everything.
        return other.labels is None or _is_everything(block)
    if other.labels is None:
        return False
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], cluster.namespace_labels(other.namespace)):
            return False
    elif other.namespace != own.namespace:
        return False
    return selects(peer.get("podSelector"), other.labels)


def _is_everything(block: str) -> bool:
    try:
        return ip_network(block, strict=False).prefixlen == 0
    except ValueError:
        return False


def pod_endpoint(pod: Json) -> Endpoint:
    """A pod as one side of a connection."""
    return Endpoint(namespace(pod), own_labels(pod))
