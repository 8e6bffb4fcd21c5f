"""Declares the types of a route and of its handler's arguments and result, and has a handler make
spans of its decisions (`traced`). Knows no path and no HTTP.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from policies.definitions.model import Key
from policies.ground.errors import SluiceError
from sidecar.http.port_names import PortNames
from sidecar.http.rendered_response import JSON, NO_STORE
from sidecar.http.request_body import BodyBudgetExceeded
from sidecar.platform.eager import Watch, unwatched
from sidecar.recorder import RecordedDecision
from sidecar.tracing import Tracer, within


class StartAgain(Exception):
    """the policy set changed while a handler worked: admit the request again, and call it again"""


class ApiReply(NamedTuple):
    """A handler's result. A reply with `durable` is sent once that future is done, or becomes an
    error if it fails. Each header line in `extra_lines` ends with its line break. `cache` is the
    value of `Cache-Control`."""

    body: bytes
    media: bytes = JSON
    durable: asyncio.Future[None] | None = None
    extra_lines: bytes = b""
    cache: bytes = NO_STORE
    status: int = 200


_DECISION_LINES = {
    "ALLOW": b"X-Sluice-Decision: ALLOW\r\nX-Sluice-Event-Id: %b\r\n",
    "DENY": b"X-Sluice-Decision: DENY\r\nX-Sluice-Event-Id: %b\r\n",
}


def decision_lines(recorded: RecordedDecision) -> bytes:
    """Return the header lines of the response to a decision (`CONTRACT.md`, Evaluation)."""
    return _DECISION_LINES[recorded.decision.decision] % recorded.event_id.encode()


class ErrorReply(NamedTuple):
    """The response to an error, as a caller gets it. Each header line ends with its line break."""

    status: int
    body: bytes
    extra_lines: bytes = b""


class ApiRequest(NamedTuple):
    """A handler's argument besides the body. `key` is None on paths that need no key; `query` is
    still percent-encoded. `client_left` says whether the client has left, for work in many steps,
    which then ends. `watch_client` reports the moment when it leaves, for a single step that takes
    long."""

    key: Key | None
    content_type: str | None
    query: str = ""
    traceparent: tuple[bytes, ...] = ()
    client_left: Callable[[], bool] = lambda: False
    watch_client: Watch = unwatched


Handler = Callable[[ApiRequest, bytes], Awaitable[ApiReply]]
DescribeError = Callable[[SluiceError], ErrorReply]


def describe_error(error: SluiceError) -> ErrorReply:
    """Render the error (`CONTRACT.md`, Errors)."""
    lines = b""
    if isinstance(error, BodyBudgetExceeded):
        lines = b"Retry-After: %d\r\n" % error.retry_after
    return ErrorReply(error.status, error.encoded(), lines)


class ApiRoute(NamedTuple):
    """One path. `name` is its label in metrics; `scopes` lists the key scopes that may call it, or
    is None if it needs no key."""

    name: str
    methods: tuple[str, ...]
    scopes: tuple[str, ...] | None
    handle: Handler
    programs_only: bool = False
    """True if requests from browsers are refused, since any web page can make a browser send one to
    this host."""
    describe_error: DescribeError = describe_error
    """Renders errors on this route. An API with another form of request may give them other
    statuses."""


class ApiPort(NamedTuple):
    """The routes of a port by their paths. It serves only requests to one of the host `names`,
    which is None if the routes check the host themselves."""

    routes: Mapping[str, ApiRoute]
    names: PortNames | None


def traced(handle: Handler, tracer: Tracer | None) -> Handler:
    """Return `handle`, extended to make a span of each decision if the request is traced."""
    if tracer is None:
        return handle

    async def with_spans(request: ApiRequest, body: bytes) -> ApiReply:
        trace = tracer.begin(request.traceparent, proxied=False)
        if trace is None:
            return await handle(request, body)
        with within(trace):
            return await handle(request, body)

    return with_spans
