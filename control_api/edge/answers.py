"""Defines the response types that operations of every feature return, among them a page of a list
with the opaque cursor of the next page (`CONTRACT.md`, Responses), and renders them as HTTP
responses."""

import base64
import binascii
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import orjson

from control_api.edge.field_descriptions import says
from policies.ground.canonical import identifier_fault, rfc3339
from policies.ground.errors import SluiceError, invalid

Row = TypeVar("Row")
Shown = TypeVar("Shown")
SortKey = tuple[int | str, ...]
"""The values of a row's columns by which its list is sorted."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Shown]):
    """A page of a list. `next` is the sort key of the page's last row if more rows follow, else
    None."""

    rows: list[Shown]
    next: SortKey | None = None


@dataclass(frozen=True, slots=True)
class PagedPart(Generic[Shown]):
    """A response object that contains a page of a list. `next` is the sort key of that page's last
    row if more rows follow, else None."""

    response: Shown
    next: SortKey | None = None


def page_of(
    rows: Sequence[Row], limit: int, key: Callable[[Row], SortKey], show: Callable[[Row], Shown]
) -> Page[Shown]:
    """Make a page of the first `limit` rows. Callers fetch `limit + 1` rows: an extra row shows
    that there is a next page."""
    page = rows[:limit]
    last = key(page[-1]) if len(rows) > limit else None
    return Page([show(row) for row in page], last)


def write_cursor(key: SortKey) -> str:
    """Encode a row's sort key as the opaque cursor that continues the list after this row."""
    # A row keeps its sort key forever, so no row is skipped or repeated if others are written
    # between two pages. A page number or an offset would shift.
    return base64.urlsafe_b64encode(orjson.dumps(key)).rstrip(b"=").decode("ascii")


def read_cursor(text: str, types: tuple[type, ...]) -> SortKey:
    """Decode the sort key in a cursor. Raise `Invalid` if its values are not of these types, in
    order."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        values = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, orjson.JSONDecodeError):
        values = None
    if (
        not isinstance(values, list)
        or tuple(map(type, values)) != types
        or not all(map(_storable, values))
    ):
        raise invalid(["cursor: must be taken from the previous page's `Link`"], "query")
    return tuple(values)


def _storable(value: int | str) -> bool:
    """Return whether a database query can take the value: a number within 64 bits, or text without
    control characters."""
    # A made-up cursor must be answered with a 422, not make the database driver fail.
    if isinstance(value, int):
        return abs(value) < 1 << 62
    return identifier_fault(value) is None


@dataclass(frozen=True, slots=True)
class Document:
    """A response that is not one of our JSON types, such as an HTML page or the metrics.
    `security_policy` is its `Content-Security-Policy`; by default the browser may run and load
    nothing."""

    content_type: str
    body: bytes
    security_policy: str = "default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect to `location`, which is a relative URL: a proxy may serve the API below another
    path."""

    location: str


@dataclass(frozen=True, slots=True)
class Empty:
    """An empty object."""

    example: ClassVar[dict[str, Any]] = {}


Ok = Annotated[Literal["ok"], says("Always `ok`.")]


@dataclass(frozen=True, slots=True)
class Done:
    """The operation succeeded."""

    status: Ok = "ok"

    example: ClassVar[dict[str, Any]] = {"status": "ok"}


EVENTS = "text/event-stream"
"""The media type of a stream whose pieces must reach the client at once (Server-Sent Events)."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A response whose body is an iterator of pieces, each at most a few megabytes. If the iterator
    raises, the connection is closed without the response's end, so that a client can't take the
    part it got for the whole. `filename` is the name under which a browser saves the body, or None
    if it is not to be saved."""

    content_type: str
    pieces: AsyncGenerator[bytes, None]
    filename: str | None = None


def time_or_none(micros: int | None) -> str | None:
    return None if micros is None else rfc3339(micros)


JSON = "application/json"


class HttpReply(NamedTuple):
    """A rendered HTTP response: status, body, and the headers beyond those that every response has.
    If `pieces` is given, they are the body and `body` is empty."""

    status: int
    body: bytes
    content_type: str
    headers: dict[str, str]
    pieces: AsyncGenerator[bytes, None] | None = None


def render_result(result: object, status: int, target: str) -> HttpReply:
    """Render an operation's result as an HTTP response. `target` is the request target, from which
    a page's `Link` header is made."""
    if isinstance(result, Page | PagedPart):
        headers = {} if result.next is None else {"Link": _link(target, result.next)}
        content = result.rows if isinstance(result, Page) else result.response
        return HttpReply(status, orjson.dumps(content), JSON, headers)
    if isinstance(result, Document):
        headers = {"Content-Security-Policy": result.security_policy}
        return HttpReply(status, result.body, result.content_type, headers)
    if isinstance(result, Stream):
        name = result.filename
        headers = {"Content-Disposition": f'attachment; filename="{name}"'} if name else {}
        return HttpReply(status, b"", result.content_type, headers, result.pieces)
    if isinstance(result, Redirect):
        return HttpReply(status, b"", "text/plain", {"Location": result.location})
    # Types that also set headers have a method for it.
    own = getattr(result, "headers", None)
    to_wire = getattr(result, "to_wire", None)
    body = orjson.dumps(to_wire() if to_wire else result)
    return HttpReply(status, body, JSON, own() if own else {})


def render_error(
    error: SluiceError, status_headers: Mapping[str, str] = MappingProxyType({})
) -> HttpReply:
    """Render an error as an HTTP response. The error's own headers override `status_headers`."""
    headers = {**status_headers, **getattr(error, "headers", {})}
    return HttpReply(error.status, error.encoded(), JSON, headers)


def _link(target: str, last: SortKey) -> str:
    """Write a `Link` header (RFC 8288) to the next page of the same list, which continues after the
    sort key `last`."""
    path, _, query = target.partition("?")
    # Keep the request's own filters, or the next page would be one of another list.
    fields = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "cursor"]
    fields.append(("cursor", write_cursor(last)))
    # `%` is safe: the path is still percent-encoded as it was received.
    return f'<{quote(path, safe="/%:@!$&()*+,;=~-._")}?{urlencode(fields)}>; rel="next"'
