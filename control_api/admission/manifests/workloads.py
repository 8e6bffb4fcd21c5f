"""Finds the pods in a manifest: bare ones, and the templates of workloads. Knows which kinds have
one and where, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from control_api.admission.vocabulary import Json

_TEMPLATE = ("spec", "template")
# API group and kind: where the pod is. Other groups have kinds of the same names, with other
# fields.
_PODS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): (),
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "Job"): _TEMPLATE,
}
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """A pod, or a template of pods, in a manifest."""

    path: Path
    """Where the pod is in the manifest."""
    pod: dict[str, Any]
    namespace: str
    """Empty if the manifest doesn't say."""
    title: str
    """Kind and name, for messages."""


def workloads(manifest: Any, path: Path = ()) -> Iterator[Workload]:
    """The pods in the manifest, also in the items of a List."""
    if not isinstance(manifest, dict):
        return
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    items = manifest.get("items")
    if version == "v1" and kind == "List" and isinstance(items, list):
        for place, item in enumerate(items):
            yield from workloads(item, (*path, "items", place))
        return
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    where = _PODS.get((group, kind)) if isinstance(kind, str) else None
    pod = None if where is None else _inside(manifest, where)
    # A workload without a template has no pod; the API server refuses it.
    if where is not None and isinstance(pod, dict):
        namespace = _text(manifest, "namespace")
        name = _text(manifest, "name") or _text(manifest, "generateName") or "without a name"
        yield Workload((*path, *where), pod, namespace, f"{kind}/{name}")


def namespace_labels(manifest: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """The Namespaces that the manifest creates, with their labels."""
    if not isinstance(manifest, dict) or manifest.get("apiVersion") != "v1":
        return
    items = manifest.get("items")
    if manifest.get("kind") == "List" and isinstance(items, list):
        for item in items:
            yield from namespace_labels(item)
    elif manifest.get("kind") == "Namespace":
        labels = _inside(manifest, ("metadata", "labels"))
        yield _text(manifest, "name"), labels if isinstance(labels, dict) else {}


def _inside(manifest: Json, path: tuple[str, ...]) -> Any:
    found: Any = manifest
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _text(manifest: Json, key: str) -> str:
    value = _inside(manifest, ("metadata", key))
    return value if isinstance(value, str) else ""
