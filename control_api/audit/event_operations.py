"""Lists, shows and follows audit events, and shows a session's trail and an event's lineage.

Counts a tenant's decisions by source type, role, source and time (`CONTRACT.md`, Statistics).
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.audit.bundle import Audit
from control_api.audit.event_models import (
    AuditEvent,
    ExplainedEvent,
    Lineage,
    LineageAction,
    event_page,
    explanation_shown,
)
from control_api.audit.event_requests import EventValues
from control_api.auth import Caller
from control_api.current_request import ends_with_client
from control_api.edge.answers import Page, PagedPart, Stream
from control_api.edge.field_descriptions import says
from control_api.edge.requests import Identifier, ListRequest, LogSize, RequestModel, Time
from control_api.log import read
from control_api.log.search import EventFilters
from control_api.log.tail_reading import Part
from control_api.store.counters import queries as counters
from control_api.store.counters.counters import MINUTE, Dimension
from control_api.store.queries import policy_rows
from control_api.store.store import Store
from policies.explain import Unexplained
from policies.ground.canonical import micros, rfc3339
from policies.nearest_miss import named_by
from policies.sets.role import compile_clause


@dataclass(frozen=True, slots=True)
class TypeCount:
    """Events of one source type."""

    total: int
    allowed: int
    denied: int

    example: ClassVar[dict[str, Any]] = {"total": 17, "allowed": 14, "denied": 3}


@dataclass(frozen=True, slots=True)
class RoleCount:
    """Events of one role."""

    agent_role: str
    total: int
    denied: int

    example: ClassVar[dict[str, Any]] = {"agent_role": "loan_underwriter", "total": 17, "denied": 3}


@dataclass(frozen=True, slots=True)
class SourceCount:
    """Events of one source."""

    source_id: str
    total: int
    denied: int

    example: ClassVar[dict[str, Any]] = {"source_id": "contracts", "total": 17, "denied": 3}


@dataclass(frozen=True, slots=True)
class SpanCount:
    """Decisions made from `begin` on, for as long as a span lasts, by their own time."""

    begin: Annotated[str, says("When the span began (RFC 3339, UTC).")]
    allowed: int
    denied: int

    example: ClassVar[dict[str, Any]] = {
        "begin": "2026-01-31T12:00:00.000000Z",
        "allowed": 14,
        "denied": 3,
    }


@dataclass(frozen=True, slots=True)
class OverTime:
    """The numbers of allowed and denied decisions in each span of a window of time, oldest first. A
    span lasts `span_minutes`; the last one has not ended yet."""

    span_minutes: Annotated[int, says("How many minutes each span lasts.")]
    spans: Annotated[
        list[SpanCount],
        says("The decisions of each span, oldest first. The last one has not ended yet."),
    ]

    example: ClassVar[dict[str, Any]] = {"span_minutes": 1, "spans": [SpanCount.example]}


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of the audit trail (`CONTRACT.md`, Statistics); `deny_rate` is from 0 to 1."""

    total: int
    allowed: int
    denied: int
    deny_rate: float
    by_source_type: Annotated[dict[str, TypeCount], says("Counts for each source type.")]
    top_roles: Annotated[list[RoleCount], says("The roles with the most events.")]
    top_sources: Annotated[list[SourceCount], says("The sources with the most events.")]
    over_time: Annotated[
        OverTime | None, says("Decisions over the `window` that was asked for. `null` without one.")
    ]

    example: ClassVar[dict[str, Any]] = {
        **TypeCount.example,
        "deny_rate": 0.176,
        "by_source_type": {"api": TypeCount.example},
        "top_roles": [RoleCount.example],
        "top_sources": [SourceCount.example],
        "over_time": None,
    }


def deny_rate(allowed: int, denied: int) -> float:
    """Return the share of `DENY` among the decisions, from 0 to 1; 0 if there were no decisions."""
    return denied / (allowed + denied) if denied else 0.0


TOP = 10
"""The most roles, and the most sources, that a response lists: those with the most events."""


WINDOWS = {"hour": (60, 1), "day": (96, 15), "week": (84, 120)}
"""For each window, the number of time spans that it is divided into, and the minutes of each. There
are no more spans than a chart can show."""


