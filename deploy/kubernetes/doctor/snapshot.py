"""The objects of a cluster as they were at one moment, and how they refer to each other. Reads
values from objects of any shape. Knows no file and no program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """What is there below `keys`; None if something on the way is missing."""
    for key in keys:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and len(value) > key else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def objects(value: object, *keys: str | int) -> list[Json]:
    """The objects in the list below `keys`."""
    found = at(value, *keys)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def texts(value: object, *keys: str | int) -> list[str]:
    """The texts in the list below `keys`."""
    found = at(value, *keys)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def labels(value: object, *keys: str | int) -> dict[str, str]:
    """The texts in the mapping below `keys`."""
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
    """The service account that a pod runs as."""
    return str(at(pod, "spec", "serviceAccountName") or "default")


def containers(pod: Json) -> list[Json]:
    """All containers of a pod, in the order in which they start."""
    kinds = ("initContainers", "containers", "ephemeralContainers")
    return [each for kind in kinds for each in objects(pod, "spec", kind)]


def sidecar(pod: Json) -> Json | None:
    """The sidecar of a pod: the init container of that name that goes on running, or the first
    container where the pod's option says so."""
    for each in objects(pod, "spec", "initContainers"):
        if each.get("name") == PROXY and each.get("restartPolicy") == "Always":
            return each
    first = objects(pod, "spec", "containers")[:1]
    ordinary = at(pod, "metadata", "annotations", _NATIVE) == "false"
    return next((each for each in first if ordinary and each.get("name") == PROXY), None)


@dataclass(frozen=True)
class Cluster:
    """`items` by kind. `unread` says why a kind could not be read. `registered` are the service
    accounts (namespace, name) of registered agents; None if that was not asked."""

    items: Mapping[str, tuple[Json, ...]]
    unread: Mapping[str, str] = field(default_factory=dict)
    registered: frozenset[tuple[str, str]] | None = None

    @classmethod
    def of(cls, items: Iterable[Json], **more: Any) -> Cluster:
        """A snapshot of objects of any kinds."""
        by_kind: dict[str, list[Json]] = {}
        for each in items:
            by_kind.setdefault(str(each.get("kind")), []).append(each)
        return cls({kind: tuple(found) for kind, found in by_kind.items()}, **more)

    def all(self, kind: str, where: str | None = None) -> Iterator[Json]:
        """The objects of a kind, in one namespace if `where` is given."""
        return (
            each for each in self.items.get(kind, ()) if where is None or namespace(each) == where
        )

    def pods(self, where: str | None = None) -> Iterator[Json]:
        """The pods that run, or will."""
        return (
            each for each in self.all("Pod", where) if at(each, "status", "phase") not in _ENDED
        )

    def governance(self, where: str) -> str | None:
        """The value of the namespace's label; None if it has none."""
        return self.namespace_labels(where).get(LABEL)

    def namespace_labels(self, where: str) -> dict[str, str]:
        """The labels of a namespace, with the one that the API server adds."""
        for each in self.all("Namespace"):
            if name(each) == where:
                return {"kubernetes.io/metadata.name": where, **own_labels(each)}
        return {"kubernetes.io/metadata.name": where}

    def governed(self) -> list[str]:
        """The names of the governed namespaces."""
        return [
            name(each)
            for each in self.all("Namespace")
            if own_labels(each).get(LABEL) in GOVERNED and name(each) != SYSTEM
        ]
