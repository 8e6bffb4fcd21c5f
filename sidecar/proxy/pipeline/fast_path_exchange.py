"""One request on the fast path, from its decision to its response. The request goes to the data
source while its record is on the way to the disk; the agent is answered once the response and the
record are both there.

Knows that order. Hands anything out of the ordinary to the slow path.
"""

import asyncio
from typing import NamedTuple, Protocol

from sidecar.http.attribution import Attribution
from sidecar.http.request_target import Target
from sidecar.protocols.messages import FORWARD_UNCHANGED, RoutedRequest, SourceRef
from sidecar.protocols.route_table import ProtocolRoute, RouteClass
from sidecar.proxy.local_response import LocalResponse, ResponseSent
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.messages.response_relay import RelayedResponse
from sidecar.proxy.messages.simple_response import SimpleResponse, parse_simple_response
from sidecar.proxy.pipeline.lineage import COMPLETED, TRUNCATED
from sidecar.proxy.pipeline.pipeline import ProxyPipeline
from sidecar.proxy.pipeline.request_context import AllowedRequest
from sidecar.proxy.proxy_metrics import UNDECIDED
from sidecar.proxy.upstream.client import UpstreamRequest
from sidecar.proxy.upstream.connection import UpstreamConnection
from sidecar.recorder import RecordedDecision


class FastPathConnection(Protocol):
    """The parts of the connection from the agent that the fast path needs."""

    def exchange_started(self, exchange: "FastPathExchange") -> None:
        """Notes that a request is under way. No other is read until it is answered."""
        ...

    def respond(self, head: bytes, body: bytes) -> bool:
        """Writes the response; `head` lacks its empty line. False if the agent is gone."""
        ...

    def fall_back(self) -> None:
        """Continues the request under way by calling its `continue_on_slow_path`."""
        ...


class SimpleRequest(NamedTuple):
    """Everything that a request's head says and its body can't change. Lives as long as its
    request. `sent` is the head that the data source gets, `length` the size of the body in
    bytes."""

    route: ProtocolRoute
    target: Target
    values: tuple[str, ...]
    who: Attribution
    upstream_request: UpstreamRequest
    sent: bytes
    length: int
    media: str | None


class ResolvedRequest(NamedTuple):
    """A simple request with its body, and the source that it concerns, if any."""

    simple: SimpleRequest
    body: bytes
    routed: RoutedRequest
    sources: tuple[SourceRef, ...]


