"""The Model Context Protocol over streamable HTTP (data-sources.md 5.6; its versions 2025-06-18,
2025-11-25 and 2026-07-28).

Every message is JSON-RPC to one endpoint, and its method is the route. Responses, and the messages
that a server pushes or replays, are filtered one by one (`response_filter.py`). Knows the methods;
decides nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from policies.ground.errors import Malformed
from sidecar.http.request_target import Target
from sidecar.protocols.mcp import headers
from sidecar.protocols.mcp.messages import McpObjects, check_message, expect_texts, params_of
from sidecar.protocols.mcp.response_filter import DENIED, ResponseFilter
from sidecar.protocols.mcp.tokens import AllowedCall, Tokens, call_token
from sidecar.protocols.messages import (
    DenialResponse,
    FetchedResponse,
    ForwardPlan,
    RoutedRequest,
    Unresolved,
    Visibility,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import (
    ProtocolRoute,
    RouteClass,
    RouteMatch,
    RouteTable,
    Sources,
    without_waiting,
)
from sidecar.protocols.shared.continuations import Continuations
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.strict_body import json_object
from sidecar.settings.model import Source

_JSON = [(b"Content-Type", b"application/json")]
_RETRIEVE, _METADATA, _OPEN = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.OPEN


class Mcp(SourceProtocol):
    """One MCP server, and the tokens that it issued through this sidecar."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._objects = McpObjects(SourceNames(source), source.arguments)
        make = partial(Continuations, monotonic)
        self._tokens = Tokens(calls=make(), tasks=make(), states=make())
        end, by_method = source.endpoint, Mcp.refine_by_method
        rows = (
            # INVARIANT: `refine` replaces this row with the method's own, or denies the request.
            ProtocolRoute("POST", end, _OPEN, parse_body=json_object, refine=by_method),
            # The stream of messages that the server pushes, or replays to a resuming client.
            ProtocolRoute("GET", end, _METADATA, plan_forward=Mcp.plan_response),
            # Ends the session.
            ProtocolRoute("DELETE", end, _OPEN),
        )
        self._table = RouteTable(rows)

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return self._table.match(method, target)

    def refine_by_method(self, request: RoutedRequest) -> ProtocolRoute | None:
        """The row of the message's method."""
        # `json_object` has refused an array, which only versions up to 2025-03-26 read as a batch.
        message = request.body
        check_message(message)
        # Decisions depend on the body alone. But a server or gateway behind this sidecar may route
        # by the header fields, so the two must agree.
        fault = headers.fault(request.fields, message)
        if fault is not None:
            raise Malformed(fault.message)
        if "method" not in message:
            return _CLIENT_RESPONSE
        # The same method may be known as a request and unknown as a notification.
        return (REQUESTS if "id" in message else NOTIFICATIONS).get(message["method"])

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
        """Every resource and task that the agent subscribes to. What the server pushes is judged
        again when it arrives."""
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
        """The sources that the task was issued for."""
        [task] = expect_texts([params.get("taskId")], "task")
        return self._tokens.tasks.sources_of(task, request.attribution)

    def plan_response(
        self, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        """Filters the response, whether it comes in one piece or as a stream."""
        session = headers.session_id(request.fields)
        call = None
        message = request.body or {}
        if "method" in message and "id" in message:
            call = AllowedCall(message["id"], sources)
            if session is not None and sources:
                # The connection may break, and another request may fetch the response.
                self._tokens.calls.remember(
                    call_token(session, message["id"]), request.attribution, sources
                )
        response_filter = ResponseFilter(
            self._objects, self._tokens, visibility, request.attribution, session, call
        )
        return ForwardPlan(
            filter_response=response_filter.filter_response,
            filter_event=response_filter.filter_message,
        )

    def render_denial(
        self, request: RoutedRequest | None, denial: DenialResponse
    ) -> FetchedResponse | None:
        """A JSON-RPC error. A denied notification or response gets none, since JSON-RPC only
        answers requests; but any unreadable message (400) gets one."""
        if request is None or request.method != "POST":
            return None
        message = request.body or {}
        identity = message.get("id")
        if type(identity) not in (str, int):
            identity = None
        # With status 200, so that agent frameworks show the error to their model (data-sources.md
        # 5.6).
        status, code, data = 200, DENIED, {**denial.decision}
        if denial.status == 400:
            fault = (
                headers.fault(request.fields, message) if self._is_well_formed(message) else None
            )
            status, code = 400, headers.INVALID_REQUEST
            if fault is not None:
                code = fault.code
                data.update(fault.data)
        elif identity is None or "method" not in message:
            return None
        error = {"code": code, "message": denial.message, "data": data}
        response = {"jsonrpc": "2.0", "id": identity, "error": error}
        return FetchedResponse(status, "", [*_JSON], orjson.dumps(response))

    def _state_sources(self, params: dict[str, Any], request: RoutedRequest) -> Sources:
        """The sources behind the `requestState` of a request that is repeated with more input."""
        # Judged in addition to what the request names: the agent could repeat another request.
        if params.get("requestState") is None:
            return ()
        [state] = expect_texts([params["requestState"]], "request state")
        return self._tokens.states.sources_of(state, request.attribution)

    @staticmethod
    def _is_well_formed(message: dict[str, Any]) -> bool:
        try:
            check_message(message)
        except Malformed:
            return False
        return True


_FindByParams = Callable[[Mcp, dict[str, Any], RoutedRequest], Sources]


def _row(method: str, class_: RouteClass, find: _FindByParams | None = None) -> ProtocolRoute:
    """A row whose pattern is a JSON-RPC method. Every response is filtered: a server may push a
    message of any kind in any stream."""
    find_sources = None if find is None else without_waiting(partial(_distinct_sources, find))
    named = class_ is _RETRIEVE  # the elements of a list are named by the response alone
    plan = Mcp.plan_response
    return ProtocolRoute(
        "POST", method, class_, find_sources, plan_forward=plan, forwards_unchanged=named
    )


def _distinct_sources(find: _FindByParams, mcp: Mcp, request: RoutedRequest) -> Sources:
    return tuple(dict.fromkeys(find(mcp, params_of(request.body), request)))


# INVARIANT: a method that is not listed is denied as `unclassified_route`, so that a new version or
# extension of the protocol opens nothing by itself.
REQUESTS = {
    row.pattern: row
    for row in (
        _row("tools/call", _RETRIEVE, Mcp.of_call),
        _row("resources/read", _RETRIEVE, Mcp.of_read),
        _row("prompts/get", _RETRIEVE, Mcp.of_prompt),
        # A completion returns stored values.
        _row("completion/complete", _RETRIEVE, Mcp.of_completion),
        _row("tasks/get", _RETRIEVE, Mcp.of_task),
        _row("tasks/result", _RETRIEVE, Mcp.of_task),
        # These return no result of the task, but name it.
        _row("tasks/update", _METADATA, Mcp.of_task),
        _row("tasks/cancel", _METADATA, Mcp.of_task),
        # Lists have no source of their own: the elements of the response are judged one by one.
        _row("tasks/list", _METADATA),
        _row("tools/list", _METADATA),
        _row("prompts/list", _METADATA),
        _row("resources/list", _METADATA),
        _row("resources/templates/list", _METADATA),
        _row("resources/subscribe", _METADATA, Mcp.of_subscription),
        _row("subscriptions/listen", _METADATA, Mcp.of_listen),
        # Ends a subscription, so it must work even after a revocation.
        _row("resources/unsubscribe", _OPEN),
        _row("initialize", _OPEN),
        _row("server/discover", _OPEN),
        _row("ping", _OPEN),
        _row("logging/setLevel", _OPEN),
    )
}

NOTIFICATIONS = {
    row.pattern: row
    for row in (
        _row("notifications/initialized", _OPEN),
        _row("notifications/cancelled", _OPEN),
        _row("notifications/progress", _OPEN),
        _row("notifications/roots/list_changed", _OPEN),
        # Concerns a task that the agent carries out for the server.
        _row("notifications/tasks/status", _OPEN),
    )
}

# The agent's response to a request from the server: samples, the user's input, roots.
_CLIENT_RESPONSE = _row("a response", _OPEN)
