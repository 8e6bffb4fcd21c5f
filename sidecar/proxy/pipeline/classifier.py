"""Classifies a request before anything is decided: reads its head, makes its target canonical, and
finds the row of the protocol's table. Refuses requests that could be read in two ways, that no row
covers, or whose row is closed.

Knows the policy name of each refusal. Knows nothing of policies or of any data source.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import Target, canonical
from sidecar.http.server.request import HttpRequest
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import FetchedResponse, RoutedRequest
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ALWAYS_DENIED, ProtocolRoute, RouteClass, RouteMatch
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages import request_reader, upgrade
from sidecar.proxy.messages.framing import Tunnelling
from sidecar.proxy.pipeline.authorizer import UNREADABLE, WRITE_DENIED, Refused
from sidecar.proxy.pipeline.lookups import Lookups
from sidecar.proxy.pipeline.request_context import RequestContext

UNCLASSIFIED = "unclassified_route"
ROUTE_DENIED = "route_denied"

ClassifiedRequest = tuple[ProtocolRoute, RoutedRequest, RequestHead]

_RESTRICTED = ALWAYS_DENIED | {RouteClass.WRITE}

_CACHE_ENTRIES = 512
_LONGEST_CACHED = 512


class SourceRules(NamedTuple):
    """What the settings of a source say about its requests."""

    default: Attribution
    """Who makes a request that names no user."""
    writes: bool
    """Whether writes are decided like reads; otherwise all of them are denied."""
    level_field: str | None
    """The field in which the data source states each document's level, if it does."""


class RequestClassifier:
    """Classifies requests to one data source. `fetch` asks the data source for a target with the
    credentials in a head."""

    def __init__(
        self,
        protocol: SourceProtocol,
        rules: SourceRules,
        fetch: Callable[[RequestHead, str], Awaitable[FetchedResponse]],
        limits: ProxyLimits,
    ) -> None:
        self._protocol = protocol
        self._rules = rules
        self._fetch = fetch
        self._limits = limits
        self._cache: dict[tuple[str, str, bytes | None], tuple[Target, RouteMatch | None]] = {}

    def classify(self, request: HttpRequest, context: RequestContext) -> ClassifiedRequest:
        """Reads the head and finds the route. Raises `Refused`."""
        who = self._rules.default
        try:
            context.head = head = request_reader.read_head(request)
        except Malformed as error:
            # What follows may belong to the tunnel, and must not be read as HTTP (RFC 9931).
            if isinstance(error, Tunnelling):
                request.stop_reading()
            # It is no longer certain where this request ends and the next begins.
            raise Refused(400, UNREADABLE, error.message, who, close=True) from error
        try:
            # First of all, so that later refusals are recorded under the caller's own name.
            who = attribution(head, who)
            host = head.one(b"host") if self._protocol.uses_host else None
            target, match = self.match(request.method, request.target, host)
        except Malformed as error:
            raise Refused(400, UNREADABLE, error.message, who) from error
        # Built even without a row: in mode `report`, a request that no row covers is still
        # forwarded.
        values = () if match is None else match.path_params
        budget = Budget()
        fetch = Lookups(partial(self._fetch, head), budget, self._limits.lookup_seconds)
        routed = RoutedRequest(
            request.method, target, values, None, fetch, head.forward, who, budget
        )
        context.from_head = routed
        if match is None:
            reason = f"no known route of the data source covers `{request.method}` of this path"
            raise Refused(403, UNCLASSIFIED, reason, who)
        context.route = route = match.route
        if route.route_class in _RESTRICTED:
            self._check_open(route, routed)
        if upgrade.asks_websocket(head) and not _streams(route):
            reason = f"`{route.methods} {route.pattern}` does not accept WebSocket"
            raise Refused(403, ROUTE_DENIED, reason, who)
        return route, routed, head

    def check_refined(self, route: ProtocolRoute | None, routed: RoutedRequest) -> ProtocolRoute:
        """The row that the body led to. Raises `Refused` if no row matches, or a closed one."""
        if route is None:
            reason = "no known route of the data source covers the method in this body"
            raise Refused(403, UNCLASSIFIED, reason, routed.attribution)
        # Checked again: the row that the head led to may have been open, and this one closed.
        if route.route_class in _RESTRICTED:
            self._check_open(route, routed)
        return route

    def match(
        self, method: str, raw: str, host: bytes | None = None
    ) -> tuple[Target, RouteMatch | None]:
        """The canonical form of a target, and the row that covers it. Raises `Malformed`.

        The result depends on nothing else, and agents ask for the same paths over and over, so it
        is cached, for a bounded number of short targets.
        """
        cached = self._cache.get((method, raw, host))
        if cached is not None:
            return cached
        target = canonical(raw)
        if host is not None:
            target = self._protocol.apply_host(host.decode("ascii"), target)
        found = target, self._protocol.match(method, target)
        # A query may hold a credential, which must not outlive its request.
        if "?" not in raw and len(raw) + len(host or b"") <= _LONGEST_CACHED:
            if len(self._cache) >= _CACHE_ENTRIES:
                self._cache.clear()
            self._cache[method, raw, host] = found
        return found

    def _check_open(self, route: ProtocolRoute, routed: RoutedRequest) -> None:
        who = routed.attribution
        name = f"`{routed.method} {route.pattern}`"
        if route.route_class in ALWAYS_DENIED:
            raise Refused(403, ROUTE_DENIED, f"{name} is closed: {route.route_class.value}", who)
        if not self._rules.writes:
            source = (
                None if route.hint_source is None else route.hint_source(self._protocol, routed)
            )
            reason = f"{name} writes, and `writes` is `deny` for this source"
            raise Refused(403, WRITE_DENIED, reason, who, source=source)


def _streams(route: ProtocolRoute) -> bool:
    """Whether neither the request's body nor the response's has to be read, so that a connection
    may go on in any protocol."""
    reads = (
        route.parse_body,
        route.refine,
        route.response_source,
        route.compose_response,
        route.plan_forward,
    )
    return route.route_class is RouteClass.RETRIEVE and not any(each is not None for each in reads)
