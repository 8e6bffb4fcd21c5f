"""Judges the messages of a call that has any number of them (a client or two-way stream of gRPC),
one by one, and hands each on in a frame of its own: the canonical encoding of what was judged.

    read         one frame, whatever pieces it arrives in
    parse        decode its message strictly, and find the sources that it names
    authorize    decide about the first message that names sources; the others may name no other
                 sources, and these must still be allowed
    hand over    once the record is on disk: what such a stream does can't be undone

Nothing more is read from the agent until the data source has accepted the message before, apart
from the bytes that arrived together with it.
"""

import asyncio

from policies.ground.errors import Malformed, SluiceError
from sidecar.http.grpc.framing import HEAD_BYTES, frame
from sidecar.http.grpc.status import trailer_lines
from sidecar.http.messages.body import BodyBrokenOff, BodyStream
from sidecar.http.messages.chunks import Trailers
from sidecar.http.messages.request_parser import HTTP_2
from sidecar.http.server.request import HttpRequest
from sidecar.protocols.protocol import MissingSource, SourceRef, Unresolved
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.pipeline.authorizer import Denied, Refused
from sidecar.proxy.pipeline.request_context import RequestContext, decision_label
from sidecar.proxy.pipeline.request_judge import (
    UNRESOLVED,
    Judged,
    JudgedSource,
    find_sources,
    read_message,
    refusal_of,
)
from sidecar.recorder import RecordedDecision


class JudgedMessages:
    """The body of the call `judged`, in place of the one that arrives with `request`: each part
    is the frame of one message, which has been judged."""

    def __init__(
        self,
        source: JudgedSource,
        judged: Judged,
        context: RequestContext,
        request: HttpRequest,
        limits: ProxyLimits,
    ) -> None:
        assert context.head is not None
        assert context.lease is not None
        self._source = source
        self._route, self._routed = judged.route, judged.routed
        self._context = context
        self._request = request
        self._body: BodyStream = request.body
        self._head = context.head
        self._lease = context.lease
        self._limits = limits
        self._arrived = bytearray()
        """The bytes that have arrived, and belong to no message that was handed over."""
        self._handed_over = 0
        """The bytes that the lease holds for the message that was handed over last."""
        self.sources: list[SourceRef] = []
        """The sources that were decided about."""
        self.decisions: list[RecordedDecision] = []
        self.refusal: Denied | SluiceError | None = None
        """The reason why the rest of the messages isn't handed over; None while there is none. A
        denial has been recorded."""

    # ------------------------------------------------------------------- what its sender does

    # The agent's trailers have no meaning in a call.
    trailers: Trailers | None = None

    async def next(self, seconds: float) -> bytes:
        """Return the frame of the next message, as `BodyStream.next` does. Raises `BodyBrokenOff`
        if it is refused; `refusal` is the reason then."""
        self._lease.shrink(self._handed_over)
        self._handed_over = 0
        # One read may have brought thousands of short messages: others get their turn.
        await asyncio.sleep(0)
        try:
            try:
                framed = await self._frame(seconds)
                return await self._judged(framed) if framed else b""
            except (Unresolved, MissingSource, Malformed) as error:
                who = self._routed.attribution
                raise await refusal_of(error, self._source, who) from error
        except Refused as refused:
            self.refusal = await self._recorded(refused)
            raise BodyBrokenOff from refused
        except (Denied, SluiceError) as error:
            self.refusal = error
            raise BodyBrokenOff from error

    def fail(self, error: BaseException) -> None:
        self._body.fail(error)

    def reject(self, error: BaseException) -> None:
        self._body.reject(error)

    def end_response(self) -> None:
        """End a response that has begun, because of `refusal`."""
        refusal = self.refusal
        assert refusal is not None
        if isinstance(refusal, Denied):
            told = LocalResponse.of_denial(refusal.status, refusal.decision, refusal.event_id)
        else:
            told = LocalResponse.of_error(refusal)
        # In HTTP/1.1, which gRPC doesn't use, the missing end shows that the response isn't whole.
        if self._request.version == HTTP_2:
            self._request.end(trailer_lines(told.failure()))

    # ----------------------------------------------------------------------------------------

    async def _frame(self, seconds: float) -> bytes:
        """Return the next message in the frame in which it arrived; empty at the end."""
        arrived, loop, most = self._arrived, asyncio.get_running_loop(), self._limits
        end, deadline = HEAD_BYTES, loop.time() + most.inspected_seconds
        while True:
            if len(arrived) >= HEAD_BYTES:
                length = int.from_bytes(arrived[1:HEAD_BYTES], "big")
                # Refused by its length, before the rest of it is read.
                if length > most.inspected_bytes:
                    raise Malformed(
                        f"a message is larger than {most.inspected_bytes} bytes, so it can't be "
                        "inspected"
                    )
                end = HEAD_BYTES + length
            if len(arrived) >= end:
                break
            # An agent may pause between two messages, but not within one.
            left = max(deadline - loop.time(), 0.0) if arrived else seconds
            part = await self._body.next(min(left, seconds))
            if not part:
                if arrived:
                    raise Malformed("the stream ends within a message")
                return b""
            if not arrived:
                deadline = loop.time() + most.inspected_seconds
            self._lease.grow(len(part))
            arrived += part
        framed = bytes(arrived[:end])
        del arrived[:end]
        self._handed_over = end
        return framed

    async def _judged(self, framed: bytes) -> bytes:
        """Return the frame in which the message is sent on, once it may be."""
        source, route, context = self._source, self._route, self._context
        routed = source.classifier.next_message(self._routed, self._head)
        message = await read_message(source, route, routed, context, framed)
        inflated = max(len(message.data) - len(framed), 0)
        self._lease.grow(inflated)
        self._handed_over += inflated
        routed = routed._replace(body=message)
        named = await find_sources(source, route, routed, len(message.data))
        who, authorizer = routed.attribution, source.authorizer
        if not self.sources:
            decisions = await authorizer.allow(named, who)
            self.sources += named
            self.decisions += decisions
            if decisions:
                context.decision = decision_label(decisions)
            # If we die here, the data source has not seen the message.
            for recorded in decisions:
                await recorded.durable
        else:
            others = [each for each in named if each not in self.sources]
            await authorizer.reauthorize((*self.sources, *others), who)
            for other in others:
                await self._refuse(other)
        return frame(message.data)

    async def _refuse(self, other: SourceRef) -> None:
        """Refuse a message because it names a source that the first one didn't. In mode `report`,
        this is only recorded."""
        reason = (
            f"a message of the stream names `{other.source_id}`, but the first one didn't: open a "
            "stream for each collection"
        )
        who = self._routed.attribution
        denied = await self._recorded(Refused(403, UNRESOLVED, reason, who, source=other))
        if not denied.recorded.report_only:
            raise denied
        self.sources.append(other)

    async def _recorded(self, refused: Refused) -> Denied:
        request = self._request
        return await self._source.authorizer.refuse(refused, request.method, request.target)
