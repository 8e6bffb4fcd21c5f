"""Routes for the Model Context Protocol over streamable HTTP (`protocols/RULES.md`, MCP; its
versions 2025-06-18, 2025-11-25 and 2026-07-28). Every message is JSON-RPC to one endpoint, and its
method determines the route (`methods.py`). Responses and pushed messages are filtered
(`response_filter.py`)."""

from collections.abc import Callable

from policies.ground.errors import Malformed
from sidecar.http.request_target import Target
from sidecar.protocols.mcp import authorization, headers, methods
from sidecar.protocols.mcp.headers import NotJson, message_body
from sidecar.protocols.mcp.messages import check_message
from sidecar.protocols.mcp.methods import McpMethods
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardPlan,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteMatch,
    RouteTable,
    Sources,
    Visibility,
)
from sidecar.settings.model import Source

_METADATA, _OPEN = RouteClass.METADATA, RouteClass.OPEN


class Mcp(McpMethods):
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self._endpoint, by_method = source.endpoint, Mcp.refine_by_method
        end = source.endpoint
        routes = (
            # INVARIANT: `refine` replaces this row with the method's own, or denies the request.
            ProtocolRoute("POST", end, _OPEN, parse_body=message_body, refine=by_method),
            # The stream of messages that the server pushes, or replays to a resuming client.
            ProtocolRoute("GET", end, _METADATA, plan_forward=Mcp.plan_response),
            # Ends the session.
            ProtocolRoute("DELETE", end, _OPEN),
        )
        self._serves_sse = source.sse == "on"
        if self._serves_sse:
            stream = ProtocolRoute("GET", methods.PATH, _METADATA, plan_forward=Mcp.plan_stream)
            self._streams = RouteTable((stream,))
        self._allowed = ", ".join(route.methods for route in routes)
        self._table = RouteTable(routes)

    def match(self, method: str, target: Target) -> RouteMatch | None:
        found = self._table.match(method, target) or authorization.match(method, target)
        if found is None and self._serves_sse:
            # Which paths take messages is known only from the streams that are open.
            return _POSTED if method == "POST" else self._streams.match(method, target)
        return found

    def plan_stream(
        self, request: RoutedRequest, _sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        """Return the plan that filters an event stream of the older transport."""

        def filter_of(session: str) -> methods.FilterMessage:
            return self.response_filter(request, visibility, session).filter_message

        return self._sse.plan(request.attribution, filter_of)

    def refine_posted(self, request: RoutedRequest) -> ProtocolRoute | None:
        """Return the route of a message that is posted to an event stream's address; None if no
        stream of this caller has named that address."""
        if self._sse.session_of(request.target, request.attribution) is None:
            return None
        return self.refine_by_method(request)

    def refine_by_method(self, request: RoutedRequest) -> ProtocolRoute | None:
        # `message_body` has refused an array, which only versions up to 2025-03-26 read as a batch.
        message = request.body
        if isinstance(message, NotJson):
            raise Malformed(message.fault)
        check_message(message)
        # Decisions depend on the body alone. But a server or gateway behind this sidecar may route
        # by the header fields, so the two must agree.
        fault = headers.fault(request.fields, message, self._versions.supported)
        if fault is not None:
            raise Malformed(fault.message)
        return self.route_of(message)

    def render_refusal(
        self, request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse | None:
        """Return a JSON-RPC error. A denied notification or response gets none, since JSON-RPC only
        answers requests; but any unreadable message (400) gets one. Requests for tokens get an
        OAuth error."""
        if request is None:
            return None
        if authorization.is_oauth_endpoint(request.target):
            return headers.oauth(refusal)
        if request.method != "POST":
            other = request.target.path == self._endpoint and refusal.status == 403
            other = other and self._table.match(request.method, request.target) is None
            return headers.wrong_method(refusal, self._allowed) if other else None
        if request.target.path != self._endpoint:
            return self._posted_refusal(request, refusal)
        return self._message_refusal(request, refusal)

    def _posted_refusal(
        self, request: RoutedRequest, refusal: RefusalResponse
    ) -> FetchedResponse | None:
        """Send the refusal of a posted message to the event stream on which its response is
        expected, and return the response to the POST; None if no stream has named the address.
        Clients read no other response, and some give up at a status such as 403."""
        target, who = request.target, request.attribution
        if refusal.status != 403 or self._sse.session_of(target, who) is None:
            return None
        own = self._message_refusal(request, refusal)
        if own is None or self._sse.answer(target, who, own.body):
            return FetchedResponse(202, "", [], b"")
        return own

    def _message_refusal(
        self, request: RoutedRequest, refusal: RefusalResponse
    ) -> FetchedResponse | None:
        message = request.body
        if refusal.status == 400 and refusal.decision:
            return headers.unreadable(refusal, message, self._readable_fault(request))
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            return None
        if refusal.status == 403 and self.route_of(message) is None:
            return headers.unknown_method(refusal, message, request.fields)
        return headers.refused(refusal, message)

    def _readable_fault(self, request: RoutedRequest) -> headers.HeaderFault | None:
        """Return the error if the header fields contradict a well-formed message; None if they
        agree, or if the message is not well formed."""
        if not isinstance(request.body, dict):
            return None
        try:
            check_message(request.body)
        except Malformed:
            return None
        return headers.fault(request.fields, request.body, self._versions.supported)


# INVARIANT: `refine` replaces this row with the method's own, or denies the request.
_ROW = ProtocolRoute("POST", "/**", _OPEN, parse_body=message_body, refine=Mcp.refine_posted)
_POSTED = RouteMatch(_ROW, ())
