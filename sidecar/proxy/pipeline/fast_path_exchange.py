"""A request on the short way, from its decision to its answer: sent while its record is on the way
to the disk, answered once both the answer and the record are there.

Knows the order of those. What is out of the ordinary it hands to the long way.
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
from sidecar.proxy.messages.simple_response import SimpleResponse, plain_answer
from sidecar.proxy.pipeline.forward import AllowedRequest
from sidecar.proxy.pipeline.lineage import COMPLETED, TRUNCATED
from sidecar.proxy.pipeline.pipeline import ProxyPipeline
from sidecar.proxy.proxy_metrics import UNDECIDED
from sidecar.proxy.upstream.client import UpstreamRequest
from sidecar.proxy.upstream.pool import UpstreamConnection
from sidecar.recorder import RecordedDecision


class FastPathConnection(Protocol):
    """What the short way needs of the agent's connection."""

    def begun(self, under_way: "FastPathExchange") -> None:
        """A request is under way, and nothing else until it is answered."""
        ...

    def tell(self, head: bytes, body: bytes) -> bool:
        """The answer, its head without the empty line; whether the agent was there."""
        ...

    def carry_on(self) -> None:
        """The request under way is to be answered by its `carried_on`."""
        ...


class SimpleRequest(NamedTuple):
    """What a head came to: everything that its body does not change. It ends with its
    request. `sent` is the head that the data source gets, `length` how many bytes follow it."""

    route: ProtocolRoute
    target: Target
    values: tuple[str, ...]
    who: Attribution
    ask: UpstreamRequest
    sent: bytes
    length: int
    media: str | None


class FastPathExchange:
    """One request from its decision to its answer. Belongs to its connection, which ends it."""

    __slots__ = (
        "_answer",
        "_asked",
        "_body",
        "_connection",
        "_gate",
        "_kept",
        "_over",
        "_pending",
        "_places",
        "_started",
        "_wire",
        "known",
    )

    def __init__(
        self,
        gate: ProxyPipeline,
        connection: FastPathConnection,
        known: SimpleRequest,
        asked: RoutedRequest,
        places: tuple[SourceRef, ...],
        body: bytes,
        pending: RecordedDecision | None,
        wire: UpstreamConnection,
        started: float,
    ) -> None:
        self.known = known
        self._gate = gate
        self._connection = connection
        self._asked = asked
        self._places = places
        self._body = body
        self._pending = pending
        self._wire: UpstreamConnection | None = wire
        self._started = started
        self._kept = pending is None
        self._answer: SimpleResponse | None = None
        self._over = False
        """Whether it is answered, handed over, or nobody's any more."""

    def start(self) -> None:
        wire, pending = self._wire, self._pending
        assert wire is not None
        self._connection.begun(self)
        if pending is None or pending.passes:
            # The data source has the request while the record is on its way to the disk. If the
            # record can't be kept, its answer goes nowhere.
            try:
                self._gate.upstream.post(wire, self.known.sent + self._body, self)
            except ConnectionError:
                # Nothing was sent yet.
                self._gate.upstream.discard(wire)
                self._wire = None
                self.unsure()
        else:
            self._gate.upstream.give_back(wire)
            self._wire = None
        if pending is not None:
            pending.durable.add_done_callback(self._durable)

    def arrived(self, data: bytes) -> bool:
        """The data source's first bytes; whether they were the whole answer. If not, they and what
        follows are the parser's."""
        # INVARIANT: once it is over, nothing is answered from here. The record may have been lost,
        # and the long way, whose turn comes next, is to say so.
        answer = None if self._over else plain_answer(data)
        if answer is None:
            self.unsure()
            return False
        assert self._wire is not None
        self._gate.upstream.give_back(self._wire)
        self._wire = None
        self._answer = answer
        if self._kept:
            self._finish(answer)
        return True

    def unsure(self) -> None:
        """What the data source does is no matter for the short way."""
        if not self._over:
            self._over = True
            self._connection.carry_on()

    def gone(self) -> None:
        """The agent is, before any answer. What is upstream is broken off; what was decided is in
        the log. Not to be called once `carried_on` has begun."""
        self._over = True
        if self._wire is not None:
            self._gate.upstream.discard(self._wire)
            self._wire = None
        self._gate.traffic.answered(self._decision(), 0)
        if self.known.route.route_class is RouteClass.RETRIEVE and not self._denied():
            self._gate.note(self._allowed(), RelayedResponse(), TRUNCATED)

    async def carried_on(self, request: AgentRequest) -> LocalResponse | ResponseSent:
        """The rest of it, on the long way."""
        wire, self._wire = self._wire, None
        allowed = self._allowed()
        return await self._gate.carried_on(request, allowed, self._pending, wire)

    def _allowed(self) -> AllowedRequest:
        pendings = [] if self._pending is None else [self._pending]
        ask = self.known.ask._replace(body=self._body)
        return AllowedRequest(
            self.known.route,
            self._asked,
            ask,
            FORWARD_UNCHANGED,
            self._places,
            pendings,
            self._started,
        )

    def _durable(self, durable: asyncio.Future[None]) -> None:
        if self._over:
            return
        if durable.cancelled() or durable.exception() is not None or self._denied():
            self.unsure()
            return
        self._kept = True
        if self._answer is not None:
            self._finish(self._answer)

    def _denied(self) -> bool:
        return self._pending is not None and not self._pending.passes

    def _decision(self) -> str:
        pending = self._pending
        if pending is None:
            return UNDECIDED
        return "DENY" if pending.report_only else pending.decision.decision

    def _finish(self, answer: SimpleResponse) -> None:
        self._over = True
        status, line, fields, body = answer
        pending = self._pending
        event = b"" if pending is None else b"X-Sluice-Event-Id: %b\r\n" % pending.event_id.encode()
        if pending is not None and pending.report_only:
            event += b"X-Sluice-Decision: DENY\r\n"
        head = b"%b\r\n%bContent-Length: %d\r\n%b" % (line, fields, len(body), event)
        if not self._connection.tell(head, body):
            return  # the connection is ending, and says so by `gone`
        self._gate.traffic.answered(self._decision(), status)
        if pending is not None and self.known.route.route_class is RouteClass.RETRIEVE:
            tally = RelayedResponse(status)
            tally.count(body)
            self._gate.noted(pending, tally, COMPLETED, self._started)
