"""The interface of a protocol to the proxy: its routes, the functions that find a request's sources
and filter its response, and the types that the proxy and the protocol exchange
(`protocols/RULES.md`, R1 to R7). Pure, except for `RoutedRequest.fetch`."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

from policies.definitions.model import Sensitivity
from policies.ground.errors import UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.grpc.protobuf import Message, Values
from sidecar.http.request_target import Target
from sidecar.protocols.strict_body import BodyParser, Budget

Fields = list[tuple[bytes, bytes]]
FieldIterable = Iterable[tuple[bytes, bytes]]


class SourceRef(NamedTuple):
    """A source as policies know it: its id, and the sensitivity that the configuration gives it."""

    source_id: str
    sensitivity: Sensitivity


# Not a `Malformed`: the request may be sound, so the status is 403 and not 400.
class Unresolved(Exception):
    """the request's sources can't be determined, so it is denied (R4). The message is the reason"""


class UnknownObject(Unresolved):
    """the request names an object that the data source doesn't have. `below` is what the ids of all
    sources begin with that it could have been, and `named` those of them with another id. An agent
    that may read all of these gets 404 instead of 403"""

    def __init__(self, reason: str, below: SourceRef, named: tuple[SourceRef, ...]) -> None:
        super().__init__(reason)
        self.below = below
        self.named = named


class MissingSource(Exception):
    """the request would create a source that doesn't exist, and writes are denied. The message is
    the reason, and says what to do instead"""

    def __init__(self, source: SourceRef, reason: str) -> None:
        super().__init__(reason)
        self.source = source


class ResponseTooLarge(UpstreamFailed):
    """the data source's response is larger than the sidecar reads whole"""


class FetchedResponse(NamedTuple):
    """A response that was read whole: to one of the sidecar's own look-ups, or to a request whose
    response the protocol has to read."""

    status: int
    reason: str
    fields: Fields
    body: bytes
    """The body; of a call of gRPC, the one message in it, without its frame."""
    trailers: bytes = b""
    """The trailer fields to forward, each with its line end."""


class GrpcMessage(NamedTuple):
    """The message of a call of gRPC."""

    values: Values
    """The fields by name, as `sidecar/http/grpc/protobuf.py` decodes them."""
    data: bytes
    """The message as it is forwarded: the canonical encoding of `values`."""
    form: bytes | None = None
    """The form of a body of gRPC-Web (`sidecar/http/grpc/web.py`); None for a call of gRPC."""
    memory: int = 0
    """About the bytes of memory that `values` take."""


class Fetch(Protocol):
    """Sends a look-up to the data source: a GET for a target or, with a body, a POST of that JSON.
    Where the agent's request is a call of gRPC, a body is the message of a call, and the response
    has a message. Raises `UpstreamFailed`, `ResponseTooLarge`."""

    def __call__(self, target: str, body: bytes | None = None, /) -> Awaitable[FetchedResponse]: ...


class RoutedRequest(NamedTuple):
    method: str
    target: Target
    path_params: tuple[str, ...]
    """The values of the `{names}` in the route's pattern, decoded, in order."""
    body: Any
    """The return value of the route's `parse_body`, or the `GrpcMessage` that the route's `message`
    decodes; None if the route has neither."""
    fetch: Fetch
    """Sends a look-up, with the agent's own header fields: it shows no more than those allow."""
    fields: FieldIterable
    """The header fields to forward, in order."""
    attribution: Attribution
    """The user, session and task that the request states. Used to attribute, never to authorize."""
    budget: Budget
    """The remaining budget of the request for work, charged before the work is done."""


# Judges by the policy set in force at that moment, so its answer may change from one message of a
# stream to the next.
Permits = Callable[[SourceRef], bool]


class Visibility(NamedTuple):
    """Says which parts of a response the agent may see."""

    permits: Permits
    """Returns whether the agent may see a source, such as one of a list. Writes no record."""
    field: str
    """The dotted path to the field that holds a document's own level; empty if documents have
    none."""
    levels: tuple[Sensitivity, ...] | None
    """The levels that the agent may see; None for all of them. A document without a level, or
    with an unknown one, counts as `critical`."""


class ForwardedPart(NamedTuple):
    """The part of a response that reaches the agent, and the number of documents that were withheld
    from it."""

    body: bytes
    withheld: int = 0


InsertEvent = Callable[[bytes], bool]
"""Writes events that the sidecar makes itself, always whole, between two events of the data source.
Returns False if the agent doesn't accept the bytes written before."""


