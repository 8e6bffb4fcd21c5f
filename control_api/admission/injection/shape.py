"""Whether a pod has the parts that injection reads, with the types that they must have. Knows
limits, and no rule about what the parts say.

The API server has checked all this before it asks the webhook; `sluice inject` reads files.
"""

from __future__ import annotations

from collections.abc import Iterator

from control_api.admission.vocabulary import Json
from policies.definitions.definition import shown

MAX_CONTAINERS = 200
"""Of all kinds together, without ours: a pod at the limit must pass a second review too. The rule
`count` refuses such a pod as well; here it is refused before a patch is made for each container.
Other lists need no limit: what they cost grows with the body, which is limited."""
KINDS = ("initContainers", "containers", "ephemeralContainers")
_FAULTS = 5
"""As many are told; a pod that is wrong throughout needs no more."""


def faults(pod: Json, own: frozenset[str]) -> list[str]:
    """What is malformed, at most five faults; empty if the pod can be read. `own` are the names of
    what we inject, which doesn't count towards the limits."""
    found = []
    for fault in _Shape(own).faults(pod):
        found.append(fault)
        if len(found) == _FAULTS:
            break
    return found


class _Shape:
    def __init__(self, own: frozenset[str]) -> None:
        self._own = own

    def faults(self, pod: Json) -> Iterator[str]:
        metadata = pod.get("metadata")
        yield from _object(metadata, "metadata")
        for key in ("labels", "annotations"):
            yield from _texts(metadata, key)
        spec = pod.get("spec")
        if not isinstance(spec, dict):
            yield "`spec` must be an object"
            return
        for key in ("serviceAccountName", "serviceAccount"):
            if not isinstance(spec.get(key), str | None):
                yield f"`spec.{key}` must be a text"
        if not spec.get("containers"):
            yield "`spec.containers` must be a list with at least one container"
        yield from self._items(spec, "volumes", "spec", set())
        yield from self._containers(spec)

    def _containers(self, spec: Json) -> Iterator[str]:
        seen: set[str] = set()
        for kind in KINDS:
            yield from self._items(spec, kind, "spec", seen)
            if len(seen - self._own) > MAX_CONTAINERS:
                yield f"`spec` has more than {MAX_CONTAINERS} containers"
                return
        for kind in KINDS:
            listed = spec.get(kind)
            for place, container in enumerate(listed if isinstance(listed, list) else []):
                if isinstance(container, dict):
                    for key in ("env", "volumeMounts"):
                        yield from self._items(container, key, f"spec.{kind}[{place}]", None)

    def _items(self, holder: Json, key: str, where: str, seen: set[str] | None) -> Iterator[str]:
        """The list `key` must hold objects with names; with `seen`, each must be a new one."""
        value = holder.get(key)
        if value is None:
            return
        if not isinstance(value, list):
            yield f"`{where}.{key}` must be a list"
            return
        names = [each.get("name") if isinstance(each, dict) else None for each in value]
        for place, name in enumerate(names):
            if not isinstance(value[place], dict):
                yield f"`{where}.{key}[{place}]` must be an object"
            elif not isinstance(name, str) or not name:
                yield f"`{where}.{key}[{place}].name` must be a text"
            elif seen is not None and name in seen:
                yield f"`{where}.{key}` names {shown(name)} a second time"
            elif seen is not None:
                seen.add(name)


def _object(value: object, where: str) -> Iterator[str]:
    if value is not None and not isinstance(value, dict):
        yield f"`{where}` must be an object"


def _texts(holder: object, key: str) -> Iterator[str]:
    value = holder.get(key) if isinstance(holder, dict) else None
    yield from _object(value, f"metadata.{key}")
    if isinstance(value, dict):
        for name, text in value.items():
            if not isinstance(text, str):
                yield f"`metadata.{key}`: the value of {shown(str(name))} must be a text"
                return
