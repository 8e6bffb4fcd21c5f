"""The short way through the proxy. A request of the plainest form, of which nobody has to be asked
anything, is judged and sent on in the turn of the loop in which it arrived, and answered in the
turn in which its answer and its record are there: no parser, no task.

Whatever else goes the long way (`gate.py`). Before the decision, that is as if it had never been
here; after it, `carried_on` takes over what was sent.

INVARIANT: nothing is judged or forwarded here that the long way would judge or forward in another
way. Fields, target, route, body and decision are read and made by the same functions.

Knows what may take it. What becomes of a request that does is `under_way.py`'s.
"""

from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.enforce import Pending
from sidecar.protocols.protocol import (
    NOTHING,
    Asked,
    Class,
    Fetched,
    Match,
    Place,
    Route,
    Sight,
    Unresolved,
)
from sidecar.proxy import plain
from sidecar.proxy.attribution import Attribution
from sidecar.proxy.forward import Allowed
from sidecar.proxy.gate import Gate
from sidecar.proxy.pool import Wire
from sidecar.proxy.target import Target
from sidecar.proxy.under_way import Connection, UnderWay
from sidecar.proxy.upstream import Ask

LONGEST_BODY = 64 * 1024
"""A request with a longer body goes the long way."""

LONG, HELD, BEGUN = range(3)
"""What became of what arrived: for the long way, as nothing was done; the rest of a body is to be
waited for, and all of it offered again; on its way."""

_MOST_KNOWN = 256
_END = b"\r\n\r\n"
_READS = (Class.RETRIEVE, Class.METADATA, Class.OPEN)


class _Line(NamedTuple):
    method: str
    target: Target
    route: Route
    values: tuple[str, ...]


class ShortWay:
    """Of one gate. What was made of a head is kept, for a bounded number of small ones."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._blocks: dict[bytes, plain.PlainHead] = {}
        self._lines: dict[bytes, _Line] = {}

    def begin(self, connection: Connection, data: bytes) -> int:
        """`LONG`, `HELD` or `BEGUN`. `data` begins a message, and nothing else is under way."""
        line_end = data.find(b"\r\n")
        end = data.find(_END, line_end) + 4
        if line_end < 0 or end < 4:
            return LONG
        line = self._lines.get(data[:line_end]) or self._read_line(data[:line_end])
        if line is None:
            return LONG
        block = data[line_end + 2 : end]
        head = self._blocks.get(block) or self._read_block(block)
        if head is None or head.length > LONGEST_BODY:
            return LONG
        missing = end + head.length - len(data)
        if missing:
            return HELD if missing > 0 else LONG
        return self._begin(connection, line, head, data[end:])

    def _begin(
        self, connection: Connection, line: _Line, head: plain.PlainHead, body: bytes
    ) -> int:
        gate, route, who = self._gate, line.route, head.who
        started = gate.now()
        try:
            parsed = None if route.inspected is None else route.inspected(body, head.media)
            asked = Asked(
                line.method, line.target, line.values, parsed, _fetch, head.head.forward, who
            )
            places = () if route.at_once is None else route.at_once(gate.dialect, asked)
        except (Malformed, Unresolved):
            return LONG
        if places is None or len(places) > 1:
            return LONG
        if route.prepared is not None and not self._as_it_is(route, asked, places):
            return LONG
        wire = gate.upstream.resting()
        if wire is None:
            return LONG
        pending = None
        if places:
            pending = self._judged(gate.levelled(route, places)[0], who, wire)
            if pending is None:
                return LONG
        # The decision is made, and its record is under way.
        ask = Ask(
            line.method, line.target.forwarded, head.head.lines, head.head.length, False, body
        )
        pendings = [] if pending is None else [pending]
        allowed = Allowed(route, asked, ask, NOTHING, places, pendings, started)
        UnderWay(self._gate, connection, allowed, pending, wire).start()
        return BEGUN

    def _judged(self, place: Place, who: Attribution, wire: Wire) -> Pending | None:
        pending = None
        try:
            pending = self._gate.judge.at_once(place, who)
            return pending
        finally:
            if pending is None:
                self._gate.upstream.give_back(wire)

    def _as_it_is(self, route: Route, asked: Asked, places: tuple[Place, ...]) -> bool:
        """Whether the answer passes as it comes."""
        gate = self._gate
        if gate.marked is not None or route.prepared is None:
            return False
        sight = Sight(gate.judge.permits_at_once(asked.who), "", None)
        return route.prepared(gate.dialect, asked, places, sight) is NOTHING

    def _read_line(self, raw: bytes) -> _Line | None:
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
        if match is None or dialect.by_host or dialect.signs or not _is_short(match):
            return None
        line = _Line(read[0], target, *match)
        if len(self._lines) >= _MOST_KNOWN:
            self._lines.clear()
        self._lines[raw] = line
        return line

    def _read_block(self, block: bytes) -> plain.PlainHead | None:
        head = plain.request_fields(block, self._gate.default)
        if head is not None:
            if len(self._blocks) >= _MOST_KNOWN:
                self._blocks.clear()
            self._blocks[block] = head
        return head


def _is_short(match: Match) -> bool:
    route = match.route
    waits = (route.composed, route.refined, route.shows, route.before, route.after)
    if route.class_ not in _READS or any(each is not None for each in waits):
        return False
    return route.at_once is not None or (route.places is None and route.class_ is Class.OPEN)


async def _fetch(_target: str) -> Fetched:
    raise AssertionError("nothing is looked up on the short way")