class ForwardPlan(NamedTuple):
    """Says what the proxy changes in an allowed request and in its response. Both filters raise
    `UpstreamFailed` for a response that they can't judge."""

    # Wherever nothing has to be added, the body is forwarded as received, byte for byte, so that
    # the data source gets exactly what was judged.
    body: bytes | None = None
    """The body that replaces the request's; None forwards the body as received."""
    filter_response: Callable[[FetchedResponse], ForwardedPart] | None = None
    """Returns the part of a response that the agent gets. If it is set, the sidecar requests the
    response without content encoding and reads it whole. A response without a success status passes
    unchanged."""
    filter_event: Callable[[bytes], ForwardedPart | None] | None = None
    """Filters a `text/event-stream` response event by event, instead of reading it whole. It gets
    the `data` of each event, and returns the replacement; None drops the event."""
    on_head: Callable[[int, Fields], None] | None = None
    """Called with the status and header fields before any of the response is passed on."""
    on_events: Callable[[InsertEvent], Callable[[], None]] | None = None
    """Called when a filtered event stream begins. Returns a function that is called at its end."""
    forward_fields: Callable[[FieldIterable], Fields] | None = None
    """Chooses the header fields that are forwarded; None forwards all."""


FORWARD_UNCHANGED = ForwardPlan()


class OutgoingRequest(NamedTuple):
    """A request to the data source, as a protocol gets it to sign right before it is sent. `fields`
    are its header fields."""

    method: str
    host: str
    target: str
    """The target, which begins with `/`."""
    fields: Fields
    body: bytes | None
    """The body; None while it is still arriving."""


def with_event(reason: str, event_id: str) -> str:
    # In the text, because a client's exception seldom shows header fields or other members.
    return f"{reason} (event {event_id})"


class RefusalResponse(NamedTuple):
    """A denial or an error of the sidecar, which a protocol may render in its own format."""

    status: int
    message: str
    """The reason for the refusal, followed by the event's id if there was a decision."""
    decision: dict[str, str]
    """The evaluation's four fields; empty without a decision, and for an error behind one."""
    withheld: bool = False
    """True if a response of the data source is withheld because it can't be judged."""

    @classmethod
    def of(cls, status: int, reason: str, decision: dict[str, str]) -> "RefusalResponse":
        """Return the refusal for this reason. With a `decision`, its message ends with the event's
        id."""
        message = with_event(reason, decision["event_id"]) if decision else reason
        return cls(status, message, decision)


Sources = tuple[SourceRef, ...]
FindSources = Callable[[Any, RoutedRequest], Coroutine[Any, Any, Sources]]
FindSourcesNow = Callable[[Any, RoutedRequest], Sources | None]
HintSource = Callable[[Any, RoutedRequest], SourceRef | None]
FindVisibleSources = Callable[[Any, RoutedRequest, Permits], Coroutine[Any, Any, Sources]]
ComposeResponse = Callable[[Any, RoutedRequest, Permits], Coroutine[Any, Any, FetchedResponse]]
ReadSource = Callable[[Any, RoutedRequest], Callable[[bytes], SourceRef | None]]
PlanForward = Callable[[Any, RoutedRequest, Sources, Visibility], ForwardPlan]


class RouteClass(Enum):
    """The class of a route (R7), which says whether its requests are denied, authorized or open,
    and what is recorded."""

    RETRIEVE = "retrieve"
    """Reads a source. Authorized and recorded; what it returned is recorded as lineage."""
    RESOLVE = "name-resolve"
    """Looks up a name. Authorized and recorded like a read; the response must be about the
    source that was authorized."""
    METADATA = "metadata"
    """Describes a source without reading it. Authorized and recorded; or the response is composed
    from what the agent may see."""
    WRITE = "write"
    """Changes a source. Denied, or authorized like a read where the configuration allows writes."""
    BULK = "bulk-export"
    """Copies a whole source, so that later reads of the copy escape its policies. Denied."""
    ADMIN = "admin"
    """Changes what names mean, or everything at once. Denied."""
    DENY = "deny"
    """Denied because the operator's configuration says so."""
    OPEN = "open"
    """Reveals nothing about any source, and clients can't work without it. Not authorized or
    recorded."""


# Not even `writes: allow` opens these: a copy, or a name that means something else, would take data
# out of reach of the policies that name it today (`protocols/RULES.md`, Classes).
ALWAYS_DENIED = (RouteClass.BULK, RouteClass.ADMIN, RouteClass.DENY)


