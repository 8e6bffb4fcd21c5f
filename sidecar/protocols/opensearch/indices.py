"""Which indices a name stands for (data-sources.md 5.3): an index, an alias, a data stream, a
pattern. Policies know indices and data streams; an alias is what it points to now.

A plain name is remembered for 30 seconds, and not past a change of names that went through us. A
pattern is expanded for every request: an index that was made meanwhile is judged like the others.
What the server would read in a way that can't be repeated here, an exclusion, a date, another
cluster's name, is `Unresolved`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.request_target import encode_segment
from sidecar.protocols.budget import MAX_SOURCES, OverBudget
from sidecar.protocols.messages import RoutedRequest, SourceRef, Unresolved
from sidecar.protocols.shared.digest_cache import DigestCache, digest_of_fields
from sidecar.protocols.shared.source_names import SourceNames

MOST_NAMES = 2 * MAX_SOURCES
"""The most names of one index expression; several may be aliases of one index."""

EVERYTHING = "*"

# Narrower than what a server lets an index be called (MetadataCreateIndexService): whatever has a
# meaning of its own somewhere, in a path, a template or a query language, is no part of a name.
_OTHER = r"[^\s\x00-\x1f\x7f-\x9f\\/*?\"'`<>|,#:%{}$()=;]"
_FIRST = r"(?![-_+])" + _OTHER
_NAME = re.compile(f"{_FIRST}{_OTHER}*")
_PATTERN = re.compile(rf"(?:\*|{_FIRST})(?:\*|{_OTHER})*")
_LONGEST = 255
_WIDTHS = frozenset(("all", "open", "closed", "hidden", "none"))

_LISTS = frozenset(("indices", "aliases", "data_streams"))

_NO_IDENTITY = frozenset(
    (
        b"accept",
        b"accept-encoding",
        b"accept-language",
        b"baggage",
        b"content-type",
        b"traceparent",
        b"tracestate",
        b"user-agent",
        b"x-elastic-client-meta",
        b"x-opaque-id",
    )
)

Found = tuple[str, ...]


def items(value: object) -> Found:
    """The names in an index expression, each once: of a text at its commas, of a list one by
    one."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts:
        raise Malformed("an index is not stated as a name")
    found: dict[str, None] = {}
    for part in parts:
        found[item(part)] = None
        if len(found) > MOST_NAMES:
            raise OverBudget(f"an index expression has more than {MOST_NAMES} names")
    return tuple(found)


