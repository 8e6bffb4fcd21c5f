"""Filters Chroma's responses: records by their own sensitivity level, and lists of collections by
what the agent may see.

A response holds ids, documents, metadata and so on as parallel arrays (one set per query). A list
is fetched page by page. The original text of the visible elements is joined, so that they reach the
agent exactly as Chroma wrote them.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.headers import without_whole_body_fields
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    ResponseTooLarge,
    RoutedRequest,
    Sources,
    Visibility,
)
from sidecar.protocols.shared.responses import (
    DocumentLevels,
    expect_list,
    levels_of,
    response_object,
    to_json,
)

_PARALLEL = ("ids", "documents", "metadatas", "distances", "uris", "embeddings")
_KNOWN = frozenset((*_PARALLEL, "include"))
_METADATA = "metadatas"

LIST_PAGE = 256  # a power of 4: `fetch_pages` divides it by 4, down to 1
MAX_LIST_BYTES = 16 * 1024 * 1024
"""The maximum size in bytes of a list composed from visible elements. The agent has to request a
longer list in parts, with a `limit`."""

Visible = Callable[[Any], bool]

_WHITE = re.compile(r"[ \t\r\n]*").match
# Nine digits are more than any list needs, and fit every server's integers.
_NUMBER = re.compile(r"[0-9]{1,9}").fullmatch
_decode = json.JSONDecoder().raw_decode


def plan_query(
    _chroma: object, request: RoutedRequest, _sources: Sources, visibility: Visibility
) -> ForwardPlan:
    """Return the plan for `/query`, whose arrays hold one inner array per query."""
    return _plan(request, visibility, nested=True)


def plan_get(
    _chroma: object, request: RoutedRequest, _sources: Sources, visibility: Visibility
) -> ForwardPlan:
    """Return the plan for `/get`, whose arrays are flat."""
    return _plan(request, visibility, nested=False)


def _plan(request: RoutedRequest, visibility: Visibility, *, nested: bool) -> ForwardPlan:
    # Chroma's metadata are flat: a dot in the field's name is part of the key.
    levels = levels_of(visibility, flat=True)
    if levels is None:
        return FORWARD_UNCHANGED
    body = dict(request.body)
    # If not filterable, the agent may see records without a level, which match no condition on it.
    if levels.filterable:
        # Both conditions must hold, so nothing in the agent's own can undo this one.
        condition = {visibility.field: {"$in": list(levels.levels)}}
        own = body.get("where")
        body["where"] = {"$and": [own, condition]} if own else condition
    include = body.get("include")
    # The check needs the metadata. If the agent didn't ask for them, they are removed again.
    added = isinstance(include, list) and _METADATA not in include
    if added:
        body["include"] = [*body["include"], _METADATA]
    read = partial(filter_records, levels, nested=nested, added=added)
    return ForwardPlan(orjson.dumps(body), read)


def filter_records(
    levels: DocumentLevels, response: FetchedResponse, *, nested: bool, added: bool
) -> ForwardedPart:
    """Return the records of a response that the agent may see. `added` says that the metadata is
    there only because the sidecar asked for it; it is removed again. Raises `UpstreamFailed` for a
    response that can't be checked."""
    found = response_object(response)
    # An array that this module doesn't know may hold documents too.
    if unknown := found.keys() - _KNOWN:
        name = min(unknown)[:64]
        raise UpstreamFailed(f"the data source's response has the unknown member `{name}`")
    given = (name for name in _PARALLEL if found.get(name) is not None)
    arrays = {name: expect_list(found[name], name) for name in given}
    record_sets = [arrays]
    if nested:
        count = len(arrays.get("ids", ()))
        if any(len(each) != count for each in arrays.values()):
            raise UpstreamFailed("the data source's arrays are not parallel")
        # Leave out an inner array that is null or empty. `_withhold` refuses ids without metadata.
        record_sets = [
            {name: expect_list(each[at], name) for name, each in arrays.items() if each[at]}
            for at in range(count)
        ]
    withheld = sum(_withhold(records, levels) for records in record_sets)
    if added:
        found[_METADATA] = None
        if isinstance(found.get("include"), list):
            found["include"] = [each for each in found["include"] if each != _METADATA]
    elif not withheld:
        # Chroma's own bytes, since nothing was changed.
        return ForwardedPart(response.body)
    return ForwardedPart(to_json(found), withheld)


def _withhold(records: dict[str, list[Any]], levels: DocumentLevels) -> int:
    """Remove the records that the agent may not see, in place, from each of the parallel arrays.
    Returns the number removed."""
    count = len(records.get("ids", ()))
    # Without metadata there is nothing to check, and in arrays of different lengths an index may
    # stand for different records.
    unchecked = count and _METADATA not in records
    if unchecked or any(len(each) != count for each in records.values()):
        raise UpstreamFailed("the data source's arrays are not parallel")
    shown = [at for at, each in enumerate(records.get(_METADATA, ())) if levels.may_see(each)]
    if len(shown) < count:
        for each in records.values():
            each[:] = [each[at] for at in shown]
    return count - len(shown)