class StatsRequest(RequestModel):
    """The counts to show: those of all time, and with `window` also those over time."""

    window: Annotated[
        Literal["hour", "day", "week"] | None,
        says(
            "Count decisions over time too: the last hour by the minute, the last day by "
            "15 minutes, or the last week by two hours."
        ),
    ] = None


async def show_stats(audit: Audit, caller: Caller, request: StatsRequest) -> Stats:
    """Count the tenant's audit events that retention has kept."""
    tenant_id = caller.tenant_id
    # These counters grow in step with the log, so the response takes as long after ten events as
    # after a billion.
    async with audit.store.reading(tenant_id) as connection:
        types = await counters.all_of(connection, tenant_id, Dimension.source_type)
        roles = await counters.top_of(connection, tenant_id, Dimension.agent_role, TOP)
        sources = await counters.top_of(connection, tenant_id, Dimension.source_id, TOP)
        over_time = None
        if request.window is not None:
            now, window = audit.clock.now(), WINDOWS[request.window]
            over_time = await _over_time(connection, tenant_id, now, *window)
    # Every event has exactly one source type, so the counts by type add up to all events.
    allowed, denied = sum(each.allowed for each in types), sum(each.denied for each in types)
    return Stats(
        total=allowed + denied,
        allowed=allowed,
        denied=denied,
        deny_rate=deny_rate(allowed, denied),
        by_source_type={
            each.value: TypeCount(each.total, each.allowed, each.denied) for each in types
        },
        top_roles=[RoleCount(each.value, each.total, each.denied) for each in roles],
        top_sources=[SourceCount(each.value, each.total, each.denied) for each in sources],
        over_time=over_time,
    )


async def _over_time(
    connection: AsyncConnection, tenant_id: str, now: int, spans: int, minutes: int
) -> OverTime:
    until = now // (minutes * MINUTE) + 1
    first = until - spans
    found = await counters.by_spans(connection, tenant_id, minutes, first, until)
    counts = [
        SpanCount(rfc3339(number * minutes * MINUTE), *found.get(number, (0, 0)))
        for number in range(first, until)
    ]
    return OverTime(minutes, counts)


class SessionTrailRequest(ListRequest):
    """A request for the audit events of one session, which the path names by its id. `limit` and
    `cursor` select the page of events."""

    session_id: Identifier


async def show_session_trail(
    audit: Audit, caller: Caller, request: SessionTrailRequest
) -> Page[AuditEvent]:
    """Show a session's audit events in order; an unknown session is not found."""
    seq = request.seq()
    after = -1 if seq is None else seq
    trail = await read.session_trail(
        audit.store, caller.tenant_id, request.session_id, request.limit, after_seq=after
    )
    return event_page(trail)


class LineageRequest(ListRequest):
    """A request for the lineage actions on one audit event, which the path names by its id. `limit`
    and `cursor` select the page of actions."""

    event_id: Identifier


async def show_lineage(audit: Audit, caller: Caller, request: LineageRequest) -> PagedPart[Lineage]:
    """Show an audit event and the actions recorded on it, in order."""
    seq = request.seq()  # None for the first page, which begins at entry 0
    after = -1 if seq is None else seq
    event, actions = await read.lineage(
        audit.store, caller.tenant_id, request.event_id, request.limit, after_seq=after
    )
    shown = Lineage(AuditEvent(**event), [LineageAction(**each) for each in actions.events])
    return PagedPart(shown, None if actions.next is None else (actions.next,))


def event_filters(values: EventValues, since: str | None, until: str | None) -> EventFilters:
    """Make the filters that select events. An event's time must be at or after `since` and before
    `until`, both in the form that the log uses."""
    return EventFilters(
        **values.model_dump(include=set(EventValues.model_fields)),
        since=None if since is None else micros(since),
        until=None if until is None else micros(until),
    )


class EventsRequest(ListRequest, EventValues):
    """Every filter is an exact match; an event must match all that are given. `from` is inclusive,
    `to` exclusive."""

    since: Time | None = Field(None, alias="from")
    until: Time | None = Field(None, alias="to")


