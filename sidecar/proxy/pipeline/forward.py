"""Carries an allowed request to the data source and its answer back, and records what came of it.

A retrieval sets out while its record is on the way to the disk; no byte of the answer goes to the
agent before the record is there. Knows the order of those; what is allowed was decided before.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.headers import (
    RequestHead,
    decode_fields,
    encode_fields,
    refuse_encoded,
    without_whole_body_fields,
)
from sidecar.http.request_body import BodyTooSlow
from sidecar.protocols.messages import (
    FetchedResponse,
    ForwardPlan,
    OutgoingRequest,
    ResponseTooLarge,
    RoutedRequest,
    SourceRef,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass
from sidecar.protocols.strict_body import MAX_BRACKETS, has_too_many_brackets
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import Fields, LocalResponse, ResponseSent, fields_of_event
from sidecar.proxy.messages import request_reader as intake
from sidecar.proxy.messages.filtered_response import FilteredStream
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.messages.response_relay import RelayedResponse, relay, write_whole
from sidecar.proxy.messages.sse import EventParser, is_event_stream
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.pipeline.lineage import (
    COMPLETED,
    FAILED,
    TRUNCATED,
    LineageRecorder,
    ReturnedDocuments,
)
from sidecar.proxy.pipeline.websocket import WebSocket
from sidecar.proxy.proxy_metrics import ProxyMetrics
from sidecar.proxy.upstream.client import UpstreamClient, UpstreamRequest
from sidecar.proxy.upstream.pool import UpstreamConnection
from sidecar.proxy.upstream.response import UpstreamResponse
from sidecar.proxy.worker_thread import LONGEST_INLINE, Fresh, WorkerThread, as_it_is
from sidecar.recorder import RecordedDecision
from sidecar.spool.errors import SpoolError


class AllowedRequest(NamedTuple):
    """A request that may happen, for each of `places` by one of `pendings`; both are empty where
    there is nothing to decide. `started` is when its head was read."""

    route: ProtocolRoute
    asked: RoutedRequest
    ask: UpstreamRequest
    prepared: ForwardPlan
    places: tuple[SourceRef, ...]
    pendings: list[RecordedDecision]
    started: float
    fresh: Fresh = as_it_is
    """Called before `prepared` looks at an answer in the worker thread."""


class Forwarder:
    """The way to one data source and back."""

    def __init__(
        self,
        dialect: SourceProtocol,
        upstream: UpstreamClient,
        judge: Authorizer,
        lineage: LineageRecorder,
        traffic: ProxyMetrics,
        monotonic: Callable[[], float],
        limits: ProxyLimits,
        worker: WorkerThread,
    ) -> None:
        self._dialect = dialect
        self.upstream = upstream
        self._judge = judge
        self._lineage = lineage
        self.traffic = traffic
        self._limits = limits
        self.worker = worker
        self.now = monotonic

    async def fetch(self, head: RequestHead, target: str) -> FetchedResponse:
        """GET `target` in the agent's name, for the sidecar's own eyes."""
        exchange = await self._send(intake.lookup(head, target), [])
        try:
            body = await _readable(exchange, self._limits)
        finally:
            await exchange.finish()
        return FetchedResponse(exchange.status, exchange.reason, exchange.fields, body)

    async def passed(
        self, request: AgentRequest, allowed: AllowedRequest, wire: UpstreamConnection | None = None
    ) -> LocalResponse | ResponseSent:
        """Forwards `allowed` and answers `request` with what comes back. With `wire` it has been
        sent on that connection already."""
        route, pendings = allowed.route, allowed.pendings
        tally = RelayedResponse()
        outcome: str | None = FAILED
        if route.before_forward is not None:
            route.before_forward(self._dialect)
        try:
            if allowed.ask.upgrade:
                sent = await self._switched(request, allowed, tally)
            elif route.response_source is not None:
                sent = await self._shown(request, allowed)
            elif (
                allowed.prepared.filter_response is not None
                or allowed.prepared.filter_event is not None
            ):
                sent = await self._read(request, allowed, tally)
            else:
                sent = await self._streamed(request, allowed, tally, wire)
            outcome = tally.outcome or COMPLETED
            return sent
        except UpstreamFailed as error:
            if request.body.exception() is None:
                self.traffic.failed(error)
            if tally.begun:
                # The agent has part of it. The connection ends short, and it can tell.
                outcome = TRUNCATED
                return ResponseSent(keep_alive=False, status=tally.status)
            for pending in pendings:
                await pending.durable
            tally.status = error.status
            return _failed(request, error, _event(pendings))
        except SpoolError:
            # Nothing was answered, and there may be no event for lineage to stand on.
            outcome = None
            raise
        except (asyncio.CancelledError, ConnectionError):
            outcome = tally.outcome or TRUNCATED
            raise
        finally:
            if route.after_forward is not None:
                route.after_forward(self._dialect)
            if route.route_class is RouteClass.RETRIEVE and outcome is not None:
                self.note(allowed, tally, outcome)

    async def _send(
        self,
        ask: UpstreamRequest,
        first: list[asyncio.Future[None]],
        wire: UpstreamConnection | None = None,
    ) -> UpstreamResponse:
        if wire is not None:
            return await self.upstream.received(wire, ask, first)
        if self._dialect.signs_requests:
            target = self.upstream.path(ask)
            whole = None if ask.stream is not None else ask.body
            fields = decode_fields(ask.lines)
            outgoing = OutgoingRequest(ask.method, self.upstream.host, target, fields, whole)
            ask = ask._replace(lines=encode_fields(await self._dialect.sign(outgoing)))
        return await self.upstream.send(ask, first)

    async def _streamed(
        self,
        request: AgentRequest,
        allowed: AllowedRequest,
        tally: RelayedResponse,
        wire: UpstreamConnection | None,
    ) -> ResponseSent:
        # The data source has the request meanwhile. If the record can't be kept, its answer goes
        # nowhere.
        exchange = await self._send(allowed.ask, _records(allowed.pendings), wire)
        try:
            _tell_head(allowed, exchange)
            return await relay(request, exchange, _event(allowed.pendings), tally)
        finally:
            await exchange.finish()

    async def _switched(
        self, request: AgentRequest, allowed: AllowedRequest, tally: RelayedResponse
    ) -> ResponseSent:
        event, places, who = _event(allowed.pendings), allowed.places, allowed.asked.attribution

        async def still() -> None:
            await self._judge.still(places, who)

        socket = WebSocket(self.upstream, self._limits, still)
        exchange = await socket.carry(
            request, allowed.ask, _records(allowed.pendings), event, tally
        )
        if exchange is None:
            return ResponseSent(keep_alive=False, status=101)
        try:
            return await relay(request, exchange, event, tally)
        finally:
            await exchange.finish()

    async def _shown(self, request: AgentRequest, allowed: AllowedRequest) -> ResponseSent:
        """An answer that tells of a source goes out only if it is the source that was judged, or
        one that is allowed as well: a name may have a spelling that nobody here knows of."""
        shows, pendings = allowed.route.response_source, allowed.pendings
        assert shows is not None
        read = shows(self._dialect, allowed.asked)
        exchange = await self._send(allowed.ask, _records(pendings))
        try:
            body = await _readable(exchange, self._limits)
        finally:
            await exchange.finish()
        if 200 <= exchange.status < 300:
            place = await self.worker.call(len(body), read, body)
            if place is None:
                raise UpstreamFailed("the data source's answer does not tell what it is of")
            if place not in allowed.places:
                pendings = pendings + await self._judge.allow((place,), allowed.asked.attribution)
        for pending in pendings:
            await pending.durable
        return await write_whole(
            request, exchange.status, exchange.reason, exchange.fields, body, _event(pendings)
        )

    async def _read(
        self, request: AgentRequest, allowed: AllowedRequest, tally: RelayedResponse
    ) -> ResponseSent:
        """An answer goes out as far as it may be seen: whole, or event by event."""
        prepared, event = allowed.prepared, _event(allowed.pendings)
        exchange = await self._send(allowed.ask, _records(allowed.pendings))
        try:
            _tell_head(allowed, exchange)
            if not 200 <= exchange.status < 300 or exchange.empty:
                return await relay(request, exchange, event, tally)
            if prepared.filter_event is not None and is_event_stream(exchange.fields):
                refuse_encoded(exchange.fields)
                events = EventParser(prepared.filter_event, self._limits.read_answer_bytes)
                filtered = FilteredStream(events, self.worker, allowed.fresh)
                return await relay(request, exchange, event, tally, filtered)
            if prepared.filter_response is None:
                return await relay(request, exchange, event, tally)
            body = await _readable(exchange, self._limits)
            tally.retries = exchange.retries
        finally:
            await exchange.finish()
        fields = exchange.fields
        answer = FetchedResponse(exchange.status, exchange.reason, fields, body)
        if len(body) > LONGEST_INLINE:
            allowed.fresh()
        passed = await self.worker.call(len(body), prepared.filter_response, answer)
        if passed.body != body:
            fields = without_whole_body_fields(fields)
        tally.withheld = passed.withheld
        # A HEAD was asked as a GET, and its agent gets no body.
        if request.method != "HEAD":
            tally.count(passed.body)
        tally.status, tally.begun = exchange.status, True
        return await write_whole(
            request, exchange.status, exchange.reason, fields, passed.body, event
        )

    async def composed(self, request: AgentRequest, answer: FetchedResponse) -> ResponseSent:
        """Answers with what was put together of what may be seen."""
        status, reason, fields, body = answer
        return await write_whole(request, status, reason, fields, body, ())

    def note(self, allowed: AllowedRequest, tally: RelayedResponse, outcome: str) -> None:
        """What an allowed retrieval returned."""
        for pending in allowed.pendings:
            self.noted(pending, tally, outcome, allowed.started)

    def noted(
        self, pending: RecordedDecision, tally: RelayedResponse, outcome: str, started: float
    ) -> None:
        """What the retrieval of one decision returned."""
        took = int((self.now() - started) * 1000)
        size, digest = tally.size, tally.sha256
        self._lineage.note(
            ReturnedDocuments(
                pending, outcome, tally.status, size, digest, took, tally.withheld, tally.retries
            )
        )


def _records(pendings: list[RecordedDecision]) -> list[asyncio.Future[None]]:
    return [pending.durable for pending in pendings]


def _tell_head(allowed: AllowedRequest, exchange: UpstreamResponse) -> None:
    if allowed.prepared.on_head is not None:
        allowed.prepared.on_head(exchange.status, exchange.fields)


async def _readable(exchange: UpstreamResponse, limits: ProxyLimits) -> bytes:
    body = await exchange.read(limits.read_answer_bytes)
    refuse_encoded(exchange.fields)
    if has_too_many_brackets(body):
        raise ResponseTooLarge(f"the data source's answer has more than {MAX_BRACKETS} brackets")
    return body


def _event(pendings: list[RecordedDecision]) -> Fields:
    """Of several, a denial that is let through is what the agent is to hear of."""
    if not pendings:
        return ()
    told = next((each for each in pendings if each.report_only), pendings[-1])
    return fields_of_event(told.event_id, let_through=told.report_only)


def _failed(request: AgentRequest, error: UpstreamFailed, event: Fields) -> LocalResponse:
    fault = request.body.exception()
    if fault is not None:
        if not isinstance(fault, BodyTooSlow):
            fault = Malformed("the body's framing is broken")
        return LocalResponse.of_error(fault, event=event, close=True)
    return LocalResponse.of_error(error, event=event, close=not request.body.is_eof())
