"""Decides about one pod that is being created: returns the JSON Patch that adds the sidecar, or the
reason why there is no patch. Also builds and applies JSON Patches (RFC 6902).

The patch only adds parts that are missing, and recognises existing ones by name. It does not check
whether a part with one of Sluice's names really is Sluice's: the rules (`refusing.rules`) judge the
pod after the patch, and refuse it if such a part differs in anything.

A patch never replaces a list: the items that other webhooks added must survive (istio#54562).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from deploy.kubernetes.admission.refusing.pod_view import account_of, form_of, inject_label
from deploy.kubernetes.admission.refusing.rules import refusals
from deploy.kubernetes.admission.template import Fragment
from deploy.kubernetes.admission.vocabulary import (
    LABEL,
    STATUS,
    Governance,
    Json,
    Namespace,
    Outcome,
    Refusal,
    SkipReason,
    Verdict,
)
from policies.definitions.definition import shown

Operation = dict[str, Any]
Path = tuple[str | int, ...]
APPEND = "-"
"""The index in a JSON Patch path that stands for the place after a list's last item."""


class PatchFailed(Exception):
    """the operation does not fit the document"""


class Patch:
    """Builds a JSON Patch: `operations` are its operations so far, and `document` is the document
    after them. The document given at the beginning is not changed."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.operations: list[Operation] = []

    def add(self, path: Path, value: Any) -> None:
        """Add an operation that sets the key at the end of `path`, or inserts an item before the
        index at its end."""
        self._take({"op": "add", "path": pointer(path), "value": value})

    def append(self, path: Path, values: list[Any]) -> None:
        """Add operations that append `values` to the list at `path`, one operation for each
        item."""
        behind = pointer((*path, APPEND))
        self.operations += [{"op": "add", "path": behind, "value": each} for each in values]
        # All at once: changing the document once for each variable was a third of a review's cost.
        self.document = _extended(self.document, path, values)

    def move(self, source: Path, target: Path) -> None:
        """Add an operation that moves the item at `source` to `target`."""
        self._take({"op": "move", "from": pointer(source), "path": pointer(target)})

    def _take(self, operation: Operation) -> None:
        self.document = apply(self.document, [operation])
        self.operations.append(operation)


def pointer(path: Path) -> str:
    """Return the path of keys and indices as a JSON Pointer (RFC 6901)."""
    # `~` first: otherwise the `~` of `~1` would be escaped again.
    return "".join("/" + str(each).replace("~", "~0").replace("/", "~1") for each in path)


def apply(document: dict[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document after the operations; its unchanged parts are shared with `document`.
    Raises `PatchFailed` where the API server (evanphx/json-patch) would refuse an operation."""
    for operation in operations:
        target = _parts(operation["path"])
        if operation["op"] == "add":
            document = _added(document, target, operation["value"])
        elif operation["op"] == "move":
            source = _parts(operation["from"])
            document = _added(_removed(document, source), target, _value(document, source))
        else:
            raise PatchFailed(f"operation `{operation['op']}` is neither `add` nor `move`")
    return document


def _parts(written: str) -> list[str]:
    if not written.startswith("/"):
        raise PatchFailed(f"`{written}` is not a path inside the document")
    # `~1` first: otherwise `~01` would become `/` instead of `~1`.
    return [each.replace("~1", "/").replace("~0", "~") for each in written[1:].split("/")]


def _value(container: Any, parts: list[str]) -> Any:
    for part in parts:
        container = container[_existing(container, part)]
    return container


def _added(container: Any, parts: list[str], value: Any) -> Any:
    first, *rest = parts
    if rest:
        key = _existing(container, first)
        return _with(container, key, _added(container[key], rest, value))
    if isinstance(container, list):
        place = len(container) if first == APPEND else _index(first, len(container))
        return [*container[:place], value, *container[place:]]
    if isinstance(container, dict):
        return {**container, first: value}
    raise PatchFailed(f"`{first}` can't be added to a {type(container).__name__}")


def _extended(container: Any, path: Path, values: list[Any]) -> Any:
    if not path:
        return [*container, *values]
    first, *rest = path
    return _with(container, first, _extended(container[first], tuple(rest), values))


def _removed(container: Any, parts: list[str]) -> Any:
    first, *rest = parts
    key = _existing(container, first)
    if rest:
        return _with(container, key, _removed(container[key], rest))
    if isinstance(container, list):
        return [each for place, each in enumerate(container) if place != key]
    return {name: each for name, each in container.items() if name != key}


def _with(container: Any, key: str | int, value: Any) -> Any:
    if isinstance(container, list):
        return [value if place == key else each for place, each in enumerate(container)]
    return {**container, key: value}


def _existing(container: Any, part: str) -> str | int:
    """Return `part` as a key of the object `container`, or as an index if that is a list. Raises
    `PatchFailed` if there is no such item."""
    if isinstance(container, list):
        return _index(part, len(container) - 1)
    if isinstance(container, dict) and part in container:
        return part
    raise PatchFailed(f"there is no `{part}`")


def _index(part: str, last: int) -> int:
    # No sign, no leading zero, no digits of other scripts: RFC 6901, section 4.
    plain = part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")
    if not plain or len(part) > 9 or int(part) > last:
        raise PatchFailed(f"`{part}` is not an index from 0 to {last}")
    return int(part)


MAX_CONTAINERS = 200
"""The most containers of all kinds together, not counting Sluice's own: a pod at the limit must
pass a second review too. The rule `count` refuses a larger pod as well; here it is refused before a
patch is made for each container. Other lists need no limit: their cost grows with the body, which
is limited."""
KINDS = ("initContainers", "containers", "ephemeralContainers")
_FAULTS = 5
"""The most faults of a pod that are reported."""


