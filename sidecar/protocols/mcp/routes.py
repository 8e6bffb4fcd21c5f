"""The Model Context Protocol over streamable HTTP (data-sources.md 5.6; its versions 2025-06-18,
2025-11-25 and 2026-07-28).

Everything is a JSON-RPC message to one endpoint, and its method is the route. What is asked is told
by the body alone: header fields that say something else are refused (`mcp_headers.py`). A list
shows what may be read; what a server pushes, or sends again to an agent that resumes a stream, is
looked at message by message (`mcp_answers.py`). Knows the methods; judges nothing.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import orjson

from policies.ground.errors import Malformed
from sidecar.http.request_target import Target
from sidecar.protocols.mcp import headers as mcp_headers
from sidecar.protocols.mcp.answers import DENIED, AllowedCall, McpResponse, Tokens, asked_token
from sidecar.protocols.mcp.messages import McpObjects, check_form, params_of, texts
from sidecar.protocols.messages import (
    DenialResponse,
    FetchedResponse,
    ForwardPlan,
    RoutedRequest,
    SourceRef,
    Unresolved,
    Visibility,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch, RouteTable
from sidecar.protocols.shared.continuations import Continuations
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.strict_body import json_object
from sidecar.settings.model import Source

Places = tuple[SourceRef, ...]

_JSON = [(b"Content-Type", b"application/json")]


class Mcp(SourceProtocol):
    """One MCP server, and what it issued through here."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._things = McpObjects(SourceNames(source), source.arguments)
        make = partial(Continuations, monotonic)
        self._tokens = Tokens(asked=make(), tasks=make(), states=make())
        end = source.endpoint
        self._table = RouteTable(
            (
                ProtocolRoute(
                    "POST", end, RouteClass.OPEN, parse_body=json_object, refine=Mcp.by_method
                ),
                # What a server has to say unasked, and what it says again to whoever resumes.
                ProtocolRoute("GET", end, RouteClass.METADATA, plan_forward=Mcp.answered),
                ProtocolRoute("DELETE", end, RouteClass.OPEN),
            )
        )

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return self._table.match(method, target)

    def by_method(self, asked: RoutedRequest) -> ProtocolRoute | None:
        """The row of the message's method. Arrays, which versions until 2025-03-26 take for
        batches, are no message."""
        message = asked.body
        check_form(message)
        fault = mcp_headers.fault(asked.fields, message)
        if fault is not None:
            raise Malformed(fault.message)
        if "method" not in message:
            return _REPLY
        return (REQUESTS if "id" in message else NOTIFICATIONS).get(message["method"])

    def called(self, params: dict[str, Any], asked: RoutedRequest) -> Places:
        return (*self._things.called(params), *self._continued(params, asked))

    def read(self, params: dict[str, Any], asked: RoutedRequest) -> Places:
        return (self._things.resource(params.get("uri")), *self._continued(params, asked))

    def prompted(self, params: dict[str, Any], asked: RoutedRequest) -> Places:
        return (self._things.prompt(params.get("name")), *self._continued(params, asked))

    def completed(self, params: dict[str, Any], _asked: RoutedRequest) -> Places:
        return self._things.completed(params)

    def subscribed(self, params: dict[str, Any], _asked: RoutedRequest) -> Places:
        return (self._things.resource(params.get("uri")),)

    def listened(self, params: dict[str, Any], asked: RoutedRequest) -> Places:
        """Each resource and task of which the agent wants to hear. What is pushed is judged again
        when it is."""
        wanted = params.get("notifications")
        if not isinstance(wanted, dict):
            raise Unresolved("the subscription does not say to what")
        places = []
        for uri in texts(wanted.get("resourceSubscriptions"), "uri"):
            places.append(self._things.resource(uri))
            # Here as well as in the gate: there may be hundreds of thousands.
            asked.budget.charge_sources([places[-1].source_id])
        for task in texts(wanted.get("taskIds"), "task"):
            found = self._tokens.tasks.sources_of(task, asked.attribution)
            asked.budget.charge_sources(place.source_id for place in found)
            places += found
        return tuple(places)

    def of_task(self, params: dict[str, Any], asked: RoutedRequest) -> Places:
        """What the task was issued for."""
        [task] = texts([params.get("taskId")], "task")
        return self._tokens.tasks.sources_of(task, asked.attribution)

    def answered(self, asked: RoutedRequest, places: Places, sight: Visibility) -> ForwardPlan:
        """The answer is looked at, in one piece or as a stream."""
        session = mcp_headers.session_of(asked.fields)
        question = None
        message = asked.body or {}
        if "method" in message and "id" in message:
            question = AllowedCall(message["id"], places)
            if session is not None and places:
                # The connection may break, and the answer be fetched by another request.
                self._tokens.asked.remember(
                    asked_token(session, message["id"]), asked.attribution, places
                )
        answer = McpResponse(
            self._things, self._tokens, sight, asked.attribution, session, question
        )
        return ForwardPlan(filter_response=answer.whole, filter_event=answer.message)

    def render_denial(
        self, asked: RoutedRequest | None, refusal: DenialResponse
    ) -> FetchedResponse | None:
        """A JSON-RPC error that an agent framework shows to its model. To what is no request there
        is no JSON-RPC answer."""
        if asked is None or asked.method != "POST":
            return None
        message = asked.body or {}
        identity = message.get("id")
        if type(identity) not in (str, int):
            identity = None
        status, code, data = 200, DENIED, {**refusal.decision}
        if refusal.status == 400:
            fault = mcp_headers.fault(asked.fields, message) if self._reads(message) else None
            status, code = 400, mcp_headers.INVALID_REQUEST
            if fault is not None:
                code = fault.code
                data.update(fault.data)
        elif identity is None or "method" not in message:
            return None
        error = {"code": code, "message": refusal.message, "data": data}
        answer = {"jsonrpc": "2.0", "id": identity, "error": error}
        return FetchedResponse(status, "", [*_JSON], orjson.dumps(answer))

    def _continued(self, params: dict[str, Any], asked: RoutedRequest) -> Places:
        """What the state of a request that is made again stands for. The agent sends the state, so
        the request itself is judged as if it were the first."""
        if params.get("requestState") is None:
            return ()
        [state] = texts([params["requestState"]], "request state")
        return self._tokens.states.sources_of(state, asked.attribution)

    @staticmethod
    def _reads(message: dict[str, Any]) -> bool:
        try:
            check_form(message)
        except Malformed:
            return False
        return True