class FastPathExchange:
    """One request under way. Belongs to the connection from the agent on which it arrived."""

    __slots__ = (
        "_connection",
        "_durable",
        "_over",
        "_pipeline",
        "_recorded",
        "_response",
        "_started",
        "_upstream_connection",
        "request",
    )

    def __init__(
        self,
        pipeline: ProxyPipeline,
        connection: FastPathConnection,
        request: ResolvedRequest,
        recorded: RecordedDecision | None,
        upstream_connection: UpstreamConnection,
        started: float,
    ) -> None:
        self.request = request
        self._pipeline = pipeline
        self._connection = connection
        self._recorded = recorded
        self._upstream_connection: UpstreamConnection | None = upstream_connection
        self._started = started
        self._durable = recorded is None
        """Whether the record is on disk, or none is needed."""
        self._response: SimpleResponse | None = None
        self._over = False
        """Whether the fast path is done with the request: it is answered or handed over, or the
        agent left."""

    def start(self) -> None:
        connection, recorded = self._upstream_connection, self._recorded
        assert connection is not None
        self._connection.exchange_started(self)
        if recorded is None or recorded.passes:
            # The data source gets the request while the record is on its way to the disk. If the
            # record is lost, the response is dropped and the agent gets 503.
            try:
                sent = self.request.simple.sent + self.request.body
                self._pipeline.upstream.post(connection, sent, self)
            except ConnectionError:
                # Nothing was sent yet, so the slow path may send it.
                self._pipeline.upstream.discard(connection)
                self._upstream_connection = None
                self.fall_back()
        else:
            # Denied: the slow path answers, once the record is on disk.
            self._pipeline.upstream.release(connection)
            self._upstream_connection = None
        if recorded is not None:
            # asyncio never calls this at once, even if the record is already on disk, so it runs
            # only after `start` has returned.
            recorded.durable.add_done_callback(self._on_durable)

    # ------------------------------------------------------ what happens on the upstream connection

    def intercept(self, data: bytes) -> bool:
        """Takes the first bytes of the response. False if they are not the whole response: then
        they, and those that follow, belong to the parser."""
        # INVARIANT: once the exchange is over, nothing is answered from here. The record may have
        # been lost, and the slow path, which runs next, reports that.
        response = None if self._over else parse_simple_response(data)
        if response is None:
            self.fall_back()
            return False
        assert self._upstream_connection is not None
        # The connection is free for the next request at once, even if the record isn't on disk yet.
        self._pipeline.upstream.release(self._upstream_connection)
        self._upstream_connection = None
        self._response = response
        if self._durable:
            self._finish(response)
        return True

    def fall_back(self) -> None:
        """Leaves the rest to the slow path."""
        if not self._over:
            self._over = True
            self._connection.fall_back()

    async def continue_on_slow_path(self, request: AgentRequest) -> LocalResponse | ResponseSent:
        connection, self._upstream_connection = self._upstream_connection, None
        return await self._pipeline.continue_exchange(
            request, self._allowed(), self._recorded, connection
        )

    # ---------------------------------------------------------- what the agent and the spool report

    def on_client_closed(self) -> None:
        """The agent left before any response. Breaks off the request upstream; the decision stays
        in the log. Not to be called once `continue_on_slow_path` has begun."""
        self._over = True
        if self._upstream_connection is not None:
            self._pipeline.upstream.discard(self._upstream_connection)
            self._upstream_connection = None
        self._pipeline.metrics.count_request(self._decision(), 0)
        if self._retrieves() and not self._denied():
            allowed = self._allowed()
            self._pipeline.lineage.note(
                allowed.decisions, RelayedResponse(), TRUNCATED, self._started
            )

    def _on_durable(self, durable: asyncio.Future[None]) -> None:
        if self._over:
            return
        if durable.cancelled() or durable.exception() is not None or self._denied():
            # The slow path reports the lost record, or the denial.
            self.fall_back()
            return
        self._durable = True
        if self._response is not None:
            self._finish(self._response)

    def _allowed(self) -> AllowedRequest:
        decisions = [] if self._recorded is None else [self._recorded]
        simple, body, routed, sources = self.request
        upstream_request = simple.upstream_request._replace(body=body)
        return AllowedRequest(
            simple.route,
            routed,
            upstream_request,
            FORWARD_UNCHANGED,
            sources,
            decisions,
            self._started,
        )

    def _retrieves(self) -> bool:
        return self.request.simple.route.route_class is RouteClass.RETRIEVE

    def _denied(self) -> bool:
        return self._recorded is not None and not self._recorded.passes

    def _decision(self) -> str:
        recorded = self._recorded
        if recorded is None:
            return UNDECIDED
        return "DENY" if recorded.report_only else recorded.decision.decision

    def _finish(self, response: SimpleResponse) -> None:
        self._over = True
        status, line, fields, body = response
        recorded = self._recorded
        event = b""
        if recorded is not None:
            event = b"X-Sluice-Event-Id: %b\r\n" % recorded.event_id.encode()
            if recorded.report_only:
                event += b"X-Sluice-Decision: DENY\r\n"
        head = b"%b\r\n%bContent-Length: %d\r\n%b" % (line, fields, len(body), event)
        if not self._connection.respond(head, body):
            return  # the connection is being lost, and will call `on_client_closed`
        self._pipeline.metrics.count_request(self._decision(), status)
        if recorded is not None and self._retrieves():
            relayed = RelayedResponse(status)
            relayed.count(body)
            self._pipeline.lineage.note((recorded,), relayed, COMPLETED, self._started)
