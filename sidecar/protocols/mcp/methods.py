"""The methods of the Model Context Protocol: their route classes, their sources, and the filters
for the server's messages.

Also supports the older transport (HTTP+SSE, version 2024-11-05): a GET of `/sse` opens an event
stream, whose first event names the address to which messages are posted. The responses to these
messages come on the stream.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.request_target import Target, canonical
from sidecar.protocols.mcp import headers
from sidecar.protocols.mcp.headers import ServerVersions
from sidecar.protocols.mcp.messages import McpObjects, expect_texts, params_of
from sidecar.protocols.mcp.response_filter import AllowedCall, ResponseFilter, Tokens, call_token
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    InsertEvent,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    SourceProtocol,
    SourceRef,
    Sources,
    Unresolved,
    Visibility,
    without_waiting,
)
from sidecar.protocols.shared.caches import Continuations
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source, VendorMethod

PATH = "/sse"

FilterMessage = Callable[[bytes], ForwardedPart | None]

POSTED = ForwardPlan(
    filter_response=lambda _response: ForwardedPart(b""), filter_event=lambda _event: None
)
"""The forward plan of a message in the older transport: the response comes on the stream, so the
response to the POST is emptied."""


_RETRIEVE, _METADATA, _OPEN = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.OPEN


class _Session(NamedTuple):
    owner: tuple[str, str | None]
    insert: InsertEvent


class SseSessions:
    """The open event streams of one server in the older transport, by the address that each stream
    named for messages."""

    def __init__(self, source: Source) -> None:
        upstream = urlsplit(source.upstream)
        self._origin = (upstream.scheme, upstream.netloc)
        self._prefix = upstream.path.rstrip("/")
        # Where neither side has a prefix, the address is right for the agent as it is.
        self._is_moved = bool(self._prefix or source.path)
        self._open: dict[str, _Session] = {}

    def session_of(self, target: Target, who: Attribution) -> str | None:
        """Return the name of the session whose messages are posted to `target`; None if no open
        stream of this user and session has named that address."""
        found = self._open.get(target.forwarded)
        ours = found is not None and found.owner == (who.user, who.session)
        return f"sse {target.forwarded}" if ours else None

    def answer(self, target: Target, who: Attribution, response: bytes) -> bool:
        """Write a JSON-RPC response to the stream that named `target`. Returns False if there is no
        such stream, or if its agent doesn't accept the bytes written before."""
        found = self._open.get(target.forwarded)
        if found is None or found.owner != (who.user, who.session):
            return False
        return found.insert(b"event: message\ndata: " + response + b"\n\n")

    def plan(self, who: Attribution, filter_of: Callable[[str], FilterMessage]) -> ForwardPlan:
        """Return the plan that filters an event stream. `filter_of` takes the name of the stream's
        session and returns the filter for its messages."""
        stream = _Stream(self, who, filter_of)
        plan = ForwardPlan(filter_response=_refuse_whole, filter_event=stream.filter_event)
        return plan._replace(on_events=stream.begin)

    def named(self, data: bytes) -> tuple[Target, bytes]:
        """Read the first event of a stream, in which the server names the address for messages.
        Returns that target, and the event as the agent gets it. Raises `UpstreamFailed`."""
        try:
            text = data.decode("ascii").strip()
            parts = urlsplit(text)
            if (parts.scheme, parts.netloc) not in (("", ""), self._origin):
                raise UpstreamFailed("the data source names another server for its messages")
            path = parts.path if parts.path.startswith("/") else f"{self._prefix}/{parts.path}"
            if self._prefix and not path.startswith(f"{self._prefix}/"):
                raise UpstreamFailed("the data source names an address above its own path")
            below = path[len(self._prefix) :]
            target = canonical(f"{below}?{parts.query}" if parts.query else below)
            # A client may write an address of another form in several ways.
            if target.path != below:
                raise Malformed(f"`{below[:64]}` is not in its plain form")
        except (Malformed, ValueError) as error:
            raise UpstreamFailed("the data source's first event names no address") from error
        if not self._is_moved and text == target.forwarded:
            return target, data
        # Relative to the stream's own address, below whatever prefix the agent has for it.
        return target, f".{target.forwarded}".encode()

    def add(self, target: Target, who: Attribution, insert: InsertEvent) -> None:
        """Register the address `target` of a stream that this user and session opened. Raises
        `UpstreamFailed` if another stream has that address."""
        if target.forwarded in self._open:
            raise UpstreamFailed("the data source names the address of another stream")
        self._open[target.forwarded] = _Session((who.user, who.session), insert)

    def remove(self, target: Target) -> None:
        del self._open[target.forwarded]


