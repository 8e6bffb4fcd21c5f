"""The types that the proxy and a protocol exchange: the request, the sources it reads, what the
agent may see, and what happens to the response (`protocols/RULES.md`, R1 to R7).

Pure, except for `RoutedRequest.fetch`. Knows no routes.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from policies.definitions.model import Sensitivity
from policies.ground.errors import UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.request_target import Target
from sidecar.protocols.budget import Budget

Fields = list[tuple[bytes, bytes]]
FieldIterable = Iterable[tuple[bytes, bytes]]


class SourceRef(NamedTuple):
    """A source by the id that policies use, and its configured sensitivity."""

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


class RoutedRequest(NamedTuple):
    """A request whose route is known."""

    method: str
    target: Target
    path_params: tuple[str, ...]
    """The values of the pattern's `{names}`, decoded, in order."""
    body: Any
    """The return value of the route's `parse_body`; None if the route has none."""
    fetch: Callable[[str], Awaitable[FetchedResponse]]
    """GETs a target from the data source. Raises `UpstreamFailed`, and its subclass
    `ResponseTooLarge`."""
    # `fetch` sends the agent's own header fields, so that a look-up shows no more than the agent's
    # credentials allow.
    fields: FieldIterable
    """The header fields as they are forwarded, in order."""
    attribution: Attribution
    """The user and session that the request states. Used to attribute, never to authorize."""
    budget: Budget
    """The remaining budget of the request. A protocol charges it before it does the work."""


# Judges by the policy set in force at that moment, so its answer may change from one message of a
# stream to the next.
Permits = Callable[[SourceRef], bool]


class Visibility(NamedTuple):
    """The parts of a response that the agent may see."""

    permits: Permits
    """Returns whether the agent may see another source. Writes no record."""
    field: str
    """The path, with dots, to a document's own level in its metadata. Empty unless the source
    labels its documents."""
    levels: tuple[Sensitivity, ...] | None
    """The levels that the agent may see; None for all of them. A document without a level, or
    with an unknown one, counts as `critical`."""


class ForwardedPart(NamedTuple):
    """The part of a response that reaches the agent, and how many documents were withheld."""

    body: bytes
    withheld: int = 0


InsertEvent = Callable[[bytes], bool]
"""Writes whole events of the sidecar's own to the agent, between two of the data source's. False if
the agent doesn't take what was written before."""


class ForwardPlan(NamedTuple):
    """The changes to an allowed request and its response. Both filters raise `UpstreamFailed` for a
    response they can't judge."""

    # Wherever nothing has to be added, the body is forwarded as received, byte for byte, so that
    # the data source gets exactly what was judged.
    body: bytes | None = None
    """Replaces the request body; None forwards the body as received."""
    filter_response: Callable[[FetchedResponse], ForwardedPart] | None = None
    """Makes the sidecar request the response without content encoding and read it whole; the agent
    gets what this returns. A response without a success status passes unchanged."""
    filter_event: Callable[[bytes], ForwardedPart | None] | None = None
    """Filters a `text/event-stream` response event by event, instead of reading it whole. It gets
    the `data` of each event and returns its replacement; None drops the event."""
    on_head: Callable[[int, Fields], None] | None = None
    """Gets the status and header fields before any of the response is passed on: for a streamed
    response with a token in its header."""
    on_events: Callable[[InsertEvent], Callable[[], None]] | None = None
    """Called when a filtered event stream begins. Returns a function that is called at its end."""
    forward_fields: Callable[[FieldIterable], Fields] | None = None
    """Chooses the header fields that are forwarded; None forwards all."""


FORWARD_UNCHANGED = ForwardPlan()


class OutgoingRequest(NamedTuple):
    """A request about to be sent, for a protocol that signs it."""

    method: str
    host: str
    target: str
    """The target, which begins with `/`."""
    fields: Fields
    body: bytes | None
    """The body; None while it is still arriving."""


def with_event(reason: str, event_id: str) -> str:
    """The reason with the event's id at its end."""
    # In the text, because a client's exception seldom shows header fields or other members.
    return f"{reason} (event {event_id})"


class RefusalResponse(NamedTuple):
    """A denial or an error of the sidecar, which the protocol may render in its own format."""

    status: int
    message: str
    """The reason, with the event's id if there was a decision."""
    decision: dict[str, str]
    """The four fields of an evaluation. Empty if nothing was decided, or if the request failed
    after its decision."""

    @classmethod
    def of(cls, status: int, reason: str, decision: dict[str, str]) -> "RefusalResponse":
        """The refusal for this reason. If it was decided, its message ends with the event's id."""
        message = with_event(reason, decision["event_id"]) if decision else reason
        return cls(status, message, decision)
