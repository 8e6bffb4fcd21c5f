"""Declares the types of a route and of its handler's arguments and result. `traced` extends a
handler to make spans of its decisions. Knows no path and no HTTP."""

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
    """A handler's result. With `durable`, the reply is sent once that future is done; if the future
    fails, an error is sent instead. Each header line in `extra_lines` ends with its line break.
    `cache` is the value of `Cache-Control`."""

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
    """Return the header lines that the response to a decision has (`CONTRACT.md`, Evaluation)."""
    return _DECISION_LINES[recorded.decision.decision] % recorded.event_id.encode()


class ErrorReply(NamedTuple):
    """An error in the form in which the caller gets it. Each header line ends with its line
    break."""

    status: int
    body: bytes
    extra_lines: bytes = b""


class ApiRequest(NamedTuple):
    """The request as a handler gets it, besides the body. `key` is None on paths that need no key;
    `query` is still percent-encoded. `client_left` returns whether the client has left, so that
    work in many steps can end. `watch_client` reports the moment when the client leaves, for a
    single step that takes long."""

    key: Key | None
    content_type: str | None
    query: str = ""
    traceparent: tuple[bytes, ...] = ()
    client_left: Callable[[], bool] = lambda: False
    watch_client: Watch = unwatched


Handler = Callable[[ApiRequest, bytes], Awaitable[ApiReply]]
DescribeError = Callable[[SluiceError], ErrorReply]


def describe_error(error: SluiceError) -> ErrorReply:
    """Return the error's status, body and headers (`CONTRACT.md`, Errors)."""
    lines = b""
    if isinstance(error, BodyBudgetExceeded):
        lines = b"Retry-After: %d\r\n" % error.retry_after
    return ErrorReply(error.status, error.encoded(), lines)


class ApiRoute(NamedTuple):
    """The route for one path. `name` is its label in metrics. `scopes` lists the scopes of keys
    that may call it; None if it needs no key."""

    name: str
    methods: tuple[str, ...]
    scopes: tuple[str, ...] | None
    handle: Handler
    programs_only: bool = False
    """True if requests from browsers are refused, since any web page can make a browser send one to
    this host."""
    describe_error: DescribeError = describe_error
    """Renders the errors of this route. An API that follows another standard may use other
    statuses."""


class ApiPort(NamedTuple):
    """The routes of a port, by path. The port serves only requests whose host is among `names`;
    None if the routes check the host themselves."""

    routes: Mapping[str, ApiRoute]
    names: PortNames | None


def traced(handle: Handler, tracer: Tracer | None) -> Handler:
    """Return a handler that works like `handle`, and makes a span of each decision if the request
    is traced."""
    if tracer is None:
        return handle

    async def with_spans(request: ApiRequest, body: bytes) -> ApiReply:
        trace = tracer.begin(request.traceparent, proxied=False)
        if trace is None:
            return await handle(request, body)
        with within(trace):
            return await handle(request, body)

    return with_spans
