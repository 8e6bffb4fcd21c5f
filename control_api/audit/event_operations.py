"""Lists, shows and follows audit events, and shows a session's trail and an event's lineage."""

from collections.abc import AsyncGenerator

from pydantic import Field

from control_api.audit.bundle import Audit
from control_api.audit.event_models import (
    AuditEvent,
    EventValues,
    ExplainedEvent,
    Lineage,
    LineageAction,
    event_page,
    explanation_shown,
)
from control_api.auth import Caller
from control_api.current_request import ends_with_client
from control_api.edge.answers import Page, PagedPart, Stream
from control_api.edge.requests import Identifier, ListRequest, LogSize, RequestModel, Time
from control_api.log import read
from control_api.log.search import EventFilters
from control_api.log.tail_reading import Part
from control_api.store.queries import policy_rows
from control_api.store.store import Store
from policies.explain import Unexplained
from policies.ground.canonical import micros
from policies.nearest_miss import named_by
from policies.sets.role import compile_clause


class SessionTrailRequest(ListRequest):
    """`limit` and `cursor` select the page of events."""

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
    """`limit` and `cursor` select the page of actions."""

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
    """Build the filters that select events. An event's time must be at or after `since` and before
    `until`, both in the log's form."""
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
"""Seconds between two checks that a stream's caller may still follow; each also says that the
stream is alive."""
RETRY = b"retry: 2000\n"
"""After how many milliseconds a browser connects again."""


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
    """Looks through the tenant's newest policies that hold the last part of `source_id`."""
    last = source_id.rpartition("/")[2]
    if not last:
        return None
    async with store.reading(tenant_id) as connection:
        wanted = policy_rows.Filter(text=last)
        found = await policy_rows.page(connection, tenant_id, wanted, None, MAX_POLICIES)
    return named_by(source_id, tuple(compile_clause(each.published()) for each in found))


class EventRequest(RequestModel):
    """Names one event."""

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
