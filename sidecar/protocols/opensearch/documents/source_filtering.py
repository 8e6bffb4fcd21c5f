"""The fields that a search returns of each document (`_source`), and how to add the level to them.
Pure."""

from fnmatch import fnmatchcase
from typing import Any, NamedTuple


class ShownFields(NamedTuple):
    """What the caller asked to see of a document. Anything else that the response contains was
    added by the sidecar, which takes it out again."""

    source: bool = True
    """Whether the response shows `_source` at all."""
    level: bool = True
    """Whether `_source` shows the document's level."""


def shown_fields(given: Any, field: str) -> ShownFields | None:
    """The fields that the `_source` of a search asks for, or None if the level in `field` can't be
    added to them."""
    if given is None or given is True:
        return ShownFields()
    if given is False:
        return ShownFields(source=False, level=False)
    includes: Any = given
    if isinstance(given, dict):
        if not given.keys() <= {"includes", "include", "excludes", "exclude"}:
            return None
        # With two spellings of one member, it isn't known which one the server uses.
        if len(given) > len({key.removesuffix("s") for key in given}):
            return None
        excludes = _names(given.get("excludes", given.get("exclude", [])))
        # `excludes` wins over `includes`, so the level can't be added.
        if excludes is None or any(_covers(name, field) for name in excludes):
            return None
        includes = given.get("includes", given.get("include", []))
    names = _names(includes)
    if names is None:
        return None
    # Without any names, every field is included.
    return ShownFields(level=not names or any(_covers(name, field) for name in names))


def include_field(given: Any, field: str) -> Any:
    """`_source` with `field` included."""
    if isinstance(given, dict):
        key = "includes" if "includes" in given else "include"
        return {**given, key: [*(_names(given[key]) or ()), field]}
    return [*(_names(given) or ()), field]


def _names(value: Any) -> list[str] | None:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    return None


def _covers(name: str, field: str) -> bool:
    """Whether a name in `_source` covers `field` or an object around it. `*` is the only
    wildcard."""
    parts = field.split(".")
    # `fnmatchcase` has two more wildcards: escape them.
    pattern = name.replace("[", "[[]").replace("?", "[?]")
    return any(fnmatchcase(".".join(parts[:count]), pattern) for count in range(1, len(parts) + 1))
