"""What a protocol is to the proxy: a table of routes, each with its class and a function from the
request to the set of sources it concerns (data-sources.md R1 to R7).

Pure but for `RoutedRequest.fetch`, through which a protocol may look up a name. A protocol judges
nothing:
it says what is asked for, and how to leave out what may not be seen.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from policies.ground.errors import UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.request_target import Target
from sidecar.protocols.budget import Budget
from sidecar.protocols.strict_body import Parse

Fields = list[tuple[bytes, bytes]]
FieldsRead = Iterable[tuple[bytes, bytes]]
"""Fields that are only gone through."""


class RouteClass(Enum):
    """What a route does (R7), and with it what becomes of a request for it."""

    RETRIEVE = "retrieve"
    """Reads a source: judged, recorded, and what it returned is lineage."""
    RESOLVE = "name-resolve"
    """Looks up a name: judged and recorded like reading, and the answer must be of that source."""
    METADATA = "metadata"
    """Tells of a source without reading it: judged and recorded, or put together of what may be
    seen."""
    WRITE = "write"
    """Changes a source: denied, or judged like reading where the configuration allows writes."""
    BULK = "bulk-export"
    """Copies a source as a whole, past any judgement of what is read from it: denied."""
    ADMIN = "admin"
    """Changes what names mean, or everything at once: denied."""
    DENY = "deny"
    """Denied because the operator's configuration says so."""
    OPEN = "open"
    """Tells nothing of any source; clients can't do without it."""


CLOSED = frozenset((RouteClass.BULK, RouteClass.ADMIN, RouteClass.DENY))


class SourceRef(NamedTuple):
    """A source as policies know it, and its configured level."""

    source_id: str
    sensitivity: str


class Unresolved(Exception):
    """What a request asks for can't be told: it is denied (R4). The message is the reason."""


class Missing(Exception):
    """What a request names isn't there, so that it would be created, and writes are denied. The
    message is the reason, and names what to do instead."""

    def __init__(self, place: SourceRef, reason: str) -> None:
        super().__init__(reason)
        self.place = place


class ResponseTooLarge(UpstreamFailed):
    """the data source's answer is larger than what is read whole"""


class FetchedResponse(NamedTuple):
    """An answer that was read whole: to a look-up of the sidecar's own, made in the agent's name,
    or to a request whose answer has to be read."""

    status: int
    reason: str
    fields: Fields
    body: bytes


class RoutedRequest(NamedTuple):
    """A request whose route is known. `values` are the pattern's `{names}`, decoded, in order;
    `body` is what the route's `inspected` made of the body, else None."""

    method: str
    target: Target
    values: tuple[str, ...]
    body: Any
    fetch: Callable[[str], Awaitable[FetchedResponse]]
    """GET a target of the data source with the agent's own header fields. Raises `UpstreamFailed`,
    `ResponseTooLarge` among them."""
    fields: FieldsRead
    """The request's header fields as they are forwarded, in order."""
    who: Attribution
    """On whose behalf the request says it is made: attribution, never authority."""
    budget: Budget
    """What the request may still cost. A protocol charges it before it does the work."""


Permits = Callable[[SourceRef], bool]


class Visibility(NamedTuple):
    """What the agent may see of an answer.

    `permits` tells of a further source, without a record. `levels` are the levels of documents that
    it may see, where the source marks its documents with one in `field` (its path in the metadata,
    dots between); None where all may be seen. A document without a mark, or with one unknown, is
    as one marked `critical`.
    """

    permits: Permits
    field: str
    levels: tuple[str, ...] | None


class ForwardedPart(NamedTuple):
    """What of an answer goes on to the agent, and how many documents were left out."""

    body: bytes
    withheld: int = 0


class Prepared(NamedTuple):
    """What becomes of an allowed request and its answer. With `read` the answer is asked for
    unencoded, read whole and answered with what `read` returns; an answer that is no success is
    passed as it is. With `event` an answer of the type `text/event-stream` is not read whole but
    event by event: `event` gets the `data` of each, and its return takes that place, None leaves
    the event out. Both raise `UpstreamFailed` where an answer tells what nobody can judge."""

    body: bytes | None = None
    """What is forwarded in place of the body that was judged; None: that body."""
    read: Callable[[FetchedResponse], ForwardedPart] | None = None
    event: Callable[[bytes], ForwardedPart | None] | None = None
    head: Callable[[int, Fields], None] | None = None
    """Gets the answer's status and fields before any of it goes on: for a token that stands there,
    and an answer that goes on as it comes."""


NOTHING = Prepared()


class Outgoing(NamedTuple):
    """A request about to be sent, for a protocol that signs it. `target` begins with `/`; `body` is
    None where it is still arriving."""

    method: str
    host: str
    target: str
    fields: Fields
    body: bytes | None


class DenialResponse(NamedTuple):
    """A denial about to be told to the agent: `status` and `body` as they would be without the
    protocol's say (contract, section 5), `decision` the four fields of an evaluation."""

    status: int
    message: str
    decision: dict[str, str]


