"""An answer as bytes: one shape for results, pages and errors. Knows no route."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import parse_qsl, quote, urlencode

import orjson

from control_api.responses.audit import Document, Redirect
from control_api.responses.paging import Page, Part, Place, write_cursor
from policies.ground.errors import SluiceError

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Status, headers beyond those of every answer, and the bytes."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


def of_answer(answer: object, status: int, target: str) -> HttpReply:
    """What a use case returned. `target` is the request's own, of which a page's `Link` is made."""
    if isinstance(answer, Page | Part):
        headers = {} if answer.next is None else {"Link": _link(target, answer.next)}
        shown = answer.rows if isinstance(answer, Page) else answer.answer
        return HttpReply(status, orjson.dumps(shown), JSON, headers)
    if isinstance(answer, Document):
        headers = {"Content-Security-Policy": answer.security_policy}
        return HttpReply(status, answer.body, answer.content_type, headers)
    if isinstance(answer, Redirect):
        return HttpReply(status, b"", "text/plain", {"Location": answer.location})
    # An answer that says something in headers, too, has a method for it.
    own = getattr(answer, "headers", None)
    return HttpReply(status, orjson.dumps(answer), JSON, own() if own else {})


def of_error(error: SluiceError, telling: Mapping[str, str] = MappingProxyType({})) -> HttpReply:
    """`telling` is what the status says in headers, where the error itself does not."""
    headers = {**telling, **getattr(error, "headers", {})}
    return HttpReply(error.status, error.encoded(), JSON, headers)


def _link(target: str, following: Place) -> str:
    """RFC 8288: the same list, going on after `following`."""
    path, _, query = target.partition("?")
    fields = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "cursor"]
    fields.append(("cursor", write_cursor(following)))
    return f'<{quote(path, safe="/%:@!$&()*+,;=~-._")}?{urlencode(fields)}>; rel="next"'
