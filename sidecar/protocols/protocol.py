"""The interface of a protocol to the proxy: its routes, which requests each covers, what it does,
and the functions that find its sources and filter its response (`protocols/RULES.md`, R1 to R7).

Pure. Decides nothing: a route says what a request reads, and how to withhold what the agent may
not see. Knows no particular protocol.
"""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from sidecar.http.request_target import Target
from sidecar.protocols.messages import (
    FetchedResponse,
    Fields,
    ForwardPlan,
    OutgoingRequest,
    Permits,
    RefusalResponse,
    RoutedRequest,
    SourceRef,
    Visibility,
)
from sidecar.protocols.strict_body import BodyParser

Sources = tuple[SourceRef, ...]
FindSources = Callable[[Any, RoutedRequest], Coroutine[Any, Any, Sources]]
FindSourcesNow = Callable[[Any, RoutedRequest], Sources | None]
PlanForward = Callable[[Any, RoutedRequest, Sources, Visibility], ForwardPlan]


class RouteClass(Enum):
    """The class of a route (R7), which decides how its requests are handled."""

    RETRIEVE = "retrieve"
    """Reads a source. Authorized and recorded; what it returned is recorded as lineage."""
    RESOLVE = "name-resolve"
    """Looks up a name. Authorized and recorded like a read; the response must be about the
    source that was authorized."""
    METADATA = "metadata"
    """Describes a source without reading it. Authorized and recorded, or composed from what the
    agent may see."""
    WRITE = "write"
    """Changes a source. Denied, or authorized like a read where the configuration allows writes."""
    BULK = "bulk-export"
    """Copies a whole source, so that later reads of the copy escape its policies. Denied."""
    ADMIN = "admin"
    """Changes what names mean, or everything at once. Denied."""
    DENY = "deny"
    """Denied because the operator's configuration says so."""
    OPEN = "open"
    """Reveals nothing about any source; clients can't work without it."""


# Not even `writes: allow` opens these: a copy, or a name that means something else, would take data
# out of reach of the policies that name it today (`protocols/RULES.md`, Classes).
ALWAYS_DENIED = (RouteClass.BULK, RouteClass.ADMIN, RouteClass.DENY)


@dataclass(frozen=True, slots=True)
class ProtocolRoute:
    """One row of a protocol's table. Each function takes the protocol as its first argument."""

    methods: str
    """The methods that the row covers, separated by spaces."""
    pattern: str
    """The path, with `{name}` for one segment."""
    route_class: RouteClass
    find_sources: FindSources | None = None
    """The sources of a request; all of them must be allowed (R4). It awaits nothing but
    `RoutedRequest.fetch`, and may run in another thread between those calls. Raises `Unresolved`,
    and `Malformed` for a body that makes no sense."""
    hint_source: Callable[[Any, RoutedRequest], SourceRef | None] | None = None
    """The source, for the record of a denied write; None if the request alone doesn't show it."""
    parse_body: BodyParser | None = None
    """Reads a body that decisions depend on. It is forwarded only if this succeeds (R3, R6)."""
    refine: Callable[[Any, RoutedRequest], "ProtocolRoute | None"] | None = None
    """Chooses the row to use instead, by the body, where the path isn't enough. Returns None for a
    request that no row covers. Raises `Malformed` and `Unresolved`."""
    find_visible_sources: (
        Callable[[Any, RoutedRequest, Permits], Coroutine[Any, Any, Sources]] | None
    ) = None
    """Like `find_sources`, where finding them takes a look-up that must not be made for a source
    that the agent may not see. Also raises `MissingSource`."""
    replacement_target: Callable[[Any, RoutedRequest], str] | None = None
    """The target of a GET without a body that is forwarded instead of the request: for a request
    that may write, where only its read is wanted."""
    response_source: Callable[[Any, RoutedRequest], Callable[[bytes], SourceRef | None]] | None = (
        None
    )
    """Called before the request is forwarded. The function it returns reads a successful response
    and names the source it is about, or None if that isn't clear."""
    compose_response: (
        Callable[[Any, RoutedRequest, Permits], Coroutine[Any, Any, FetchedResponse]] | None
    ) = None
    """Composes the response from what `Permits` allows; awaits only what `find_sources` may. Raises
    `Malformed`."""
    plan_forward: PlanForward | None = None
    """Plans the changes to the allowed request and its response: a condition that withholds what
    the agent may not see, the check that the response keeps to it, tokens to remember, lists to
    filter."""
    names_keys: bool = False
    """True if the route's sources are keys, which `parse_body` has charged to the budget as such
    (`MAX_KEYS`)."""
    forwards_unchanged: bool = False
    """True if, where documents have no levels, `plan_forward` changes neither the request nor what
    the agent gets of the response. A check door, which can change neither, judges any other planned
    request as one for the whole data source too."""
    filters_documents: bool = False
    """True if `plan_forward` keeps to `Visibility.levels`. If the source labels its documents, a
    retrieval on any other route is judged at `critical`."""
    find_sources_now: FindSourcesNow | None = None
    """Like `find_sources`, but without awaiting; None if that isn't possible."""
    before_forward: Callable[[Any], None] | None = None
    """Called before forwarding a request that may change what names mean."""
    after_forward: Callable[[Any], None] | None = None
    """Called when that request is finished, whatever its outcome."""