@dataclass(frozen=True, slots=True)
class ProtocolRoute:
    """One row of a protocol's table. Its functions are the protocol's own and take it first."""

    methods: str
    """The methods it covers, separated by a space."""
    pattern: str
    """The path, `{name}` for one segment."""
    class_: RouteClass
    places: Callable[[Any, RoutedRequest], Coroutine[Any, Any, tuple[SourceRef, ...]]] | None = None
    """The sources a request concerns; all must be allowed (R4). It waits for nothing but
    `RoutedRequest.fetch`, between whose calls it may run in another thread. Raises `Unresolved`,
    and
    `Malformed` where the body makes no sense."""
    hint: Callable[[Any, RoutedRequest], SourceRef | None] | None = None
    """The source as far as it can be told without asking anyone, for the record of a denied
    write."""
    inspected: Parse | None = None
    """How the body is read, where it is judged, and forwarded only if it can be (R3, R6)."""
    refined: Callable[[Any, RoutedRequest], "ProtocolRoute | None"] | None = None
    """The row in this one's place, by the body, where the path alone does not tell; None where
    nobody knows it. Raises `Malformed` and `Unresolved`."""
    visible: (
        Callable[[Any, RoutedRequest, Permits], Coroutine[Any, Any, tuple[SourceRef, ...]]] | None
    ) = None
    """As `places`, where it takes a look-up that must not be made of what may not be seen. Raises
    `Missing` too."""
    instead: Callable[[Any, RoutedRequest], str] | None = None
    """The target of a GET that is forwarded in place of the request, without its body: for a
    request that may write, where it comes to a read."""
    shows: Callable[[Any, RoutedRequest], Callable[[bytes], SourceRef | None]] | None = None
    """Called before the request is forwarded; what it returns reads a successful answer, and says
    which source it is of, None where that can't be told."""
    composed: (
        Callable[[Any, RoutedRequest, Permits], Coroutine[Any, Any, FetchedResponse]] | None
    ) = None
    """Puts the answer together of what `Permits` lets be seen; waits as `places` does. Raises
    `Malformed`."""
    prepared: Callable[[Any, RoutedRequest, tuple[SourceRef, ...], Visibility], Prepared] | None = (
        None
    )
    """What becomes of the allowed request and its answer: the condition that leaves out what may
    not be seen, and the proof that the answer keeps to it; tokens to remember; lists to filter."""
    sieved: bool = False
    """Whether `prepared` keeps to `Visibility.levels`. A retrieval that does not is judged at
    `critical`
    where the source marks its documents."""
    at_once: Callable[[Any, RoutedRequest], tuple[SourceRef, ...] | None] | None = None
    """As `places`, where that can be told without waiting; else None."""
    before: Callable[[Any], None] | None = None
    """Called before a request is forwarded that may change what names mean."""
    after: Callable[[Any], None] | None = None
    """Called once it is through, whatever came of it."""


class RouteMatch(NamedTuple):
    route: ProtocolRoute
    values: tuple[str, ...]


class SourceProtocol:
    """One data source's protocol, with what it knows of this data source."""

    signs: ClassVar[bool] = False
    """Whether `signed` is to be asked, and the agent's own credentials are dropped."""
    by_host: ClassVar[bool] = False
    """Whether the request's `Host` says part of what is asked for, so that `located` is asked."""

    def located(self, _host: str, target: Target) -> Target:
        """`target` with what `Host` says written into its path: the form that is matched, judged
        and forwarded (S3's `<bucket>.<domain>`). Raises `Malformed`."""
        return target

    def match(self, method: str, target: Target) -> RouteMatch | None:
        """The first route that covers the request; None where nobody knows it (R4)."""
        raise NotImplementedError

    def refusal(
        self, _asked: RoutedRequest | None, _refusal: DenialResponse
    ) -> FetchedResponse | None:
        """A denial in the protocol's own words; None for the usual one. What was asked is None
        where the request could not be read that far."""
        return None

    async def signed(self, outgoing: Outgoing) -> Fields:
        """The fields to send, with the sidecar's own credentials in them (R9). Raises
        `UpstreamFailed` where there are none."""
        raise NotImplementedError


class RouteTable:
    """Routes by method and number of segments. Rows stand in order: the first that matches wins,
    so a literal segment stands above a `{name}` in the same place."""

    def __init__(self, routes: Iterable[ProtocolRoute]) -> None:
        self.routes = tuple(routes)
        self._rows: dict[tuple[str, int], list[tuple[ProtocolRoute, tuple[str | None, ...]]]] = {}
        for route in self.routes:
            parts = tuple(
                None if part.startswith("{") else part for part in route.pattern[1:].split("/")
            )
            for method in route.methods.split():
                self._rows.setdefault((method, len(parts)), []).append((route, parts))

    def match(self, method: str, target: Target) -> RouteMatch | None:
        segments = target.segments
        for route, parts in self._rows.get((method, len(segments)), ()):
            values = []
            for part, segment in zip(parts, segments, strict=True):
                if part is None and segment:
                    values.append(segment)
                elif part != segment:
                    break
            else:
                return RouteMatch(route, tuple(values))
        return None
