"""Filters a list that the agent may see only in part. Fetches the list page by page, and joins the
original text of the visible elements, so that they reach the agent exactly as Chroma wrote them.

Knows JSON arrays, but not what their elements are.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.headers import without_whole_body_fields
from sidecar.protocols.messages import FetchedResponse, ResponseTooLarge

PAGE = 256  # a power of 4: `fetch_pages` divides it by 4, down to 1
MAX_BYTES = 16 * 1024 * 1024
"""The maximum size of a composed list. The agent has to request a longer one with a `limit`."""

Visible = Callable[[Any], bool]

_WHITE = re.compile(r"[ \t\r\n]*").match
# Nine digits are more than any list needs, and fit every server's integers.
_NUMBER = re.compile(r"[0-9]{1,9}").fullmatch
_decode = json.JSONDecoder().raw_decode


class FilteredPage(NamedTuple):
    """One page. `visible` holds the text of each visible element. It is None if the data source
    didn't answer with a list; `response` is then passed on."""

    response: FetchedResponse
    visible: list[str] | None


Pages = AsyncIterator[FilteredPage]


def window(query: str | None) -> tuple[int, int | None]:
    """The start and stop of the visible elements that a query's `offset` and `limit` select."""
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
    """The list at `path`, page by page. Calls `begin` before each page, and filters with the
    predicate it returns."""
    offset, size = 0, PAGE
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


async def collect(pages: Pages, start: int, stop: int | None) -> FetchedResponse:
    """The list of the visible elements from `start` to `stop`."""
    kept: list[str] = []
    seen = size = 0
    first: FetchedResponse | None = None
    async for response, texts in pages:
        if texts is None:
            return response
        # The composed list gets the header fields of the first page.
        first = first or response
        for text in texts:
            if seen >= start and (stop is None or seen < stop):
                kept.append(text)
                size += len(text.encode())
            seen += 1
        # Checked per page, so the list exceeds the limit by one page at most.
        if size > MAX_BYTES:
            raise UpstreamFailed(
                f"the list is longer than {MAX_BYTES} bytes: request it with a `limit`"
            )
        # The rest of the list can't be on the page, so it isn't fetched.
        if stop is not None and seen >= stop:
            break
    assert first is not None
    return _compose(first, f"[{','.join(kept)}]")


async def count(pages: Pages) -> FetchedResponse:
    """The number of visible elements."""
    # Chroma's own count would include the hidden ones.
    seen = 0
    first: FetchedResponse | None = None
    async for response, texts in pages:
        if texts is None:
            return response
        first = first or response
        seen += len(texts)
    assert first is not None
    return _compose(first, str(seen))


def _compose(response: FetchedResponse, text: str) -> FetchedResponse:
    fields = without_whole_body_fields(response.fields)
    return FetchedResponse(response.status, response.reason, fields, text.encode())


def _elements(body: bytes) -> list[tuple[str, Any]]:
    """Each element of a JSON array with its own text."""
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