def without_waiting(find: Callable[[Any, RoutedRequest], Sources]) -> FindSources:
    """Return `find` as a `find_sources`, for sources that follow from the request alone."""

    async def find_sources(protocol: Any, request: RoutedRequest) -> Sources:
        return find(protocol, request)

    return find_sources


class RouteMatch(NamedTuple):
    """A route, and the decoded values of its pattern's `{names}`."""

    route: ProtocolRoute
    path_params: tuple[str, ...]


class RouteTable:
    """Routes by method and number of segments. The first match wins, so a literal segment has to
    come before a `{name}` in the same position."""

    def __init__(self, routes: Iterable[ProtocolRoute]) -> None:
        self.routes = tuple(routes)
        self._rows: dict[tuple[str, int], list[tuple[ProtocolRoute, tuple[str | None, ...]]]] = {}
        for route in self.routes:
            parts = tuple(
                None if part.startswith("{") else part for part in route.pattern[1:].split("/")
            )
            # By method and length, so that a request is compared with few rows: a table may have
            # more than a hundred, and each request is matched.
            for method in route.methods.split():
                self._rows.setdefault((method, len(parts)), []).append((route, parts))

    def match(self, method: str, target: Target) -> RouteMatch | None:
        segments = target.segments
        for route, parts in self._rows.get((method, len(segments)), ()):
            values = []
            for part, segment in zip(parts, segments, strict=True):
                # A `{name}` never matches an empty segment: `/collections/` names no collection.
                if part is None and segment:
                    values.append(segment)
                elif part != segment:
                    break
            else:
                return RouteMatch(route, tuple(values))
        return None


class SourceProtocol:
    """The protocol of one configured data source, and what it has learnt about that source."""

    signs_requests: ClassVar[bool] = False
    """True if the proxy calls `sign`, and drops the agent's own credentials."""
    uses_host: ClassVar[bool] = False
    """True if `Host` names part of what is requested, so that the proxy calls `apply_host`."""

    def apply_host(self, _host: str, target: Target) -> Target:
        """Return `target` with the part that `Host` names (the bucket in S3's `<bucket>.<domain>`)
        written into its path. The result is matched, judged and forwarded. Raises `Malformed`."""
        return target

    def match(self, method: str, target: Target) -> RouteMatch | None:
        """Return the first route that covers the request; None if there is none, and then the
        request is denied (R4)."""
        raise NotImplementedError

    def render_refusal(
        self, _request: RoutedRequest | None, _refusal: RefusalResponse
    ) -> FetchedResponse | None:
        """Return a denial or an error of the sidecar in the protocol's own format, so that its
        clients raise their own errors; None for the usual format (`CONTRACT.md`, Errors). The
        request is None if it could not be read far enough."""
        return None

    # Called last, right before the request is sent: a signature covers the fields and the body as
    # they leave.
    async def sign(self, outgoing: OutgoingRequest) -> Fields:
        """Return the fields to send, including the sidecar's own credentials (R9). Raises
        `UpstreamFailed` if there are none."""
        raise NotImplementedError
