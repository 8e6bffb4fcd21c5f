"""What a search shows of its documents (`_source`), and how the mark gets there beside it. Pure."""

from fnmatch import fnmatchcase
from typing import Any, NamedTuple


class ShownFields(NamedTuple):
    """What the caller asked to see of a document: nothing of `_source` where `source` is false, and
    the mark only where `mark` is true."""

    source: bool = True
    mark: bool = True


def shown_of(stated: Any, field: str) -> ShownFields | None:
    """What `_source` of a search asks for; None where the mark can't be had beside it."""
    if stated is None or stated is True:
        return ShownFields()
    if stated is False:
        return ShownFields(source=False, mark=False)
    includes: Any = stated
    if isinstance(stated, dict):
        if not stated.keys() <= {"includes", "include", "excludes", "exclude"}:
            return None
        if len(stated) > len({key.removesuffix("s") for key in stated}):
            return None
        excludes = _names(stated.get("excludes", stated.get("exclude", [])))
        if excludes is None or any(_covers(name, field) for name in excludes):
            return None
        includes = stated.get("includes", stated.get("include", []))
    names = _names(includes)
    if names is None:
        return None
    return ShownFields(mark=not names or any(_covers(name, field) for name in names))


def also(stated: Any, field: str) -> Any:
    """`_source` with `field` among what is included."""
    if isinstance(stated, dict):
        key = "includes" if "includes" in stated else "include"
        return {**stated, key: [*(_names(stated[key]) or ()), field]}
    return [*(_names(stated) or ()), field]


def _names(value: Any) -> list[str] | None:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    return None


def _covers(name: str, field: str) -> bool:
    """Whether a name of `_source` stands for `field` or for what it is part of; `*` is the only
    wildcard."""
    parts = field.split(".")
    pattern = name.replace("[", "[[]").replace("?", "[?]")
    return any(fnmatchcase(".".join(parts[:count]), pattern) for count in range(1, len(parts) + 1))