def _places(
    told: Callable[[Mcp, dict[str, Any], RoutedRequest], Places],
) -> Callable[[Mcp, RoutedRequest], Coroutine[Any, Any, Places]]:
    async def places(mcp: Mcp, asked: RoutedRequest) -> Places:
        return tuple(dict.fromkeys(told(mcp, params_of(asked.body), asked)))

    return places


def _row(
    method: str,
    class_: RouteClass,
    told: Callable[[Mcp, dict[str, Any], RoutedRequest], Places] | None = None,
) -> ProtocolRoute:
    places = None if told is None else _places(told)
    return ProtocolRoute("POST", method, class_, places, plan_forward=Mcp.answered)


_RETRIEVE, _METADATA, _OPEN = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.OPEN

# INVARIANT: what is not here is denied as `unclassified_route`: a newer version of the protocol, or
# an extension of it, opens nothing by itself.
REQUESTS = {
    row.pattern: row
    for row in (
        _row("tools/call", _RETRIEVE, Mcp.called),
        _row("resources/read", _RETRIEVE, Mcp.read),
        _row("prompts/get", _RETRIEVE, Mcp.prompted),
        # Tells the values of what it completes.
        _row("completion/complete", _RETRIEVE, Mcp.completed),
        _row("tasks/get", _RETRIEVE, Mcp.of_task),
        _row("tasks/result", _RETRIEVE, Mcp.of_task),
        _row("tasks/update", _METADATA, Mcp.of_task),
        _row("tasks/cancel", _METADATA, Mcp.of_task),
        _row("tasks/list", _METADATA),
        _row("tools/list", _METADATA),
        _row("prompts/list", _METADATA),
        _row("resources/list", _METADATA),
        _row("resources/templates/list", _METADATA),
        _row("resources/subscribe", _METADATA, Mcp.subscribed),
        _row("subscriptions/listen", _METADATA, Mcp.listened),
        # Ends what a revocation may have made forbidden.
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
        # Of a task that the agent carries out for the server.
        _row("notifications/tasks/status", _OPEN),
    )
}

# What the agent answers to the server: samples, the user's input, roots.
_REPLY = _row("an answer", _OPEN)
