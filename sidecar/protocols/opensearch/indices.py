"""Reads index expressions, and resolves the names in them to sources (`protocols/RULES.md`,
OpenSearch). A name may be an index, an alias, a data stream or a pattern. Policies name indices and
data streams; an alias counts as the indices that it points to.

Raises `Unresolved` for a name whose meaning only the server can work out (an exclusion, a date,
another cluster), and `Malformed` for anything that is not a name at all. The resolution of a plain
name is cached for 30 seconds, or until the sidecar forwards a change of names. A pattern is
resolved for every request, so that a new index is judged like the others.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.request_target import encode_segment
from sidecar.protocols.protocol import RoutedRequest, SourceRef, Unresolved
from sidecar.protocols.shared.caches import DigestCache, digest_of_fields
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.strict_body import MAX_SOURCES, OverBudget

MAX_NAMES = 2 * MAX_SOURCES
"""The most names in one index expression: more than a request may have sources, since several names
may be aliases of one source."""

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
    """Return the names in an index expression, which is a string with commas or a list, without
    duplicates. Raises `Malformed`, `Unresolved` and `OverBudget`."""
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
    """Return the single index name in `value`, where the server accepts only one. Raises
    `Malformed` and `Unresolved`."""
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
    """Return the value of `expand_wildcards`, which says which kinds of indices a pattern covers;
    None if it isn't given. Raises `Malformed`."""
    if value is None:
        return None
    parts = value if isinstance(value, list) else str(value).split(",")
    if not parts or any(part not in _EXPAND_WILDCARDS for part in parts):
        raise Malformed("`expand_wildcards` has a value other than open, closed, hidden, none, all")
    return ",".join(parts)


Names = tuple[str, ...]
Resolution = dict[str, list[dict[str, Any]]]
"""A response of the server's `_resolve/index`: lists of objects under `indices`, `aliases` and
`data_streams`."""

_LISTS = frozenset(("indices", "aliases", "data_streams"))

# Header fields that don't identify the caller. A difference in any other repeats the look-up.
_NOT_IDENTITY = frozenset((
    b"accept", b"accept-encoding", b"accept-language", b"baggage", b"content-type", b"traceparent",
    b"tracestate", b"user-agent", b"x-elastic-client-meta", b"x-opaque-id",
))  # fmt: skip


class Indices:
    """Resolves index names of one server to sources, and caches what plain names stand for."""

    def __init__(self, source_names: SourceNames, monotonic: Callable[[], float]) -> None:
        self._source_names = source_names
        self._known: DigestCache[Names] = DigestCache(monotonic)
        self.clear = self._known.clear

    async def sources(
        self,
        names: Iterable[str],
        request: RoutedRequest,
        *,
        expand_wildcards: str | None = None,
        strict: bool = False,
    ) -> tuple[SourceRef, ...]:
        """Return the sources that `names` (from `parse_names`) stand for. A plain name that doesn't
        exist counts as a source of that name: its policy says whether the agent may know that, and
        a write may create it. With `strict`, such a name raises `Unresolved`, since a query
        language may have kinds of names that are unknown here."""
        found: dict[str, SourceRef] = {}
        for name in dict.fromkeys(names):
            resolved = await self._resolve(name, request, expand_wildcards)
            if not resolved and (strict or is_pattern(name)):
                raise Unresolved(f"the data source has no index `{name}`")
            found.update((each, self._source_names.of(each)) for each in resolved or (name,))
            # The pipeline charges sources too. Charging here stops the look-ups of a request that
            # is already over its budget.
            request.budget.charge_sources(source.source_id for source in found.values())
        return tuple(found.values())

    async def _resolve(
        self, name: str, request: RoutedRequest, expand_wildcards: str | None
    ) -> Names:
        plain = not is_pattern(name)
        # No entry has an empty key, so a pattern is never found in the cache.
        key = digest_of_fields(name, _identity_fields(request)) if plain else b""
        if (known := self._known.get(key)) is not None:
            return known
        # Start before the request: a change during the look-up must prevent caching.
        started = self._known.start_lookup()
        resolution = await resolve(name, request, None if plain else expand_wildcards)
        found: dict[str, None] = {}
        for each in _resolved_names(resolution):
            # An alias lists the backing indices of a data stream by their own names, but policies
            # know only the stream, which a second look-up finds. `each != name` ends the recursion.
            backing = each.startswith(".ds-") and each != name
            own = await self._resolve(parse_name(each), request, None) if backing else ()
            found.update(dict.fromkeys(own or (each,)))
        # A name that doesn't exist isn't cached: it may become an alias of anything.
        if plain and found:
            self._known.put(key, tuple(found), sum(map(len, found)), started)
        return tuple(found)


