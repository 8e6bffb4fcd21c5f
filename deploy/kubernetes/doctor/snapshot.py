"""Holds the objects of a cluster as they were at one moment, and how they refer to each other, by
label selectors and NetworkPolicies (the Kubernetes API reference). Reads no file, judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any, NamedTuple

Json = Mapping[str, Any]
"""An object from outside. Everything in it may be missing, or have another type."""

LABEL = "sluice/inject"
"""The label of namespaces and pods that asks for injection, or declines it."""
SYSTEM = "sluice-system"
INIT, PROXY = "sluice-init", "sluice-proxy"
_NATIVE = "config.sluice/native-sidecar"
GOVERNED = ("enabled", "optional")
_ENDED = ("Succeeded", "Failed")


def at(value: object, *keys: str | int) -> Any:
    """Return the value below `keys`; None if something on the way is missing."""
    for key in keys:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and len(value) > key else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def objects(value: object, *keys: str | int) -> list[Json]:
    """Return the objects in the list below `keys`."""
    found = at(value, *keys)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def texts(value: object, *keys: str | int) -> list[str]:
    """Return the texts in the list below `keys`."""
    found = at(value, *keys)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def labels(value: object, *keys: str | int) -> dict[str, str]:
    """Return the texts in the mapping below `keys`."""
    found = at(value, *keys)
    pairs = found.items() if isinstance(found, Mapping) else ()
    return {str(name): each for name, each in pairs if isinstance(each, str)}


def name(item: Json) -> str:
    return str(at(item, "metadata", "name") or "")


def namespace(item: Json) -> str:
    return str(at(item, "metadata", "namespace") or "")


def own_labels(item: Json) -> dict[str, str]:
    return labels(item, "metadata", "labels")


def account(pod: Json) -> str:
    """Return the service account that a pod runs as."""
    return str(at(pod, "spec", "serviceAccountName") or "default")


def containers(pod: Json) -> list[Json]:
    """Return all containers of a pod, in the order in which they start."""
    kinds = ("initContainers", "containers", "ephemeralContainers")
    return [each for kind in kinds for each in objects(pod, "spec", kind)]


def sidecar(pod: Json) -> Json | None:
    """Return the sidecar of a pod: the init container of that name that keeps running, or the first
    container if the pod's option says so."""
    for each in objects(pod, "spec", "initContainers"):
        if each.get("name") == PROXY and each.get("restartPolicy") == "Always":
            return each
    first = objects(pod, "spec", "containers")[:1]
    ordinary = at(pod, "metadata", "annotations", _NATIVE) == "false"
    return next((each for each in first if ordinary and each.get("name") == PROXY), None)


@dataclass(frozen=True)
class Cluster:
    """`items` by kind. `unread` has the reason why a kind could not be read. `registered` are the
    service accounts (namespace, name) of registered agents; None if they were not asked for."""

    items: Mapping[str, tuple[Json, ...]]
    unread: Mapping[str, str] = field(default_factory=dict)
    registered: frozenset[tuple[str, str]] | None = None

    @classmethod
    def of(cls, items: Iterable[Json], **more: Any) -> Cluster:
        """Return a snapshot of objects of any kinds."""
        by_kind: dict[str, list[Json]] = {}
        for each in items:
            by_kind.setdefault(str(each.get("kind")), []).append(each)
        return cls({kind: tuple(found) for kind, found in by_kind.items()}, **more)

    def all(self, kind: str, where: str | None = None) -> Iterator[Json]:
        """Return the objects of a kind, in one namespace if `where` is given."""
        return (
            each for each in self.items.get(kind, ()) if where is None or namespace(each) == where
        )

    def pods(self, where: str | None = None) -> Iterator[Json]:
        """Return the pods that run, or will."""
        return (
            each for each in self.all("Pod", where) if at(each, "status", "phase") not in _ENDED
        )

    def governance(self, where: str) -> str | None:
        """Return the value of the namespace's label; None if it has none."""
        return self.namespace_labels(where).get(LABEL)

    def namespace_labels(self, where: str) -> dict[str, str]:
        """Return the labels of a namespace, with the one that the API server adds."""
        for each in self.all("Namespace"):
            if name(each) == where:
                return {"kubernetes.io/metadata.name": where, **own_labels(each)}
        return {"kubernetes.io/metadata.name": where}

    def governed(self) -> list[str]:
        """Return the names of the governed namespaces."""
        return [
            name(each)
            for each in self.all("Namespace")
            if own_labels(each).get(LABEL) in GOVERNED and name(each) != SYSTEM
        ]


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
