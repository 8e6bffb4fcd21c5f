"""Classifies a request before anything is decided: reads its head, makes its target canonical, and
finds the row of the protocol's route table, asking the data source where the request alone doesn't
say what it concerns. Refuses requests that could be read in two ways, that no row covers, or whose
row is closed (always denied).

Look-ups, the sidecar's own requests to the data source, are made with the agent's credentials. They
end when their client leaves, which is watched from the first look-up on. Together they have one
deadline, and each distinct target is fetched once.

Knows the policy name of each refusal. Knows nothing of policies or of any data source.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.grpc.status import is_grpc_type
from sidecar.http.grpc.web import web_form
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import Target, canonical
from sidecar.http.server.head_cache import HeadTemplate
from sidecar.http.server.request import HttpRequest
from sidecar.platform import eager
from sidecar.platform.eager import Watch, unwatched
from sidecar.protocols.protocol import (
    ALWAYS_DENIED,
    FetchedResponse,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    RouteMatch,
    SourceProtocol,
    SourceRef,
    Unresolved,
)
from sidecar.protocols.strict_body import Budget
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages import request_reader
from sidecar.proxy.pipeline.authorizer import UNREADABLE, WRITE_DENIED, Refused
from sidecar.proxy.pipeline.request_context import RequestContext

Fetch = Callable[[RequestHead, str, bytes | None], Awaitable[FetchedResponse]]
"""Sends a look-up to the data source with the credentials in a request's head, and returns the
response: a GET for a target or, with a body, a POST of that JSON."""

_LONGEST_KEPT = 64 * 1024
"""The longest look-up response that is kept for the rest of the request, in bytes. This bounds the
memory that one request may hold."""


class Lookups:
    """The look-ups of one request: call it with a target, and a body for a POST in place of a GET,
    and it returns the data source's response. `fetch` sends it with the credentials in `head`; a
    look-up that was made before is answered from memory. `seconds` is the time for all look-ups
    together, counted from the first one; `watch` tells when the client leaves. Raises `OverBudget`
    and `UpstreamFailed`."""

    __slots__ = (
        "_budget", "_deadline", "_fetch", "_head", "_left", "_responses", "_seconds", "_under_way",
        "_watch",
    )  # fmt: skip

    def __init__(
        self,
        fetch: Fetch,
        head: RequestHead,
        budget: Budget,
        seconds: float,
        watch: Watch,
    ) -> None:
        self._watch = watch
        self._left = False
        self._under_way: asyncio.Timeout | None = None
        self._fetch = fetch
        self._head = head
        self._budget = budget
        self._seconds = seconds
        self._deadline: float | None = None
        self._responses: dict[tuple[str, bytes | None], FetchedResponse] = {}

    async def __call__(self, target: str, body: bytes | None = None, /) -> FetchedResponse:
        known = self._responses.get((target, body))
        if known is not None:
            return known
        # A target that was fetched already costs nothing: what counts is the load on the data
        # source.
        self._budget.charge_lookup()
        await eager.within_task()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
            self._watch(self._end)
        try:
            async with asyncio.timeout_at(self._deadline) as self._under_way:
                response = await self._fetch(self._head, target, body)
        except TimeoutError:
            late = f"the look-ups took longer than {self._seconds:g} s"
            gone = "the client left while names were looked up for it"
            raise UpstreamFailed(gone if self._left else late) from None
        finally:
            self._under_way = None
        if len(response.body) <= _LONGEST_KEPT:
            self._responses[target, body] = response
        return response

    def _end(self) -> None:
        """End the current look-up, and allow no other one, because the client has left."""
        self._left = True
        self._budget.end()
        loop = asyncio.get_running_loop()
        self._deadline = loop.time()
        # A look-up whose time is up is ending already, and its deadline can't be changed.
        if self._under_way is not None and not self._under_way.expired():
            self._under_way.reschedule(self._deadline)


UNCLASSIFIED = "unclassified_route"
ROUTE_DENIED = "route_denied"

_RESTRICTED = (*ALWAYS_DENIED, RouteClass.WRITE)


class SourceRules(NamedTuple):
    """The settings of one source that say how its requests are judged."""

    default: Attribution
    """The attribution of a request that names no user."""
    writes: bool
    """True if writes are decided like reads; otherwise all of them are denied."""
    level_field: str | None
    """The field in which each document in the data source states its sensitivity level; None if
    there is no such field."""
    opaque: bool = False
    """True if an escaped slash in a path is part of its segment; otherwise a path that contains one
    is refused."""
    trailers: bool = False
    """True if a request's trailers are forwarded; otherwise they are dropped."""
    grpc: bool = False
    """True if there is an address to which calls of gRPC are forwarded."""