def _identity_fields(request: RoutedRequest) -> Iterator[tuple[bytes, bytes]]:
    """Yield the header fields that may identify the caller. A server's answer depends on who asks,
    and plugins read that from fields of their own, so every field counts except those known not to
    matter."""
    for name, value in request.fields:
        lower = name.lower()
        if lower not in _NOT_IDENTITY:
            yield lower, value


async def resolve(name: str, request: RoutedRequest, expand_wildcards: str | None) -> Resolution:
    """Ask the server what `name` stands for. Raises `Unresolved` if it can't be looked up."""
    path = f"/_resolve/index/{encode_segment(name)}"
    if expand_wildcards is not None:
        path += f"?expand_wildcards={expand_wildcards}"
    try:
        response = await request.fetch(path)
        # 404 means a plain name that doesn't exist.
        if response.status == 404:
            return {each: [] for each in _LISTS}
        if response.status == 200:
            return parse_resolution(orjson.loads(response.body))
    except (orjson.JSONDecodeError, UpstreamFailed) as error:
        raise Unresolved(f"can't look up index `{name}`: {error}") from error
    raise Unresolved(f"can't look up index `{name}`: status {response.status}")


def parse_resolution(body: Any) -> Resolution:
    """Return the server's resolution of a name, after checking its form. Raises `UpstreamFailed` if
    it holds anything else, such as a kind of name that is unknown here."""
    # An empty list of an unknown kind names nothing, so it may pass.
    if not isinstance(body, dict) or any(body[each] for each in body.keys() - _LISTS):
        raise UpstreamFailed("the data source's index resolution has an unknown form")
    resolution = {each: body.get(each, []) for each in _LISTS}
    for entries in resolution.values():
        if not isinstance(entries, list) or not all(map(_has_local_name, entries)):
            raise UpstreamFailed("the data source's index resolution has an unknown form")
    return resolution


def _has_local_name(entry: Any) -> bool:
    name = entry.get("name") if isinstance(entry, dict) else None
    return isinstance(name, str) and ":" not in name


def source_name(index: dict[str, Any]) -> str:
    """Return the name by which policies know an index: the name of the data stream that it is part
    of, otherwise its own."""
    name: str = index.get("data_stream") or index["name"]
    return name


def alias_targets(alias: dict[str, Any]) -> list[str]:
    """Return the indices that an alias points to."""
    found = alias.get("indices", [])
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UpstreamFailed("the data source describes an alias in an unknown form")
    return found


def _resolved_names(resolution: Resolution) -> Iterable[str]:
    # Maps an index to its name in policies, so that an alias of a backing index counts as its
    # stream.
    owners: dict[str, str] = {}
    for stream in resolution["data_streams"]:
        yield stream["name"]
        owners.update(dict.fromkeys(stream.get("backing_indices", ()), stream["name"]))
    for index in resolution["indices"]:
        yield source_name(index)
        owners[index["name"]] = source_name(index)
    try:
        for alias in resolution["aliases"]:
            for name in alias_targets(alias):
                yield owners.get(name, name)
    except UpstreamFailed as error:
        raise Unresolved(str(error)) from error