class FilteredPage(NamedTuple):
    """One page of a list from the data source. `visible` holds the text of each element that the
    agent may see. It is None if the data source didn't answer with a list; then `response` is
    passed on."""

    response: FetchedResponse
    visible: list[str] | None


Pages = AsyncIterator[FilteredPage]


def list_window(query: str | None) -> tuple[int, int | None]:
    """Return the range that a query's `offset` and `limit` select: the index of its first element,
    and the index after its last one (None if it has no end). Raises `Malformed`."""
    # Chroma never gets these two: a page that is too short because something was cut from it would
    # reveal that something is hidden, and where. Like Chroma, ignore unknown parameters.
    found: dict[str, int] = {}
    for pair in (query or "").split("&"):
        name, _, text = pair.partition("=")
        name = unquote_plus(name)
        if name not in ("limit", "offset"):
            continue
        value = unquote_plus(text)
        if name in found:
            raise Malformed(f"the query has `{name}` twice")
        if not _NUMBER(value):
            raise Malformed(f"the query's `{name}` is not a number: `{value[:64]}`")
        found[name] = int(value)
    start = found.get("offset", 0)
    return start, start + found["limit"] if "limit" in found else None


async def fetch_pages(
    fetch: Callable[[str], Awaitable[FetchedResponse]], path: str, begin: Callable[[], Visible]
) -> Pages:
    """Fetch the list at `path` page by page, and yield each page filtered. Calls `begin` before
    each page; the predicate that it returns says which elements are visible."""
    offset, size = 0, LIST_PAGE
    while True:
        visible = begin()
        try:
            response = await fetch(f"{path}?limit={size}&offset={offset}")
        except ResponseTooLarge:
            if size == 1:
                raise
            # The elements are large: a smaller page may fit. Each attempt charges a look-up.
            size //= 4
            continue
        if response.status != 200:
            yield FilteredPage(response, None)
            return
        found = _elements(response.body)
        yield FilteredPage(response, [text for text, element in found if visible(element)])
        # A short page is the last one.
        if len(found) < size:
            return
        offset += len(found)


async def collect_list(
    pages: Pages, start: int, stop: int | None, *, count: bool = False
) -> FetchedResponse:
    """Return a response with the visible elements from `start` up to `stop`; or, with `count`, with
    the number of all visible elements. Raises `UpstreamFailed` if the list is too long."""
    kept: list[str] = []
    seen = size = 0
    first: FetchedResponse | None = None
    async for response, texts in pages:
        if texts is None:
            return response
        # The composed list gets the header fields of the first page.
        first = first or response
        for text in texts:
            if not count and seen >= start and (stop is None or seen < stop):
                kept.append(text)
                size += len(text.encode())
            seen += 1
        # Checked per page, so the list exceeds the limit by one page at most.
        if size > MAX_LIST_BYTES:
            longer = f"the list is longer than {MAX_LIST_BYTES} bytes"
            raise UpstreamFailed(f"{longer}: request it with a `limit`")
        # The rest of the list can't be on the page, so it isn't fetched.
        if stop is not None and seen >= stop:
            break
    assert first is not None
    # Chroma's own count would include the hidden ones.
    text = str(seen) if count else f"[{','.join(kept)}]"
    fields = without_whole_body_fields(first.fields)
    return FetchedResponse(first.status, first.reason, fields, text.encode())


def _elements(body: bytes) -> list[tuple[str, Any]]:
    """Return the elements of a JSON array, each with the text that it has in `body`."""
    found: list[tuple[str, Any]] = []
    try:
        text = body.decode()
        at = _skip_white(text, 0)
        if text[at] != "[":
            raise ValueError("no array")
        at = _skip_white(text, at + 1)
        while text[at] != "]":
            # Not orjson, which doesn't say where an element ends. Its text is passed on unchanged.
            element, end = _decode(text, at)
            found.append((text[at:end], element))
            at = _skip_white(text, end)
            if text[at] == ",":
                at = _skip_white(text, at + 1)
            elif text[at] != "]":
                raise ValueError("no comma")
    # `IndexError`: the text ends too early. `RecursionError`: an element is nested too deeply.
    except (ValueError, IndexError, RecursionError) as error:
        raise UpstreamFailed("the data source's list is not a readable JSON array") from error
    return found


def _skip_white(text: str, at: int) -> int:
    white = _WHITE(text, at)
    assert white is not None
    return white.end()