@ends_with_client
async def list_events(audit: Audit, caller: Caller, request: EventsRequest) -> Page[AuditEvent]:
    """List audit events, newest first."""
    filters = event_filters(request, request.since, request.until)
    trail = await read.events(audit.store, caller.tenant_id, filters, request.limit, request.seq())
    return event_page(trail)


CHECK_SECONDS = 5.0
"""The seconds between two checks that the caller of a stream may still follow it. Each check also
sends a sign that the stream is alive."""
RETRY = b"retry: 2000\n"
"""The line of a stream that tells a browser after how many milliseconds to connect again."""


class FollowRequest(EventValues, RequestModel):
    """The filters of `list_events`. `after` is the first entry to show, such as the last `id` that
    the stream gave; from now on by default."""

    since: Time | None = Field(None, alias="from")
    until: Time | None = Field(None, alias="to")
    after: LogSize | None = None


async def follow_events(audit: Audit, caller: Caller, request: FollowRequest) -> Stream:
    """Follow audit events while they are recorded.

    Each message is `{"events": [...], "left_out": n, "unread": m}`: events in the log's order, how
    many others match, and how many entries of the log were passed over without a look. Its `id` is
    the entry to go on from.
    """
    audit.tails.require_room(caller.by)
    filters = event_filters(request, request.since, request.until)
    return Stream("text/event-stream", _messages(audit, caller, filters, request.after))


async def _messages(
    audit: Audit, caller: Caller, filters: EventFilters, after: int | None
) -> AsyncGenerator[bytes, None]:
    monotonic = audit.clock.monotonic
    checked = monotonic()
    async with audit.tails.follow(caller.tenant_id, caller.by, filters, after) as tail:
        yield RETRY + _message(tail.missed)
        while not tail.ended:
            part = await tail.next(max(0.0, checked + CHECK_SECONDS - monotonic()))
            # A revoked session must not watch on for as long as its stream lasts.
            if monotonic() - checked >= CHECK_SECONDS:
                checked = monotonic()
                if not await caller.live(audit.clock.now()):
                    yield b"event: ended\ndata: this session is not valid any longer\n\n"
                    return
            # Without data it moves the `id` on, and finds out whether the client is still there.
            yield b"id: %d\n\n" % tail.position if part is None else _message(part)


def _message(part: Part) -> bytes:
    return b'id: %d\ndata: {"events":[%b],"left_out":%d,"unread":%d}\n\n' % (
        part.until,
        b",".join(each.json for each in part.events),
        part.left_out,
        part.unread,
    )


MAX_POLICIES = 100


async def suggest_of_others(store: Store, tenant_id: str, source_id: str) -> str | None:
    """Return a suggestion from the tenant's newest policies whose text contains the last part of
    `source_id`, or None if none of them names the source."""
    last = source_id.rpartition("/")[2]
    if not last:
        return None
    async with store.reading(tenant_id) as connection:
        wanted = policy_rows.Filter(text=last)
        found = await policy_rows.page(connection, tenant_id, wanted, None, MAX_POLICIES)
    return named_by(source_id, tuple(compile_clause(each.published()) for each in found))


class EventRequest(RequestModel):
    """A request about one audit event, which the path names by its id."""

    event_id: Identifier


async def show_event(audit: Audit, caller: Caller, request: EventRequest) -> ExplainedEvent:
    """Show one audit event and why it was decided so.

    The explanation follows from the facts and policies that the event's own entry cites, not from
    those of today. If it can't be made, `unexplained` says why. `suggestion` helps those who write
    policies: an agent is never shown it.
    """
    found = await read.explained_event(audit.store, caller.tenant_id, request.event_id)
    event, explanation = AuditEvent(**found.event), found.explanation
    if isinstance(explanation, Unexplained):
        return ExplainedEvent(event, None, explanation.value, None)
    suggestion = explanation["suggestion"]
    if event.check == "policy_exists":
        # Its role has no policy, so the entry cites none: another role's may name the source.
        suggestion = await suggest_of_others(audit.store, caller.tenant_id, event.source_id)
    return ExplainedEvent(event, explanation_shown(explanation), None, suggestion)
