"""One proxied request, from what was read of it to whether it may happen:

    read         the head, once; what two readers could read in two ways is refused
    route        what the protocol's table says it is; what nobody knows is refused
    resolve      the set of sources it concerns, by the request alone
    judge        every one of them; each record goes to the spool
    forward      the same bytes that were judged (`forward.py`)

Knows the order, and what is refused under which name. Knows nothing of bytes, of policies or of any
data source.
"""

from functools import partial
from typing import NamedTuple

from policies.ground.errors import Malformed, SluiceError
from sidecar.enforce import Pending
from sidecar.protocols.protocol import CLOSED, Asked, Class, Dialect, Place, Route, Unresolved
from sidecar.proxy import intake
from sidecar.proxy.attribution import Attribution, attribution
from sidecar.proxy.forward import Allowed, Forward
from sidecar.proxy.framing import Tunnelling
from sidecar.proxy.headers import Head
from sidecar.proxy.inbound import Inbound
from sidecar.proxy.judge import UNREADABLE, Denied, Judge, durable
from sidecar.proxy.limits import Limits
from sidecar.proxy.reply import Reply, Sent
from sidecar.proxy.target import Target, canonical

UNCLASSIFIED = "unclassified_route"
UNRESOLVED = "unresolved_source"
WRITE_DENIED = "write_denied"
ROUTE_DENIED = "route_denied"


class Reading(NamedTuple):
    """A request as far as its head tells."""

    head: Head
    target: Target
    who: Attribution


class Gate:
    """What stands between one agent and one data source. `writes` is whether writes are judged, or
    denied without a look."""

    def __init__(
        self,
        dialect: Dialect,
        judge: Judge,
        forward: Forward,
        default: Attribution,
        limits: Limits,
        *,
        writes: bool,
    ) -> None:
        self._dialect = dialect
        self._judge = judge
        self._forward = forward
        self._default = default
        self._limits = limits
        self._writes = writes
        self._heads = intake.Heads()

    async def serve(self, request: Inbound) -> Reply | Sent:
        """Answers one request. Whatever is refused has been recorded; where even that can't be,
        the answer is the spool's 503."""
        try:
            return await self._serve(request)
        except Denied as denied:
            return denied.reply
        except SluiceError as error:
            return Reply.of_error(error, close=not request.body.is_eof())
        except ConnectionError:
            # The agent is gone. What was asked and decided is in the log.
            return Sent(keep_alive=False)

    async def _serve(self, request: Inbound) -> Reply | Sent:
        started = self._forward.now()
        head, target, who = reading = await self._read(request)
        route, asked = await self._route(request, reading)
        body = None
        if route.inspected:
            body, asked = await self._body(request, asked, reading)
        if route.composed is not None:
            return await self._composed(request, route, asked, who)
        places: tuple[Place, ...] = ()
        pendings: list[Pending] = []
        if route.class_ is not Class.OPEN:
            places = await self._places(route, asked, who)
            pendings = await self._judge.allow(places, who)
        if route.class_ is Class.WRITE:
            # A write can't be taken back: its record comes first.
            await durable(pendings)
        if body is None and b"expect" in head.read:
            request.welcome_body()
        ask = intake.forwarded(request, head, target, body, readable=route.shows is not None)
        allowed = Allowed(route, asked, ask, who, places, pendings, started)
        return await self._forward.passed(request, allowed)

    async def _read(self, request: Inbound) -> Reading:
        who = self._default
        try:
            head = self._heads.read(request)
        except Malformed as error:
            if isinstance(error, Tunnelling):
                request.stop_reading()
            # Where one request ends and the next begins can't be trusted any more.
            raise await self._unreadable(error, who, close=True) from error
        try:
            who = attribution(head, who)
            return Reading(head, canonical(request.message.path), who)
        except Malformed as error:
            raise await self._unreadable(error, who) from error

    async def _route(self, request: Inbound, reading: Reading) -> tuple[Route, Asked]:
        head, target, who = reading
        method = request.message.method
        match = self._dialect.match(method, target)
        if match is None:
            reason = f"the data source has no route for `{method}` of this path that is known here"
            raise await self._judge.refuse(403, UNCLASSIFIED, reason, who)
        route, values = match
        asked = Asked(method, target, values, None, partial(self._forward.fetch, head))
        if route.class_ in CLOSED:
            reason = f"`{method} {route.pattern}` is closed: {route.class_.value}"
            raise await self._judge.refuse(403, ROUTE_DENIED, reason, who)
        if route.class_ is Class.WRITE and not self._writes:
            place = None if route.hint is None else route.hint(self._dialect, asked)
            reason = (
                f"`{method} {route.pattern}` writes, and this source is configured `writes: deny`"
            )
            raise await self._judge.refuse(403, WRITE_DENIED, reason, who, place=place)
        return route, asked

    async def _body(self, request: Inbound, asked: Asked, reading: Reading) -> tuple[bytes, Asked]:
        try:
            raw, parsed = await intake.read_body(request, reading.head, self._limits)
        except Malformed as error:
            raise await self._unreadable(
                error, reading.who, close=not request.body.is_eof()
            ) from error
        return raw, asked._replace(body=parsed)

    async def _places(self, route: Route, asked: Asked, who: Attribution) -> tuple[Place, ...]:
        assert route.places is not None
        try:
            return await route.places(self._dialect, asked)
        except Unresolved as error:
            raise await self._judge.refuse(403, UNRESOLVED, str(error), who) from error
        except Malformed as error:
            raise await self._unreadable(error, who) from error

    async def _composed(
        self, request: Inbound, route: Route, asked: Asked, who: Attribution
    ) -> Sent:
        assert route.composed is not None
        try:
            answer = await route.composed(
                self._dialect, asked, lambda place: self._judge.permits(place, who)
            )
        except Malformed as error:
            raise await self._unreadable(error, who) from error
        return await self._forward.composed(request, answer)

    async def _unreadable(
        self, error: Malformed, who: Attribution, *, close: bool = False
    ) -> Denied:
        return await self._judge.refuse(400, UNREADABLE, error.message, who, close=close)
