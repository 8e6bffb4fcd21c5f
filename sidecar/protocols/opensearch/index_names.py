"""The syntax of index expressions: names, patterns, and what a pattern covers. Pure.

Raises `Unresolved` for a name whose meaning only the server can work out (an exclusion, a date,
another cluster), and `Malformed` for anything that is not a name at all.
"""

import re

from policies.ground.errors import Malformed
from sidecar.protocols.budget import MAX_SOURCES, OverBudget
from sidecar.protocols.messages import Unresolved

MAX_NAMES = 2 * MAX_SOURCES
"""The maximum number of names in one index expression. More than the maximum of sources, since
several names may be aliases of one index."""

ALL_INDICES = "*"

# Narrower than what a server allows in an index name (MetadataCreateIndexService): a name has no
# character that means something in a path, a template or a query language.
_OTHER = r"[^\s\x00-\x1f\x7f-\x9f\\/*?\"'`<>|,#:%{}$()=;]"
_FIRST = r"(?![-_+])" + _OTHER
_NAME = re.compile(f"{_FIRST}{_OTHER}*")
_PATTERN = re.compile(rf"(?:\*|{_FIRST})(?:\*|{_OTHER})*")
_MAX_BYTES = 255
_EXPAND_WILDCARDS = frozenset(("all", "open", "closed", "hidden", "none"))


def parse_names(value: object) -> tuple[str, ...]:
    """The names in an index expression, each once: a string with commas, or a list."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts:
        raise Malformed("an index is not given as a name")
    # A string may repeat a name, but even then each is read once: a body has room for millions.
    names = dict.fromkeys(parts) if isinstance(value, str) else parts
    # Each name may cost a look-up, so check the count before any look-up.
    if len(names) > MAX_NAMES:
        raise OverBudget(f"an index expression has more than {MAX_NAMES} names")
    return tuple(dict.fromkeys(map(parse_name, names)))


def parse_name(value: object) -> str:
    """One name, where the server takes only one."""
    # The server reads a number as text, and there may be an index of that name.
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise Malformed("an index is not given as a name")
    # `_all` means the same as `*`; with one form, `is_pattern` finds both.
    if value in ("_all", ALL_INDICES):
        return ALL_INDICES
    shown = f"index name `{value[:64]}`"
    # The checks from here on refuse names that two parsers may read differently.
    if value.startswith("-"):
        raise Unresolved(f"{shown} excludes indices: name the indices to read instead")
    if ":" in value:
        raise Unresolved(f"{shown} is in another cluster, whose names can't be looked up")
    if value.startswith("<"):
        raise Unresolved(f"{shown} contains a date expression: write the name out")
    if len(value.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise Unresolved(f"{shown} is longer than {_MAX_BYTES} bytes")
    if not (_PATTERN if ALL_INDICES in value else _NAME).fullmatch(value) or value in (".", ".."):
        raise Unresolved(f"{shown} contains a character that is not supported in index names")
    return value


def is_pattern(name: str) -> bool:
    return ALL_INDICES in name


def parse_expand_wildcards(value: object) -> str | None:
    """A request's `expand_wildcards`, which says what a pattern covers; None if it isn't given."""
    if value is None:
        return None
    parts = value if isinstance(value, list) else str(value).split(",")
    if not parts or any(part not in _EXPAND_WILDCARDS for part in parts):
        raise Malformed("`expand_wildcards` has a value other than open, closed, hidden, none, all")
    return ",".join(parts)
