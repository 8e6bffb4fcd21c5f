"""A list of which only part may be seen: walked page by page, filtered, and put together again of
the elements' own text, so that a list of which all may be seen is the data source's byte for byte.

`limit` and `offset` count what may be seen. Were they passed on, a short page would tell that
something is hidden, and where. Knows JSON arrays; knows not what the elements are.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.headers import without_whole_body_fields
from sidecar.protocols.messages import FetchedResponse, ResponseTooLarge

PAGE = 256
MAX_BYTES = 16 * 1024 * 1024
"""The largest list that is put together; longer ones are asked for with a `limit`."""

Visible = Callable[[Any], bool]

_WHITE = re.compile(r"[ \t\r\n]*").match
_NUMBER = re.compile(r"[0-9]{1,9}").fullmatch
_decode = json.JSONDecoder().raw_decode


class FilteredPage(NamedTuple):
    """`seen` are the texts of the elements that may be seen, None where the data source did not
    answer with a list: then `answer` is its answer."""

    answer: FetchedResponse
    seen: list[str] | None


Pages = AsyncIterator[FilteredPage]


def window(query: str | None) -> tuple[int, int | None]:
    """Start and stop of the elements that a query's `offset` and `limit` ask for.

    Read as Chroma reads them: unknown parameters mean nothing, a known one may stand once.
    """
    found: dict[str, int] = {}
    for pair in (query or "").split("&"):
        name, _, text = pair.partition("=")
        name = unquote_plus(name)
        if name not in ("limit", "offset"):
            continue
        value = unquote_plus(text)
        if name in found or not _NUMBER(value):
            raise Malformed(f"the query states `{name}` twice, or not as a number")
        found[name] = int(value)
    start = found.get("offset", 0)
    return start, start + found["limit"] if "limit" in found else None


async def fetch_pages(
    fetch: Callable[[str], Awaitable[FetchedResponse]], path: str, begin: Callable[[], Visible]
) -> Pages:
    """The list at `path`, page by page. `begin` is called before each page is asked for."""
    offset, size = 0, PAGE
    while True:
        visible = begin()
        try:
            answer = await fetch(f"{path}?limit={size}&offset={offset}")
        except ResponseTooLarge:
            if size == 1:
                raise
            size //= 4
            continue
        if answer.status != 200:
            yield FilteredPage(answer, None)
            return
        found = _elements(answer.body)
        yield FilteredPage(answer, [text for text, element in found if visible(element)])
        if len(found) < size:
            return
        offset += len(found)


async def collect(walk: Pages, start: int, stop: int | None) -> FetchedResponse:
    """The list of the elements from `start` to `stop` that may be seen."""
    kept: list[str] = []
    seen = size = 0
    first: FetchedResponse | None = None
    async for answer, texts in walk:
        if texts is None:
            return answer
        first = first or answer
        for text in texts:
            if seen >= start and (stop is None or seen < stop):
                kept.append(text)
                size += len(text)
            seen += 1
        if size > MAX_BYTES:
            raise UpstreamFailed("the list is too long to be read at once: ask with a `limit`")
        if stop is not None and seen >= stop:
            break
    assert first is not None
    return _composed(first, f"[{','.join(kept)}]")


async def count(walk: Pages) -> FetchedResponse:
    """The number of elements that may be seen."""
    seen = 0
    first: FetchedResponse | None = None
    async for answer, texts in walk:
        if texts is None:
            return answer
        first = first or answer
        seen += len(texts)
    assert first is not None
    return _composed(first, str(seen))


def _composed(answer: FetchedResponse, text: str) -> FetchedResponse:
    fields = without_whole_body_fields(answer.fields)
    return FetchedResponse(answer.status, answer.reason, fields, text.encode())


def _elements(body: bytes) -> list[tuple[str, Any]]:
    """Each element of a JSON array with its own text."""
    found: list[tuple[str, Any]] = []
    try:
        text = body.decode()
        at = _skip(text, 0)
        if text[at] != "[":
            raise ValueError("no array")
        at = _skip(text, at + 1)
        while text[at] != "]":
            element, end = _decode(text, at)
            found.append((text[at:end], element))
            at = _skip(text, end)
            if text[at] == ",":
                at = _skip(text, at + 1)
            elif text[at] != "]":
                raise ValueError("no comma")
    except (ValueError, IndexError, RecursionError) as error:
        raise UpstreamFailed("the data source's list can't be read") from error
    return found


def _skip(text: str, at: int) -> int:
    white = _WHITE(text, at)
    assert white is not None
    return white.end()
