"""The fast path: decides and forwards a simple request in the turn of the event loop in which it
arrives, and answers in the turn in which both its response and its record are there. It needs no
parser, no task and no future.

Everything else takes the slow path (`pipeline.py`): long bodies, routes that need a look-up,
requests with no idle connection to the data source. Before the decision, a request that turns out
not to be simple leaves no trace here. After it, `FastPathExchange` hands over what was decided and
sent.

INVARIANT: the fast path decides and forwards exactly what the slow path would. Both use the same
functions for fields, target, route, body and decision.

Knows which requests qualify. `fast_path_exchange.py` knows what happens to one that does.
"""

from collections.abc import Iterator
from enum import Enum

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution
from sidecar.http.head_digest import HeadDigest
from sidecar.http.headers import decode_fields
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    RoutedRequest,
    SourceRef,
    Unresolved,
    Visibility,
)
from sidecar.protocols.route_table import ProtocolRoute, RouteClass
from sidecar.proxy.pipeline.fast_path_exchange import (
    FastPathConnection,
    FastPathExchange,
    ResolvedRequest,
    SimpleRequest,
)
from sidecar.proxy.pipeline.fast_path_heads import HeadReader
from sidecar.proxy.pipeline.pipeline import ProxyPipeline
from sidecar.proxy.upstream.connection import UpstreamConnection
from sidecar.recorder import RecordedDecision

_HEAD_END = b"\r\n\r\n"


class FastPathResult(Enum):
    """What became of a message that was offered."""

    SLOW_PATH = "slow_path"
    """Nothing was done: the message must take the slow path."""
    STARTED = "started"
    """The message is decided, and an exchange is under way."""


class _LazyFields:
    """The forwarded fields, parsed only for the few protocols that look at them."""

    __slots__ = ("_lines",)

    def __init__(self, lines: bytes) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(decode_fields(self._lines))


class FastPath:
    """The fast path of one source's pipeline."""

    def __init__(self, pipeline: ProxyPipeline, digest: HeadDigest) -> None:
        self._pipeline = pipeline
        self._heads = HeadReader(pipeline, digest)

    def begin(self, connection: FastPathConnection, data: bytes) -> FastPathResult | int:
        """Begins the request in `data` if it qualifies. `data` must start a message, and no other
        request may be under way. A number says how many bytes are missing: call this again with the
        whole message once they have arrived."""
        head_end = data.find(_HEAD_END) + 4
        request = self._heads.read(data, head_end)
        if request is None:
            return FastPathResult.SLOW_PATH
        missing = head_end + request.length - len(data)
        if missing:
            # More than one message arrived: the parser has to separate them.
            return missing if missing > 0 else FastPathResult.SLOW_PATH
        pipeline = self._pipeline
        tracer = pipeline.authorizer.tracer
        if tracer is not None and tracer.due(data, head_end):
            return FastPathResult.SLOW_PATH  # which makes its spans
        started = pipeline.now()
        resolved = self._resolve(request, data[head_end:])
        if resolved is None:
            return FastPathResult.SLOW_PATH
        # Taken before the decision: without a connection, the slow path would decide and record the
        # request a second time.
        upstream_connection = pipeline.upstream.take_idle()
        if upstream_connection is None:
            return FastPathResult.SLOW_PATH
        recorded = None
        if resolved.sources:
            source = pipeline.effective_sources(request.route, resolved.sources)[0]
            recorded = self._decide(source, request.who, upstream_connection)
            if recorded is None:
                return FastPathResult.SLOW_PATH
        # The decision is made and its record is on its way to the disk. From here on the request
        # must end in `FastPathExchange`: deciding it again would record it twice.
        FastPathExchange(
            pipeline, connection, resolved, recorded, upstream_connection, started
        ).start()
        return FastPathResult.STARTED

    def _resolve(self, request: SimpleRequest, body: bytes) -> ResolvedRequest | None:
        """The request with its body read, and its source, if any. None if it must take the slow
        path."""
        route, protocol, budget = request.route, self._pipeline.protocol, Budget()
        upstream_request = request.upstream_request
        try:
            parsed = None
            if route.parse_body is not None:
                parsed = route.parse_body(body, request.media, budget)
            routed = RoutedRequest(
                upstream_request.method,
                request.target,
                request.values,
                parsed,
                _no_lookup,
                _LazyFields(upstream_request.lines),
                request.who,
                budget,
            )
            sources: tuple[SourceRef, ...] | None = ()
            if route.find_sources_now is not None:
                sources = route.find_sources_now(protocol, routed)
        except (Malformed, Unresolved):
            # The slow path arrives at the same refusal, and records it.
            return None
        # Several records have to be stored together, which is the slow path's work.
        if sources is None or len(sources) > 1:
            return None
        # A retrieval without a source is a refusal, which the slow path records.
        if not sources and route.route_class is RouteClass.RETRIEVE:
            return None
        if route.plan_forward is not None and not self._unfiltered(route, routed, sources):
            return None
        return ResolvedRequest(request, body, routed, sources)

    def _decide(
        self, source: SourceRef, who: Attribution, upstream_connection: UpstreamConnection
    ) -> RecordedDecision | None:
        recorded = None
        try:
            recorded = self._pipeline.authorizer.decide_now(source, who)
            return recorded
        finally:
            # Also after an exception: a bug in a check must not leak the connection.
            if recorded is None:
                self._pipeline.upstream.release(upstream_connection)

    def _unfiltered(
        self, route: ProtocolRoute, routed: RoutedRequest, sources: tuple[SourceRef, ...]
    ) -> bool:
        """Whether the response passes as it comes, with nothing in it to read or leave out."""
        pipeline = self._pipeline
        if pipeline.level_field is not None or route.plan_forward is None:
            return False
        visibility = Visibility(pipeline.authorizer.permission_now(routed.attribution), "", None)
        return (
            route.plan_forward(pipeline.protocol, routed, sources, visibility) is FORWARD_UNCHANGED
        )


async def _no_lookup(_target: str) -> FetchedResponse:
    raise AssertionError("the fast path makes no look-ups")
