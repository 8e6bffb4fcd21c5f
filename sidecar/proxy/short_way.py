"""The short way through the proxy. A request of the plainest form, of which nobody has to be asked
anything, is judged and sent on in the turn of the loop in which it arrived, and answered in the
turn in which its answer and its record are there: no parser, no task.

Whatever else goes the long way (`gate.py`). Before the decision, that is as if it had never been
here; after it, `carried_on` takes over what was sent.

INVARIANT: nothing is judged or forwarded here that the long way would judge or forward in another
way. Fields, target, route, body and decision are read and made by the same functions.

Knows what may take it. What becomes of a request that does is `under_way.py`'s.
"""

from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget
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
from sidecar.proxy.gate import Gate
from sidecar.proxy.pool import Wire
from sidecar.proxy.target import Target
from sidecar.proxy.under_way import Connection, PlainRequest, UnderWay
from sidecar.proxy.upstream import Ask
from sidecar.recorder import Pending

LONGEST_BODY = 64 * 1024
"""A request with a longer body goes the long way."""

LONG, BEGUN = -1, 0
"""What became of what arrived: for the long way, as nothing was done; on its way. A larger number
is how many bytes of the body are still to come, with which all of it is to be offered again."""

_MOST_KNOWN = 256
_UNUSED = Budget()
"""In what is kept of a head, in the place of the budget that each request gets for itself."""
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
        self._heads: dict[bytes, PlainRequest] = {}
        self._blocks: dict[bytes, plain.PlainHead] = {}
        self._lines: dict[bytes, _Line] = {}

    def begin(self, connection: Connection, data: bytes) -> int:
        """`LONG`, `BEGUN`, or how many bytes are missing. `data` begins a message, and nothing else
        is under way."""
        end = data.find(_END) + 4
        known = self._heads.get(data[:end]) or self._read(data, end)
        if known is None:
            return LONG
        missing = end + known.length - len(data)
        if missing:
            return missing if missing > 0 else LONG
        gate, route, asked = self._gate, known.route, known.asked
        started = gate.now()
        body = data[end:]
        budget = Budget()
        try:
            read = None
            if route.inspected is not None:
                read = route.inspected(body, known.media, budget)
            asked = asked._replace(body=read, budget=budget)
            places = () if route.at_once is None else route.at_once(gate.dialect, asked)
        except (Malformed, Unresolved):
            return LONG
        if places is None or len(places) > 1:
            return LONG
        if not places and route.class_ is Class.RETRIEVE:
            return LONG
        if route.prepared is not None and not self._as_it_is(route, asked, places):
            return LONG
        wire = gate.upstream.resting()
        if wire is None:
            return LONG
        pending = None
        if places:
            pending = self._judged(gate.levelled(route, places)[0], asked.who, wire)
            if pending is None:
                return LONG
        # The decision is made, and its record is under way.
        UnderWay(gate, connection, known, asked, places, body, pending, wire, started).start()
        return BEGUN

    def _read(self, data: bytes, end: int) -> PlainRequest | None:
        line_end = data.find(b"\r\n")
        if end < 4 or end > plain.LONGEST or line_end < 0:
            return None
        line = self._lines.get(data[:line_end]) or self._read_line(data[:line_end])
        if line is None:
            return None
        block = data[line_end + 2 : end]
        head = self._blocks.get(block) or self._read_block(block)
        if head is None or head.length > LONGEST_BODY:
            return None
        method, target, route, values = line
        fields = head.head.forward
        ask = Ask(method, target.forwarded, head.head.lines, head.head.length)
        known = PlainRequest(
            route,
            Asked(method, target, values, None, _fetch, fields, head.who, _UNUSED),
            ask,
            self._gate.upstream.head(ask),
            head.length,
            head.media,
        )
        _keep(self._heads, data[:end], known)
        return known

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
        _keep(self._lines, raw, line)
        return line

    def _read_block(self, block: bytes) -> plain.PlainHead | None:
        head = plain.request_fields(block, self._gate.default)
        if head is not None:
            _keep(self._blocks, block, head)
        return head


def _keep(known: dict[bytes, Any], raw: bytes, made: object) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[raw] = made


def _is_short(match: Match) -> bool:
    route = match.route
    waits = (route.composed, route.refined, route.shows, route.before, route.after)
    if route.class_ not in _READS or any(each is not None for each in waits):
        return False
    return route.at_once is not None or (route.places is None and route.class_ is Class.OPEN)


async def _fetch(_target: str) -> Fetched:
    raise AssertionError("nothing is looked up on the short way")