def item(value: object) -> str:
    """One name, where the server takes just one."""
    # Numbers are read as their text: there may be an index of that name.
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise Malformed("an index is not stated as a name")
    if value in ("_all", EVERYTHING):
        return EVERYTHING
    if value.startswith("-"):
        raise Unresolved("an index expression that excludes can't be told: name what is wanted")
    if ":" in value:
        raise Unresolved("indices of other clusters can't be told")
    if value.startswith("<"):
        raise Unresolved("an index name with a date in it can't be told: write it out")
    if len(value.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise Unresolved("the index name is too long")
    if not (_PATTERN if EVERYTHING in value else _NAME).fullmatch(value) or value in (".", ".."):
        raise Unresolved("the index name can't be told")
    return value


def is_pattern(name: str) -> bool:
    return EVERYTHING in name


def widths(value: object) -> str | None:
    """`expand_wildcards` of a request, which says what a pattern covers; None where it is not
    stated."""
    if value is None:
        return None
    parts = value if isinstance(value, list) else str(value).split(",")
    if not parts or any(part not in _WIDTHS for part in parts):
        raise Malformed("`expand_wildcards` is not made of open, closed, hidden, none and all")
    return ",".join(parts)


class Indices:
    """The names of one server, as far as they are known for certain."""

    def __init__(self, naming: SourceNames, monotonic: Callable[[], float]) -> None:
        self._naming = naming
        self._known: DigestCache[Found] = DigestCache(monotonic)
        self.clear = self._known.clear

    async def places(
        self,
        names: Iterable[str],
        asked: RoutedRequest,
        *,
        wide: str | None = None,
        strict: bool = False,
    ) -> tuple[SourceRef, ...]:
        """What `names` stand for, all of them from `items`. A plain name that nothing has is
        itself: its policy says whether that may be known, and a write may make it. `strict` is for
        a reader that may know more kinds of name than we do: there it is `Unresolved`."""
        found: dict[str, SourceRef] = {}
        for name in dict.fromkeys(names):
            here = await self._find(name, asked, wide)
            if not here and (strict or is_pattern(name)):
                raise Unresolved(f"the data source knows no index `{name}`")
            found.update((each, self._naming.of(each)) for each in here or (name,))
            # Here as well as in the gate: no further name is looked up for a request that is over.
            asked.budget.charge_sources(place.source_id for place in found.values())
        return tuple(found.values())

    async def _find(self, name: str, asked: RoutedRequest, wide: str | None) -> Found:
        plain = not is_pattern(name)
        key = digest_of_fields(name, _identity(asked)) if plain else b""
        known = self._known.get(key)
        if known is not None:
            return known
        moment = self._known.start_lookup()
        answer = await resolution(name, asked, None if plain else wide)
        found: dict[str, None] = {}
        for each in _sources(answer):
            # An alias tells of a data stream's parts by their own names.
            part = each.startswith(".ds-") and each != name
            own = await self._find(item(each), asked, None) if part else ()
            found.update(dict.fromkeys(own or (each,)))
        if plain and found:
            self._known.put(key, tuple(found), sum(map(len, found)), moment)
        return tuple(found)


def _identity(asked: RoutedRequest) -> Iterator[tuple[bytes, bytes]]:
    """Whose question it is. What a server tells of a name depends on who asks, and plugins take
    that from fields of their own: so every field counts but those that are known not to."""
    for name, value in asked.fields:
        lower = name.lower()
        if lower not in _NO_IDENTITY:
            yield lower, value


async def resolution(
    name: str, asked: RoutedRequest, wide: str | None
) -> dict[str, list[dict[str, Any]]]:
    """The server's own word on `name`: `indices`, `aliases` and `data_streams`, each a list."""
    path = f"/_resolve/index/{encode_segment(name)}"
    if wide is not None:
        path += f"?expand_wildcards={wide}"
    try:
        answer = await asked.fetch(path)
    except UpstreamFailed as error:
        raise Unresolved(f"index `{name}` can't be looked up: {error}") from error
    if answer.status == 404:
        return {each: [] for each in _LISTS}
    if answer.status != 200:
        raise Unresolved(f"index `{name}` can't be looked up: status {answer.status}")
    try:
        return lists(orjson.loads(answer.body))
    except (orjson.JSONDecodeError, UpstreamFailed) as error:
        raise Unresolved(f"index `{name}` can't be looked up: {error}") from error


def lists(found: Any) -> dict[str, list[dict[str, Any]]]:
    """The three lists of a resolution; `UpstreamFailed` where it tells of anything else, such as a
    kind of name that is not known here."""
    if not isinstance(found, dict) or any(found[each] for each in found.keys() - _LISTS):
        raise UpstreamFailed("the data source tells of names in a way unknown")
    made = {each: found.get(each, []) for each in _LISTS}
    for entries in made.values():
        if not isinstance(entries, list) or not all(map(_named, entries)):
            raise UpstreamFailed("the data source tells of names in a way unknown")
    return made


def _named(entry: Any) -> bool:
    return (
        isinstance(entry, dict) and isinstance(entry.get("name"), str) and ":" not in entry["name"]
    )


def source_of(index: dict[str, Any]) -> str:
    """What policies know an index by: the data stream that it is part of, or its own name."""
    name: str = index.get("data_stream") or index["name"]
    return name


def members(alias: dict[str, Any]) -> list[str]:
    """The indices that an alias points to."""
    found = alias.get("indices", [])
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UpstreamFailed("the data source tells of an alias in a way unknown")
    return found


def _sources(answer: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    parts: dict[str, str] = {}
    for stream in answer["data_streams"]:
        yield stream["name"]
        parts.update(dict.fromkeys(stream.get("backing_indices", ()), stream["name"]))
    for index in answer["indices"]:
        yield source_of(index)
        parts[index["name"]] = source_of(index)
    try:
        for alias in answer["aliases"]:
            for name in members(alias):
                yield parts.get(name, name)
    except UpstreamFailed as error:
        raise Unresolved(str(error)) from error