def faults(pod: Json, own: frozenset[str]) -> list[str]:
    """Return the faults in the form of a pod, at most five; empty if it can be processed. `own` are
    the names of the containers that Sluice injects, which don't count towards the limit."""
    # The API server has checked all this before it asks the webhook; `sluice inject` reads files.
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
        """Yield the faults of the list `key`, which must hold objects with names. If `seen` is
        given, no name may be in it already."""
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


# RFC 1123: the API server accepts no other name of a ServiceAccount. It becomes part of the names
# of a ConfigMap and a Secret.
_ACCOUNT = re.compile(r"\A[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")


def obstacles(pod: Json, fragment: Fragment) -> list[Refusal]:
    """Return every reason why the sidecar can't be injected into the pod: its form is wrong, or the
    name of its ServiceAccount."""
    malformed = [Refusal("malformed", each) for each in faults(pod, frozenset(fragment.own_names))]
    if malformed:
        # The name of the account may be what was just found to be of another type.
        return malformed
    account = account_of(pod)
    if not _ACCOUNT.match(account):
        return [Refusal("account", f"{shown(account)} is not the name of a ServiceAccount")]
    return []


_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


def review(pod: dict[str, Any], namespace: Namespace, fragment: Fragment) -> Verdict:
    """Decide about `pod`, which is being created in `namespace`: inject the parts of `fragment`,
    leave the pod as it is, or refuse it."""
    if namespace.governance is Governance.NONE:
        return _skipped(
            SkipReason.not_governed,
            f"namespace `{namespace.name}` has no label `{LABEL}` that asks for injection",
        )
    found = obstacles(pod, fragment)
    if found:
        return _refused(found)
    if namespace.governance is Governance.OPTIONAL and inject_label(pod) == "disabled":
        found = refusals(pod, fragment, namespace, "CREATE")
        return _refused(found) if found else _skipped(SkipReason.opted_out, f"`{LABEL}: disabled`")
    filled = form_of(pod, fragment)
    patch = Patch(pod)
    _inject(patch, filled)
    found = refusals(patch.document, fragment, namespace, "CREATE")
    if found:
        return _refused(found)
    return Verdict(
        Outcome.injected if patch.operations else Outcome.unchanged,
        tuple(patch.operations),
        warnings=tuple(_warnings(patch.document["spec"], filled)),
    )


def status(fragment: Fragment) -> str:
    """Return the value of the annotation `sluice/status`: the version and mode of the injected
    parts, and a prefix of their digest."""
    written = {
        "version": fragment.version,
        "mode": fragment.mode,
        "fragment": f"sha256:{fragment.digest[:16]}",
    }
    return json.dumps(written, separators=(",", ":"))


def _inject(patch: Patch, fragment: Fragment) -> None:
    spec = patch.document["spec"]
    _place(patch, "initContainers", fragment.init_containers)
    _place(patch, "containers", fragment.containers)
    _append(patch, ("spec", "volumes"), spec.get("volumes"), fragment.volumes)
    for kind in ("initContainers", "containers"):
        for place, container in enumerate(patch.document["spec"].get(kind) or []):
            if container["name"] not in fragment.own_names:
                path = ("spec", kind, place, "env")
                _append(patch, path, container.get("env"), fragment.environment)
    _annotate(patch, status(fragment))


def _place(patch: Patch, kind: str, wanted: tuple[Json, ...]) -> None:
    """Put Sluice's containers before all others in the list `kind`, also if another webhook has put
    its own first: a container that starts before the sidecar is not governed."""
    # `null` in a manifest counts as absent. A missing list is added with what goes into it.
    if wanted and patch.document["spec"].get(kind) is None:
        patch.add(("spec", kind), list(wanted))
        return
    for place, container in enumerate(wanted):
        have = [each["name"] for each in patch.document["spec"][kind]]
        target = ("spec", kind, place)
        if container["name"] not in have:
            patch.add(target, container)
        elif have[place] != container["name"]:
            patch.move(("spec", kind, have.index(container["name"])), target)


def _append(patch: Patch, path: Path, have: list[Json] | None, wanted: tuple[Json, ...]) -> None:
    """Append to a list those of the `wanted` items whose name is not in it. An existing item is
    never changed."""
    names = {each.get("name") for each in have or []}
    missing = [each for each in wanted if each["name"] not in names]
    if missing and have is None:
        patch.add(path, missing)
    elif missing:
        patch.append(path, missing)


def _annotate(patch: Patch, text: str) -> None:
    metadata = patch.document.get("metadata")
    if metadata is None:
        patch.add(("metadata",), {})
    annotations = (metadata or {}).get("annotations")
    if annotations is None:
        patch.add(("metadata", "annotations"), {})
    # Whatever stands there is not believed, only replaced: anyone can write it.
    if (annotations or {}).get(STATUS) != text:
        patch.add(("metadata", "annotations", STATUS), text)


def _warnings(spec: Json, fragment: Fragment) -> Iterator[str]:
    """Yield a warning for each container that sets a proxy variable to a value of its own, and so
    bypasses the sidecar."""
    wanted = {each["name"]: each for each in fragment.environment if each["name"] in _PROXIES}
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        for variable in container.get("env") or []:
            name = variable.get("name")
            if isinstance(name, str) and name in wanted and variable != wanted[name]:
                told = shown(container["name"])
                yield f"container {told} sets `{name}` and passes the sidecar by"
                break


def _refused(found: list[Refusal]) -> Verdict:
    return Verdict(Outcome.refused, message="; ".join(map(str, found)), refusals=tuple(found))


def _skipped(reason: SkipReason, message: str) -> Verdict:
    return Verdict(Outcome.skipped, skip_reason=reason, message=message)
