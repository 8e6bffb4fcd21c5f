"""How the minimal OpenSearch reads a document: the value at a path, and what `_source` shows."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any


def filters(clause: Any) -> list[Any]:
    found = clause.get("filter") if isinstance(clause, dict) else None
    return [] if found is None else found if isinstance(found, list) else [found]


def clauses(inner: Any, key: str) -> list[Any]:
    found = inner.get(key, [])
    return found if isinstance(found, list) else [found]


def value_at(document: Any, field: str) -> Any:
    for part in field.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def shown_source(document: Any, body: Any, given: dict[str, str]) -> dict[str, Any]:
    stated = body.get("_source", True)
    if "_source" in given:
        stated = False if given["_source"] == "false" else given["_source"].split(",")
    if stated is False:
        return {}
    if stated is True:
        return {"_source": document}
    excludes: list[str] = []
    if isinstance(stated, dict):
        excludes = stated.get("excludes", [])
        stated = stated.get("includes", ["*"])
    kept = [
        path
        for path in _paths(document)
        if _named(path, [stated] if isinstance(stated, str) else stated)
        and not _named(path, excludes)
    ]
    source: dict[str, Any] = {}
    for path in kept:
        *parents, last = path.split(".")
        node = source
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value_at(document, path)
    return {"_source": source}


def _paths(document: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _paths(value, f"{before}{key}.")
        else:
            yield before + key


def _named(path: str, names: list[str]) -> bool:
    parts = path.split(".")
    starts = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return any(fnmatchcase(start, name) for start in starts for name in names)