class _Stream:
    def __init__(
        self, sessions: SseSessions, who: Attribution, filter_of: Callable[[str], FilterMessage]
    ) -> None:
        self._sessions = sessions
        self._who = who
        self._filter_of = filter_of
        self._insert: InsertEvent | None = None
        self._target: Target | None = None
        self._filter: FilterMessage | None = None

    def begin(self, insert: InsertEvent) -> Callable[[], None]:
        self._insert = insert
        return self._end

    def filter_event(self, data: bytes) -> ForwardedPart | None:
        """Filter one event. The first event names the address for messages; the others are
        messages. Raises `UpstreamFailed`."""
        if self._filter is not None:
            return self._filter(data)
        if not data.strip():
            return ForwardedPart(data)
        target, event = self._sessions.named(data)
        assert self._insert is not None
        self._sessions.add(target, self._who, self._insert)
        self._target = target
        self._filter = self._filter_of(f"sse {target.forwarded}")
        return ForwardedPart(event)

    def _end(self) -> None:
        if self._target is not None:
            self._sessions.remove(self._target)


def _refuse_whole(_response: FetchedResponse) -> ForwardedPart:
    raise UpstreamFailed("the data source's response is not a stream of events")


class McpMethods(SourceProtocol):
    """The routes of one MCP server's methods, and the tokens that the server issued through this
    sidecar."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        vendors = {each.name: _vendor_route(each) for each in source.methods}
        self._objects = McpObjects(SourceNames(source), source.arguments, vendors)
        self._vendors = vendors
        make = partial(Continuations, monotonic)
        self._tokens = Tokens(calls=make(), tasks=make(), states=make())
        self._versions = ServerVersions()
        self._sse = SseSessions(source)

    def authorization_source(self) -> SourceRef:
        return self._objects.authorization()

    def route_of(self, message: dict[str, Any]) -> ProtocolRoute | None:
        """Return the route of a well-formed message, by its method; None if the method is unknown
        and therefore denied."""
        if "method" not in message:
            return CLIENT_RESPONSE
        # The same method may be known as a request and unknown as a notification.
        known = REQUESTS if "id" in message else NOTIFICATIONS
        return known.get(message["method"]) or self._vendors.get(message["method"])

    def of_call(self, params: dict[str, Any], request: RoutedRequest) -> Sources:
        return (*self._objects.tool_sources(params), *self._state_sources(params, request))

    def of_read(self, params: dict[str, Any], request: RoutedRequest) -> Sources:
        return (self._objects.resource(params.get("uri")), *self._state_sources(params, request))

    def of_prompt(self, params: dict[str, Any], request: RoutedRequest) -> Sources:
        return (self._objects.prompt(params.get("name")), *self._state_sources(params, request))

    def of_completion(self, params: dict[str, Any], _request: RoutedRequest) -> Sources:
        return self._objects.completion_sources(params)

    def of_subscription(self, params: dict[str, Any], _request: RoutedRequest) -> Sources:
        return (self._objects.resource(params.get("uri")),)

    def of_listen(self, params: dict[str, Any], request: RoutedRequest) -> Sources:
        """Return every resource and task that the agent subscribes to. Messages that the server
        pushes later are judged again when they arrive."""
        wanted = params.get("notifications")
        if not isinstance(wanted, dict):
            raise Unresolved("the subscription must state `notifications`")
        sources = []
        for uri in expect_texts(wanted.get("resourceSubscriptions"), "uri"):
            sources.append(self._objects.resource(uri))
            # Charged here as well as in the pipeline: the list may hold hundreds of thousands.
            request.budget.charge_sources([sources[-1].source_id])
        for task in expect_texts(wanted.get("taskIds"), "task"):
            found = self._tokens.tasks.sources_of(task, request.attribution)
            request.budget.charge_sources(source.source_id for source in found)
            sources += found
        return tuple(sources)

    def of_task(self, params: dict[str, Any], request: RoutedRequest) -> Sources:
        [task] = expect_texts([params.get("taskId")], "task")
        return self._tokens.tasks.sources_of(task, request.attribution)

    def plan_response(
        self, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        posted = self._sse.session_of(request.target, request.attribution)
        session = posted or headers.session_id(request.fields)
        call = None
        message = request.body or {}
        if "method" in message and "id" in message:
            call = AllowedCall(message["id"], sources)
            if session is not None and sources:
                # The connection may break, and another request may fetch the response.
                token = call_token(session, message["id"])
                self._tokens.calls.remember(token, request.attribution, sources)
        if posted is not None:
            return POSTED
        read = self.response_filter(request, visibility, session, call)
        return ForwardPlan(filter_response=read.filter_response, filter_event=read.filter_message)

    def response_filter(
        self,
        request: RoutedRequest,
        visibility: Visibility,
        session: str | None,
        call: AllowedCall | None = None,
    ) -> ResponseFilter:
        """Return the filter for the responses of one request or stream. `call` is the request
        itself, None if it gets no response."""
        known = self._objects, self._tokens, visibility, request.attribution
        return ResponseFilter(*known, session, call, self._versions)

    def of_vendor(self, _params: dict[str, Any], request: RoutedRequest) -> Sources:
        return (self.vendor_source(request),)

    def vendor_source(self, request: RoutedRequest) -> SourceRef:
        return self._objects.vendor(request.body["method"])

    def _state_sources(self, params: dict[str, Any], request: RoutedRequest) -> Sources:
        """Return the sources that the `requestState` stands for. A request that the client repeats
        with more input has one; for any other, they are empty."""
        # Judged in addition to what the request names: the agent could repeat another request.
        if params.get("requestState") is None:
            return ()
        [state] = expect_texts([params["requestState"]], "request state")
        return self._tokens.states.sources_of(state, request.attribution)


_FindByParams = Callable[[McpMethods, dict[str, Any], RoutedRequest], Sources]


def _route(method: str, class_: RouteClass, find: _FindByParams | None = None) -> ProtocolRoute:
    """Return a route whose pattern is a JSON-RPC method. Every response is filtered: a server may
    push a message of any kind in any stream."""
    find_sources = None if find is None else without_waiting(partial(_distinct_sources, find))
    named = class_ is _RETRIEVE  # the elements of a list are named by the response alone
    route = ProtocolRoute("POST", method, class_, find_sources, forwards_unchanged=named)
    return replace(route, plan_forward=McpMethods.plan_response)


def _distinct_sources(find: _FindByParams, mcp: McpMethods, request: RoutedRequest) -> Sources:
    return tuple(dict.fromkeys(find(mcp, params_of(request.body), request)))


def _vendor_route(method: VendorMethod) -> ProtocolRoute:
    route = _route(method.name, RouteClass(method.class_), McpMethods.of_vendor)
    return replace(route, hint_source=McpMethods.vendor_source)


# INVARIANT: a method that is not listed is denied as `unclassified_route`, so that a new version or
# extension of the protocol opens nothing by itself.
REQUESTS = {
    route.pattern: route
    for route in (
        _route("tools/call", _RETRIEVE, McpMethods.of_call),
        _route("resources/read", _RETRIEVE, McpMethods.of_read),
        _route("prompts/get", _RETRIEVE, McpMethods.of_prompt),
        # A completion returns stored values.
        _route("completion/complete", _RETRIEVE, McpMethods.of_completion),
        _route("tasks/get", _RETRIEVE, McpMethods.of_task),
        _route("tasks/result", _RETRIEVE, McpMethods.of_task),
        # These return no result of the task, but name it.
        _route("tasks/update", _METADATA, McpMethods.of_task),
        _route("tasks/cancel", _METADATA, McpMethods.of_task),
        # Lists have no source of their own: the elements of the response are judged one by one.
        _route("tasks/list", _METADATA),
        _route("tools/list", _METADATA),
        _route("prompts/list", _METADATA),
        _route("resources/list", _METADATA),
        _route("resources/templates/list", _METADATA),
        _route("resources/subscribe", _METADATA, McpMethods.of_subscription),
        _route("subscriptions/listen", _METADATA, McpMethods.of_listen),
        # Ends a subscription, so it must work even after a revocation.
        _route("resources/unsubscribe", _OPEN),
        _route("initialize", _OPEN),
        _route("server/discover", _OPEN),
        _route("ping", _OPEN),
        _route("logging/setLevel", _OPEN),
    )
}

NOTIFICATIONS = {
    route.pattern: route
    for route in (
        _route("notifications/initialized", _OPEN),
        _route("notifications/cancelled", _OPEN),
        _route("notifications/progress", _OPEN),
        _route("notifications/roots/list_changed", _OPEN),
        # Concerns a task that the agent carries out for the server.
        _route("notifications/tasks/status", _OPEN),
    )
}

# The agent's response to a request from the server: samples, the user's input, roots.
CLIENT_RESPONSE = _route("a response", _OPEN)