class _Meaning(NamedTuple):
    """The result of classifying one head, remembered with the head for later requests. It follows
    from the head alone, and holds for one `classifier` and one `raw` target (as the routing left
    it)."""

    classifier: "RequestClassifier"
    raw: str
    who: Attribution
    target: Target
    match: RouteMatch | None


class RequestClassifier:
    """Classifies requests to one data source. `fetch` sends the look-ups."""

    def __init__(
        self, protocol: SourceProtocol, rules: SourceRules, fetch: Fetch, limits: ProxyLimits
    ) -> None:
        self._protocol = protocol
        self._rules = rules
        self._fetch = fetch
        self._lookup_seconds = limits.lookup_seconds
        self.inspected_bytes = limits.inspected_bytes
        """The most bytes of a body that are read for a decision."""

    def classify(
        self, request: HttpRequest, context: RequestContext
    ) -> tuple[ProtocolRoute, RoutedRequest]:
        """Read the head into `context`, and find the route. Raises `Refused`."""
        try:
            context.head = head = request_reader.read_head(request)
        except Malformed as error:
            # It is no longer certain where this request ends and the next begins.
            who = self._rules.default
            raise Refused(400, UNREADABLE, error.message, who, close=True) from error
        template: HeadTemplate | None = request.head if request.known else None
        return self.classify_head(request.method, request.target, head, template, context)

    def classify_head(
        self,
        method: str,
        raw: str,
        head: RequestHead,
        template: HeadTemplate | None,
        context: RequestContext,
    ) -> tuple[ProtocolRoute, RoutedRequest]:
        """Find the route of a request whose target is `raw`. `template` is the remembered form of
        its head, None if the head isn't remembered. Raises `Refused`."""
        meaning: _Meaning | None = None if template is None else template.meaning
        # Inside of tunnels, one head may be for several sources, and be led to several targets.
        if meaning is None or meaning.classifier is not self or meaning.raw != raw:
            # A remembered head never asks for it.
            context.websocket = template is None and request_reader.asks_websocket(head)
            meaning = self._read(method, raw, head)
            # A query may hold a credential, which must not outlive its request.
            if template is not None and "?" not in raw:
                template.meaning = meaning
        _, _, who, target, match = meaning
        # Made even without a row: in mode `report`, a request that no row covers is still
        # forwarded.
        values = () if match is None else match.path_params
        budget = Budget()
        fetch = Lookups(self._fetch, head, budget, self._lookup_seconds, context.watch_client)
        context.from_head = routed = RoutedRequest(
            method, target, values, None, fetch, head, who, budget
        )
        context.route = route = None if match is None else match.route
        if route is None or route.rpc or route.route_class in _RESTRICTED:
            route = self.check_route(route, routed, f"`{method}` of this path", unread=True)
        if context.websocket and not _streams(route):
            reason = f"`{route.methods} {route.pattern}` does not accept WebSocket"
            raise Refused(403, ROUTE_DENIED, reason, who)
        context.routed = routed
        return route, routed

    def next_message(self, routed: RoutedRequest, head: RequestHead) -> RoutedRequest:
        """Return the request of a call for another message of its stream, which is judged within
        limits of its own."""
        budget = Budget()
        fetch = Lookups(self._fetch, head, budget, self._lookup_seconds, unwatched)
        return routed._replace(budget=budget, fetch=fetch)

    def check_route(
        self,
        route: ProtocolRoute | None,
        routed: RoutedRequest,
        asked: str,
        *,
        unread: bool = False,
    ) -> ProtocolRoute:
        """Return `route`, the row of the route table that the head or the body led to. Raises
        `Refused` if the row is always denied, if it writes and the source denies writes, or if
        there is no row; `asked` says for the message what no row covers. With `unread`, the body
        is still to be read. Then a write passes whose row has `hint_in_body`: call this again with
        the body, or `check_unread` if it can't be read."""
        who = routed.attribution
        if route is None:
            reason = f"no known route of the data source covers {asked}"
            raise Refused(403, UNCLASSIFIED, reason, who)
        if route.rpc and not self._rules.grpc:
            reason = "calls of gRPC need the source's setting `grpc` in the sidecar's file"
            raise Refused(403, UNCLASSIFIED, reason, who)
        if route.route_class in ALWAYS_DENIED:
            reason = f"`{routed.method} {route.pattern}` is closed: {route.route_class.value}"
            raise Refused(403, ROUTE_DENIED, reason, who)
        if self._denies_write(route) and not (unread and route.hint_in_body):
            raise _write_denied(route, routed, self._hint(route, routed))
        return route

    def check_unread(self, route: ProtocolRoute, routed: RoutedRequest, *, close: bool) -> None:
        """Raise `Refused` if the request, whose body can't be read, is a write that the source
        denies: it is denied as one, and recorded for the data source as a whole. With `close`, the
        connection ends after the response. A call of gRPC passes: its client is told that its
        message can't be read, as it is where writes are allowed."""
        if self._denies_write(route) and not route.is_call:
            raise _write_denied(route, routed, None, close=close)

    def _denies_write(self, route: ProtocolRoute) -> bool:
        return route.route_class is RouteClass.WRITE and not self._rules.writes

    def _hint(self, route: ProtocolRoute, routed: RoutedRequest) -> SourceRef | None:
        try:
            return None if route.hint_source is None else route.hint_source(self._protocol, routed)
        except (Malformed, Unresolved):
            # It is denied whatever it names, so the denial is recorded for the whole data source.
            return None

    def _read(self, method: str, raw: str, head: RequestHead) -> _Meaning:
        who = self._rules.default
        try:
            # First of all, so that later refusals are recorded under the caller's own name.
            who = attribution(head, who)
            target = canonical(raw, opaque=self._rules.opaque)
            if self._protocol.uses_host and (host := head.one(b"host")) is not None:
                target = self._protocol.apply_host(host.decode("latin-1"), target)
            match = self._protocol.match(method, target)
            if match is not None and self._protocol.reads_grpc:
                # A row says how the body is read: as messages of gRPC, or otherwise.
                types = head.read.get(b"content-type", ())
                asked = any(map(is_grpc_type, types)), any(map(web_form, types))
                match = match if (match.route.rpc, match.route.web) == asked else None
            if match is not None and match.route.is_call and target.query is not None:
                # Some servers take it for a part of the method's name, and others drop it.
                raise Malformed("the path of a call of gRPC has a query")
        except Malformed as error:
            raise Refused(400, UNREADABLE, error.message, who) from error
        return _Meaning(self, raw, who, target, match)


def _write_denied(
    route: ProtocolRoute, routed: RoutedRequest, source: SourceRef | None, *, close: bool = False
) -> Refused:
    name = f"`{routed.method} {route.pattern}`"
    reason = f"{name} writes, and `writes` is `deny` for this source in the sidecar's file"
    return Refused(403, WRITE_DENIED, reason, routed.attribution, source=source, close=close)


def _streams(route: ProtocolRoute) -> bool:
    """Return whether the route needs to read neither the request's body nor the response's, so that
    the connection may continue in another protocol such as WebSocket."""
    reads = (
        route.is_call,
        route.reads_body,
        route.refine,
        route.response_source,
        route.compose_response,
        route.plan_forward,
    )
    return route.route_class is RouteClass.RETRIEVE and not any(reads)
