"""What a request is for, as far as it can be told before anybody decides: its head, its target in
the one canonical form, and the row of the protocol's table. What can be read in two ways, what no
row covers, and what is closed ends here.

Knows what is refused under which name. Knows nothing of policies or of any data source.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import Target, canonical
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import FetchedResponse, RoutedRequest
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ALWAYS_DENIED, ProtocolRoute, RouteClass, RouteMatch
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages import request_reader as intake
from sidecar.proxy.messages import upgrade
from sidecar.proxy.messages.framing import Tunnelling
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Refused
from sidecar.proxy.pipeline.lookups import Lookups
from sidecar.proxy.pipeline.request_context import RequestContext

UNCLASSIFIED = "unclassified_route"
WRITE_DENIED = "write_denied"
ROUTE_DENIED = "route_denied"

Reading = tuple[ProtocolRoute, RoutedRequest, RequestHead]

_BARRED = ALWAYS_DENIED | {RouteClass.WRITE}

_MOST_KNOWN = 512
_LONGEST_KNOWN = 512


class RequestClassifier:
    """Reads requests to one data source. `writes` is whether writes are judged, or denied without a
    look; `fetch` asks the data source for a target in the name of whoever sent a head."""

    def __init__(
        self,
        dialect: SourceProtocol,
        default: Attribution,
        fetch: Callable[[RequestHead, str], Awaitable[FetchedResponse]],
        limits: ProxyLimits,
        *,
        writes: bool,
    ) -> None:
        self._dialect = dialect
        self._default = default
        self._fetch = fetch
        self._limits = limits
        self._writes = writes
        self._known: dict[tuple[str, str, bytes | None], tuple[Target, RouteMatch | None]] = {}

    def read(self, request: AgentRequest, case: RequestContext) -> Reading:
        """The request as far as its head tells; raises `Refused`."""
        who = self._default
        try:
            case.head = head = intake.read_head(request)
        except Malformed as error:
            if isinstance(error, Tunnelling):
                request.stop_reading()
            # Where one request ends and the next begins can't be trusted any more.
            raise Refused(400, UNREADABLE, error.message, who, close=True) from error
        try:
            who = attribution(head, who)
            host = head.one(b"host") if self._dialect.uses_host else None
            target, match = self.found(request.method, request.target, host)
        except Malformed as error:
            raise Refused(400, UNREADABLE, error.message, who) from error
        values = () if match is None else match.path_params
        budget = Budget()
        fetch = Lookups(partial(self._fetch, head), budget, self._limits.lookup_seconds)
        asked = RoutedRequest(
            request.method, target, values, None, fetch, head.forward, who, budget
        )
        case.read = asked
        if match is None:
            reason = f"the data source has no route for `{request.method}` of this path known here"
            raise Refused(403, UNCLASSIFIED, reason, who)
        case.route = route = match.route
        if route.route_class in _BARRED:
            self._check_open(route, asked)
        if upgrade.asks(head) and not _streams(route):
            reason = f"`{route.methods} {route.pattern}` is no route for WebSocket"
            raise Refused(403, ROUTE_DENIED, reason, who)
        return route, asked, head

    def opened(self, route: ProtocolRoute | None, asked: RoutedRequest) -> ProtocolRoute:
        """The row that a body came to; raises `Refused`."""
        if route is None:
            reason = "the data source has no method as in this body known here"
            raise Refused(403, UNCLASSIFIED, reason, asked.attribution)
        if route.route_class in _BARRED:
            self._check_open(route, asked)
        return route

    def found(
        self, method: str, raw: str, host: bytes | None = None
    ) -> tuple[Target, RouteMatch | None]:
        """The canonical form of a target, and the row of the table. Raises `Malformed`.

        What a method and a path come to is the same every time, and agents ask the same paths
        over and over: it is kept, for a bounded number of short ones."""
        known = self._known.get((method, raw, host))
        if known is not None:
            return known
        target = canonical(raw)
        if host is not None:
            target = self._dialect.apply_host(host.decode("ascii"), target)
        found = target, self._dialect.match(method, target)
        # A query may hold a credential, and is not kept beyond its request.
        if "?" not in raw and len(raw) + len(host or b"") <= _LONGEST_KNOWN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[method, raw, host] = found
        return found

    def _check_open(self, route: ProtocolRoute, asked: RoutedRequest) -> None:
        who = asked.attribution
        if route.route_class in ALWAYS_DENIED:
            reason = f"`{asked.method} {route.pattern}` is closed: {route.route_class.value}"
            raise Refused(403, ROUTE_DENIED, reason, who)
        if not self._writes:
            place = None if route.hint_source is None else route.hint_source(self._dialect, asked)
            reason = (
                f"`{asked.method} {route.pattern}` writes, and `writes` is `deny` for this source"
            )
            raise Refused(403, WRITE_DENIED, reason, who, place=place)


def _streams(route: ProtocolRoute) -> bool:
    """Whether nothing of its bodies has to be read, so that they may be of any protocol."""
    reads = (
        route.parse_body,
        route.refine,
        route.response_source,
        route.compose_response,
        route.plan_forward,
    )
    return route.route_class is RouteClass.RETRIEVE and not any(each is not None for each in reads)
