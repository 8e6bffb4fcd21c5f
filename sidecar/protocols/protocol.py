"""What a protocol is to the proxy: a table of routes, each with its class and a function from the
request to the set of sources it concerns (data-sources.md R1 to R7).

Pure but for `Asked.fetch`, through which a protocol may look up a name. A protocol judges nothing:
it says what is asked for.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from policies.ground.errors import UpstreamFailed
from sidecar.proxy.target import Target


class Class(Enum):
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


CLOSED = frozenset((Class.BULK, Class.ADMIN, Class.DENY))


class Place(NamedTuple):
    """A source as policies know it, and its configured level."""

    source_id: str
    sensitivity: str


class Unresolved(Exception):
    """What a request asks for can't be told: it is denied (R4). The message is the reason."""


class AnswerTooLarge(UpstreamFailed):
    """the data source's answer is larger than what is read whole"""


class Fetched(NamedTuple):
    """An answer to a look-up of the sidecar's own, made in the agent's name."""

    status: int
    reason: str
    fields: list[tuple[bytes, bytes]]
    body: bytes


class Asked(NamedTuple):
    """A request whose route is known. `values` are the pattern's `{names}`, decoded, in order;
    `body` is the parsed body of a route that is inspected, else None."""

    method: str
    target: Target
    values: tuple[str, ...]
    body: dict[str, Any] | None
    fetch: Callable[[str], Awaitable[Fetched]]
    """GET a target of the data source with the agent's own header fields. Raises `UpstreamFailed`,
    `AnswerTooLarge` among them."""


Permits = Callable[[Place], bool]


@dataclass(frozen=True, slots=True)
class Route:
    """One row of a protocol's table. Its functions are the protocol's own and take it first."""

    methods: str
    """The methods it covers, separated by a space."""
    pattern: str
    """The path, `{name}` for one segment."""
    class_: Class
    places: Callable[[Any, Asked], Awaitable[tuple[Place, ...]]] | None = None
    """The sources a request concerns; all must be allowed (R4). Raises `Unresolved`."""
    hint: Callable[[Any, Asked], Place | None] | None = None
    """The source as far as it can be told without asking anyone, for the record of a denied
    write."""
    inspected: bool = False
    """Whether the body is read and judged, and forwarded only if it can be (R3, R6)."""
    shows: Callable[[Any, Asked], Callable[[bytes], Place | None]] | None = None
    """Called before the request is forwarded; what it returns reads a successful answer, and says
    which source it is of, None where that can't be told."""
    composed: Callable[[Any, Asked, Permits], Awaitable[Fetched]] | None = None
    """Puts the answer together of what `Permits` lets be seen. Raises `Malformed`."""
    before: Callable[[Any], None] | None = None
    """Called before a request is forwarded that may change what names mean."""
    after: Callable[[Any], None] | None = None
    """Called once it is through, whatever came of it."""


class Match(NamedTuple):
    route: Route
    values: tuple[str, ...]


class Dialect(Protocol):
    """One data source's protocol, with what it knows of this data source."""

    def match(self, method: str, target: Target) -> Match | None:
        """The first route that covers the request; None where nobody knows it (R4)."""
        ...


class Table:
    """Routes by method and number of segments. Rows stand in order: the first that matches wins,
    so a literal segment stands above a `{name}` in the same place."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._rows: dict[tuple[str, int], list[tuple[Route, tuple[str | None, ...]]]] = {}
        for route in self.routes:
            parts = tuple(
                None if part.startswith("{") else part for part in route.pattern[1:].split("/")
            )
            for method in route.methods.split():
                self._rows.setdefault((method, len(parts)), []).append((route, parts))

    def match(self, method: str, target: Target) -> Match | None:
        segments = target.segments
        for route, parts in self._rows.get((method, len(segments)), ()):
            values = []
            for part, segment in zip(parts, segments, strict=True):
                if part is None and segment:
                    values.append(segment)
                elif part != segment:
                    break
            else:
                return Match(route, tuple(values))
        return None