@dataclass(frozen=True, slots=True)
class ProtocolRoute:
    """One row of a protocol's route table: which requests it covers, and how to find their sources
    and filter their responses. Each function takes the protocol as its first argument."""

    methods: str
    """The HTTP methods that the row covers, separated by spaces."""
    pattern: str
    """The path, with `{name}` for one segment."""
    route_class: RouteClass
    find_sources: FindSources | None = None
    """Finds the sources of a request; all of them must be allowed (R4). It awaits nothing but
    `RoutedRequest.fetch`, and may run in another thread between those calls. Raises `Unresolved`,
    and `Malformed` for a body that makes no sense."""
    hint_source: HintSource | None = None
    """Finds the source that the record of a denied write names; None if the request alone doesn't
    show it. May raise `Malformed` and `Unresolved`."""
    parse_body: BodyParser | None = None
    """Parses a body on which the decision depends. It is forwarded only if it parses (R3, R6)."""
    hint_in_body: bool = False
    """True if `hint_source` needs the body, so that a write is denied once its body is read."""
    rpc: bool = False
    """True if the row is a method of gRPC, False if it is a request of any other kind."""
    web: bool = False
    """True if the row is a method of gRPC in its web form, which the data source answers at
    `upstream` like a request of any other kind. `rpc` is False then."""
    message: Message | None = None
    """The message of a call of gRPC, which decides. Its canonical encoding is forwarded."""
    stream: bool = False
    """True if the call has any number of messages, each of which is judged when it arrives, by
    `find_sources`. The first that names sources is decided; the others may name no other ones."""
    refine: Callable[[Any, RoutedRequest], "ProtocolRoute | None"] | None = None
    """Chooses the row to use instead, by the request's body, where the path isn't enough. Returns
    None for a request that no row covers. Raises `Malformed` and `Unresolved`."""
    find_visible_sources: FindVisibleSources | None = None
    """Finds the sources as `find_sources` does, where that takes a look-up which must not be made
    for a source that the agent may not see. Also raises `MissingSource`."""
    replacement_target: Callable[[Any, RoutedRequest], str] | None = None
    """Returns the target of a GET without a body, which is forwarded instead of the request. This
    is for a request that may write, where only the read is wanted."""
    response_source: ReadSource | None = None
    """Called before the request is forwarded. Returns a function that finds in a successful
    response the source that it describes, or None if that isn't clear."""
    compose_response: ComposeResponse | None = None
    """Composes the response itself, from what `Permits` allows, instead of forwarding the request.
    Raises `Malformed`."""
    plan_forward: PlanForward | None = None
    """Plans the changes to an allowed request and its response: conditions that withhold documents,
    the check that the response keeps to them, tokens to remember, lists to filter."""
    names_keys: bool = False
    """True if the sources are keys of objects to delete, which `parse_body` charges as keys."""
    forwards_unchanged: bool = False
    """True if, where documents have no levels, `plan_forward` changes neither the request nor what
    the agent gets of the response. A check door, where a gateway asks only for the decision, can
    change neither: it judges any other planned request as one for the whole data source too."""
    filters_documents: bool = False
    """True if `plan_forward` withholds documents by `Visibility.levels`. If the source labels its
    documents, a retrieval on any other route is judged at `critical`."""
    find_sources_now: FindSourcesNow | None = None
    """Finds the sources as `find_sources` does, without awaiting; None if that isn't possible."""
    before_forward: Callable[[Any], None] | None = None
    """Called before forwarding a request that may change what names mean."""
    after_forward: Callable[[Any], None] | None = None
    """Called when such a request is finished, whatever its outcome."""

    @property
    def is_call(self) -> bool:
        """True if the row is a method of gRPC, in either form."""
        return self.rpc or self.web

    @property
    def reads_body(self) -> bool:
        """True if the decision depends on the whole body."""
        return self.parse_body is not None or (self.message is not None and not self.stream)


def without_waiting(find: Callable[[Any, RoutedRequest], Sources]) -> FindSources:
    """Return `find` as an asynchronous function for `find_sources`, for sources that follow from
    the request alone."""

    async def find_sources(protocol: Any, request: RoutedRequest) -> Sources:
        return find(protocol, request)

    return find_sources


class RouteMatch(NamedTuple):
    route: ProtocolRoute
    path_params: tuple[str, ...]


class RouteTable:
    """Finds routes by HTTP method and number of path segments. The first match wins, so a literal
    segment has to come before a `{name}` in the same position."""

    def __init__(self, routes: Iterable[ProtocolRoute]) -> None:
        self.routes = tuple(routes)
        self._rows: dict[tuple[str, int], list[tuple[ProtocolRoute, tuple[str | None, ...]]]] = {}
        for route in self.routes:
            segments = route.pattern[1:].split("/")
            parts = tuple(None if part.startswith("{") else part for part in segments)
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
    """The protocol of one configured data source, with what it has learnt about that source. A
    subclass for each kind of source overrides its methods."""

    signs_requests: ClassVar[bool] = False
    """True if the proxy must call `sign` for each request, and drop the agent's own credentials."""
    reads_grpc: ClassVar[bool] = False
    """True if the route table has methods of gRPC. Then no other row covers a call of gRPC."""
    uses_host: ClassVar[bool] = False
    """True if the header `Host` names part of what is requested, so that the proxy calls
    `apply_host`."""
    table: RouteTable

    def apply_host(self, _host: str, target: Target) -> Target:
        """Return `target` with the part that `Host` names (the bucket in S3's `<bucket>.<domain>`)
        written into its path. The result is matched, judged and forwarded. Raises `Malformed`."""
        return target

    def match(self, method: str, target: Target) -> RouteMatch | None:
        """Return the first route that covers the request; None if no route does, and then the
        request is denied (R4)."""
        return self.table.match(method, target)

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
        """Return the header fields to send, including the sidecar's own credentials (R9). Raises
        `UpstreamFailed` if there are no credentials."""
        raise NotImplementedError
