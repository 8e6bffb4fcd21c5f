"""The short way through the proxy. A request of the plainest form, of which nobody has to be asked
anything, is judged and sent on in the turn of the loop in which it arrived, and answered in the
turn in which its answer and its record are there: no parser, no task.

Whatever else goes the long way (`gate.py`). Before the decision, that is as if it had never been
here; after it, `carried_on` takes over what was sent.

INVARIANT: nothing is judged or forwarded here that the long way would judge or forward in another
way. Fields, target, route, body and decision are read and made by the same functions.

Knows what may take it. What becomes of a request that does is `under_way.py`'s.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution
from sidecar.http.head_digest import HeadDigest
from sidecar.http.headers import decode_fields
from sidecar.http.request_target import Target
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    RoutedRequest,
    SourceRef,
    Unresolved,
    Visibility,
)
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch
from sidecar.proxy.messages import simple_request as plain
from sidecar.proxy.pipeline.fast_path_exchange import (
    FastPathConnection,
    FastPathExchange,
    SimpleRequest,
)
from sidecar.proxy.pipeline.pipeline import ProxyPipeline
from sidecar.proxy.upstream.client import UpstreamRequest, framing
from sidecar.proxy.upstream.pool import UpstreamConnection
from sidecar.recorder import RecordedDecision

LONGEST_BODY = 64 * 1024
"""A request with a longer body goes the long way."""

LONG, BEGUN = -1, 0
"""What became of what arrived: for the long way, as nothing was done; on its way. A larger number
is how many bytes of the body are still to come, with which all of it is to be offered again."""

_MOST_KNOWN = 256
_END = b"\r\n\r\n"
_READS = (RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.OPEN)


class _RequestLine(NamedTuple):
    method: str
    target: Target
    route: ProtocolRoute
    values: tuple[str, ...]


class _Known(NamedTuple):
    """What a head came to; its fields begin at the byte `begins`, and `front` is how the head
    begins that the data source gets."""

    line: _RequestLine
    head: plain.SimpleHead
    begins: int
    front: bytes


class _Fields:
    """The forwarded fields, taken apart for the few protocols that look at them."""

    __slots__ = ("_lines",)

    def __init__(self, lines: bytes) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(decode_fields(self._lines))


class FastPath:
    """Of one gate. What was made of a head is kept, for a bounded number of small ones."""

    def __init__(self, gate: ProxyPipeline, digest: HeadDigest) -> None:
        self._gate = gate
        self._digest = digest
        # INVARIANT: what is kept holds no value of a field that is forwarded, and no query.
        self._heads: dict[bytes, _Known] = {}
        self._blocks: dict[bytes, plain.SimpleHead] = {}
        self._lines: dict[bytes, _RequestLine] = {}

    def begin(self, connection: FastPathConnection, data: bytes) -> int:
        """`LONG`, `BEGUN`, or how many bytes are missing. `data` begins a message, and nothing else
        is under way."""
        end = data.find(_END) + 4
        known = self._read(data, end)
        if known is None:
            return LONG
        missing = end + known.length - len(data)
        if missing:
            return missing if missing > 0 else LONG
        gate, route = self._gate, known.route
        started = gate.now()
        body = data[end:]
        budget = Budget()
        try:
            read = None
            if route.parse_body is not None:
                read = route.parse_body(body, known.media, budget)
            ask, values = known.ask, known.values
            fields = _Fields(ask.lines)
            asked = RoutedRequest(
                ask.method, known.target, values, read, _fetch, fields, known.who, budget
            )
            places = (
                ()
                if route.find_sources_now is None
                else route.find_sources_now(gate.dialect, asked)
            )
        except (Malformed, Unresolved):
            return LONG
        if places is None or len(places) > 1:
            return LONG
        if not places and route.route_class is RouteClass.RETRIEVE:
            return LONG
        if route.plan_forward is not None and not self._as_it_is(route, asked, places):
            return LONG
        wire = gate.upstream.resting()
        if wire is None:
            return LONG
        pending = None
        if places:
            pending = self._judged(gate.levelled(route, places)[0], asked.attribution, wire)
            if pending is None:
                return LONG
        # The decision is made, and its record is under way.
        FastPathExchange(
            gate, connection, known, asked, places, body, pending, wire, started
        ).start()
        return BEGUN

    def _read(self, data: bytes, end: int) -> SimpleRequest | None:
        if end < 4 or end > plain.LONGEST:
            return None
        digest = self._digest(data[:end])
        known = self._heads.get(digest)
        if known is None:
            return self._read_anew(data, end, digest)
        line, head, begins, front = known
        return self._made(line, head, head.lines(data[begins:end]), front)

    def _read_anew(self, data: bytes, end: int, digest: bytes) -> SimpleRequest | None:
        line_end = data.find(b"\r\n")
        raw, begins = data[:line_end], line_end + 2
        line = self._lines.get(raw) or self._read_line(raw)
        if line is None:
            return None
        block = data[begins:end]
        block_digest = self._digest(block)
        head = self._blocks.get(block_digest)
        if head is not None:
            lines = head.lines(block)
        else:
            read = plain.request_fields(block, self._gate.default)
            if read is None:
                return None
            head, lines = read[0], read[1].lines
            if head.runs is not None:
                _keep(self._blocks, block_digest, head)
        if head.length > LONGEST_BODY:
            return None
        front = self._gate.upstream.front(line.method, line.target.forwarded)
        if head.runs is not None and line.target.query is None:
            _keep(self._heads, digest, _Known(line, head, begins, front))
        return self._made(line, head, lines, front)

    def _made(
        self, line: _RequestLine, head: plain.SimpleHead, lines: bytes, front: bytes
    ) -> SimpleRequest:
        method, target, route, values = line
        ask = UpstreamRequest(method, target.forwarded, lines, head.stated)
        sent = b"%b%b%b\r\n" % (front, lines, framing(head.stated, chunked=False))
        return SimpleRequest(route, target, values, head.who, ask, sent, head.length, head.media)

    def _judged(
        self, place: SourceRef, who: Attribution, wire: UpstreamConnection
    ) -> RecordedDecision | None:
        pending = None
        try:
            pending = self._gate.judge.at_once(place, who)
            return pending
        finally:
            if pending is None:
                self._gate.upstream.give_back(wire)

    def _as_it_is(
        self, route: ProtocolRoute, asked: RoutedRequest, places: tuple[SourceRef, ...]
    ) -> bool:
        """Whether the answer passes as it comes."""
        gate = self._gate
        if gate.marked is not None or route.plan_forward is None:
            return False
        sight = Visibility(gate.judge.permits_at_once(asked.attribution), "", None)
        return route.plan_forward(gate.dialect, asked, places, sight) is FORWARD_UNCHANGED

    def _read_line(self, raw: bytes) -> _RequestLine | None:
        if len(raw) > plain.LONGEST:
            return None
        read = plain.request_line(raw)
        if read is None:
            return None
        try:
            target, match = self._gate.found(*read)
        except Malformed:
            return None
        dialect = self._gate.dialect
        if match is None or dialect.uses_host or dialect.signs_requests or not _is_short(match):
            return None
        line = _RequestLine(read[0], target, *match)
        if target.query is None:
            _keep(self._lines, raw, line)
        return line


def _keep(known: dict[bytes, Any], raw: bytes, made: object) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[raw] = made


def _is_short(match: RouteMatch) -> bool:
    route = match.route
    waits = (
        route.compose_response,
        route.refine,
        route.response_source,
        route.before_forward,
        route.after_forward,
    )
    if route.route_class not in _READS or any(each is not None for each in waits):
        return False
    return route.find_sources_now is not None or (
        route.find_sources is None and route.route_class is RouteClass.OPEN
    )


async def _fetch(_target: str) -> FetchedResponse:
    raise AssertionError("nothing is looked up on the short way")
