"""Renders results, pages and errors as HTTP responses. Knows no route."""

from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import orjson

from control_api.edge.answers import Document, Redirect, Stream
from control_api.edge.paging import Page, PagedPart, SortKey, write_cursor
from policies.ground.errors import SluiceError

JSON = "application/json"


class HttpReply(NamedTuple):
    """Status, body, and the headers beyond those that every response has. If `pieces` is given,
    they are the body."""

    status: int
    body: bytes
    content_type: str
    headers: dict[str, str]
    pieces: AsyncGenerator[bytes, None] | None = None


def render_result(result: object, status: int, target: str) -> HttpReply:
    """The response to an operation's result. `target` is the request target, for a page's
    `Link`."""
    if isinstance(result, Page | PagedPart):
        headers = {} if result.next is None else {"Link": _link(target, result.next)}
        shown = result.rows if isinstance(result, Page) else result.response
        return HttpReply(status, orjson.dumps(shown), JSON, headers)
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
    """The response to an error. The error's own headers override `status_headers`."""
    headers = {**status_headers, **getattr(error, "headers", {})}
    return HttpReply(error.status, error.encoded(), JSON, headers)


def _link(target: str, last: SortKey) -> str:
    """A `Link` header (RFC 8288) to the same list, continued after `last`."""
    path, _, query = target.partition("?")
    # Keep the request's own filters, or the next page would be one of another list.
    fields = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "cursor"]
    fields.append(("cursor", write_cursor(last)))
    # `%` is safe: the path is still percent-encoded as it was received.
    return f'<{quote(path, safe="/%:@!$&()*+,;=~-._")}?{urlencode(fields)}>; rel="next"'
