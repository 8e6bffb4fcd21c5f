"""A JSON Patch (RFC 6902) that grows with the document that it changes. Knows `add` and `move`, the
only operations that injection needs, and no pod.

Never replaces a list: the items of other webhooks must survive (istio#54562).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Operation = dict[str, Any]
Path = tuple[str | int, ...]
APPEND = "-"
"""The index that stands for the place behind the last item of the list."""


class PatchFailed(Exception):
    """the operation does not fit the document"""


class Patch:
    """The operations so far, and the document as they leave it. The given one stays as it is."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.operations: list[Operation] = []

    def add(self, path: Path, value: Any) -> None:
        """Set a key, or insert an item before the index that ends `path`."""
        self._take({"op": "add", "path": pointer(path), "value": value})

    def append(self, path: Path, values: list[Any]) -> None:
        """Add items behind the last of the list at `path`, each by an operation of its own."""
        behind = pointer((*path, APPEND))
        self.operations += [{"op": "add", "path": behind, "value": each} for each in values]
        # All at once: changing the document once for each variable was a third of a review's cost.
        self.document = _extended(self.document, path, values)

    def move(self, source: Path, target: Path) -> None:
        """Take an item out and insert it elsewhere."""
        self._take({"op": "move", "from": pointer(source), "path": pointer(target)})

    def _take(self, operation: Operation) -> None:
        self.document = apply(self.document, [operation])
        self.operations.append(operation)


def pointer(path: Path) -> str:
    """Return the path as a JSON Pointer (RFC 6901)."""
    # `~` first: otherwise the `~` of `~1` would be escaped again.
    return "".join("/" + str(each).replace("~", "~0").replace("/", "~1") for each in path)


def apply(document: dict[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document after the operations. It shares all unchanged parts with the given one.
    Raises `PatchFailed` where the API server (evanphx/json-patch) would."""
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
    """Return the key or index `part`, which must exist."""
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
