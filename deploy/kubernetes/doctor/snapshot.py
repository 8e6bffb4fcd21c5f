"""A snapshot of a cluster's objects, and how label selectors and NetworkPolicies relate them (the
Kubernetes API reference). Reads no file, and judges nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any, NamedTuple

Json = Mapping[str, Any]
"""A JSON object from outside. Anything in it may be missing, or have another type."""

LABEL = "sluice/inject"
"""The label by which a namespace requests injection for its pods, and by which a pod can decline
it."""
SYSTEM = "sluice-system"
INIT, PROXY = "sluice-init", "sluice-proxy"
_NATIVE = "config.sluice/native-sidecar"
GOVERNED = ("enabled", "optional")
_ENDED = ("Succeeded", "Failed")


def at(value: object, *keys: str | int) -> Any:
    """Return the value that `keys` lead to inside `value`; None if something on the way is
    missing."""
    for key in keys:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and len(value) > key else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def objects(value: object, *keys: str | int) -> list[Json]:
    """Return those items of the list under `keys` that are objects."""
    found = at(value, *keys)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def texts(value: object, *keys: str | int) -> list[str]:
    """Return those items of the list under `keys` that are texts."""
    found = at(value, *keys)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def labels(value: object, *keys: str | int) -> dict[str, str]:
    """Return those members of the object under `keys` whose value is a text."""
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
    """Return the name of the service account that a pod runs as."""
    return str(at(pod, "spec", "serviceAccountName") or "default")


def containers(pod: Json) -> list[Json]:
    """Return all containers of a pod: the init containers, then the ordinary and the ephemeral
    ones."""
    kinds = ("initContainers", "containers", "ephemeralContainers")
    return [each for kind in kinds for each in objects(pod, "spec", kind)]


def sidecar(pod: Json) -> Json | None:
    """Return the sidecar container of a pod; None if there is none. It is the init container
    `sluice-proxy` that keeps running, or if the pod's option says so, the first ordinary
    container."""
    for each in objects(pod, "spec", "initContainers"):
        if each.get("name") == PROXY and each.get("restartPolicy") == "Always":
            return each
    first = objects(pod, "spec", "containers")[:1]
    ordinary = at(pod, "metadata", "annotations", _NATIVE) == "false"
    return next((each for each in first if ordinary and each.get("name") == PROXY), None)


@dataclass(frozen=True)
class Cluster:
    """A snapshot of a cluster. `items` are the objects by kind. `unread` has the reason for each
    kind that could not be read. `registered` are the service accounts (namespace, name) of
    registered agents; None if these are not known."""

    items: Mapping[str, tuple[Json, ...]]
    unread: Mapping[str, str] = field(default_factory=dict)
    registered: frozenset[tuple[str, str]] | None = None

    @classmethod
    def of(cls, items: Iterable[Json], **more: Any) -> Cluster:
        """Make a snapshot of objects of any kinds. `more` are the other fields."""
        by_kind: dict[str, list[Json]] = {}
        for each in items:
            by_kind.setdefault(str(each.get("kind")), []).append(each)
        return cls({kind: tuple(found) for kind, found in by_kind.items()}, **more)

    def all(self, kind: str, where: str | None = None) -> Iterator[Json]:
        """Yield the objects of a kind, only those in the namespace `where` if it is given."""
        return (
            each for each in self.items.get(kind, ()) if where is None or namespace(each) == where
        )

    def pods(self, where: str | None = None) -> Iterator[Json]:
        """Yield the pods that have not ended, only those in the namespace `where` if it is
        given."""
        return (
            each for each in self.all("Pod", where) if at(each, "status", "phase") not in _ENDED
        )

    def governance(self, where: str) -> str | None:
        """Return the value of the namespace's label `sluice/inject`; None if it has none."""
        return self.namespace_labels(where).get(LABEL)

    def namespace_labels(self, where: str) -> dict[str, str]:
        """Return the labels of a namespace, including the one with its name, which the API server
        adds."""
        for each in self.all("Namespace"):
            if name(each) == where:
                return {"kubernetes.io/metadata.name": where, **own_labels(each)}
        return {"kubernetes.io/metadata.name": where}

    def governed(self) -> list[str]:
        """Return the names of the governed namespaces: those whose label requests injection."""
        return [
            name(each)
            for each in self.all("Namespace")
            if own_labels(each).get(LABEL) in GOVERNED and name(each) != SYSTEM
        ]


class Endpoint(NamedTuple):
    """One side of a network connection. `labels` are those of a pod; None for an address outside
    the cluster."""

    namespace: str
    labels: Mapping[str, str] | None


def selects(selector: object, found: Mapping[str, str]) -> bool:
    """Return whether a label selector selects an object with the labels `found`. An empty or
    missing selector selects everything, an unknown operator nothing."""
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
    """Return the NetworkPolicies that restrict the pod's connections in one direction, `Ingress` or
    `Egress`."""
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
    """Return whether the NetworkPolicies of both pods allow a TCP connection to `port`. If no
    policy applies to a pod, everything is allowed for it."""
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
    """Return a pod as one side of a connection."""
    return Endpoint(namespace(pod), own_labels(pod))
