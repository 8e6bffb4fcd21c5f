"""Follows a tenant's audit events as they are recorded, as Server-Sent Events."""

from collections.abc import AsyncGenerator

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.event_filters import event_filters
from control_api.log.follow.reading import Part
from control_api.log.search import EventFilters
from control_api.requests.base import LogSize, RequestModel
from control_api.requests.event_filters import EventValues
from control_api.requests.time import Time
from control_api.responses.stream import Stream

CHECK_SECONDS = 5.0
"""How often a stream that is open checks whether its caller still may, and says that it is
alive."""
RETRY = b"retry: 2000\n"
"""After how many milliseconds a browser connects again."""


class FollowRequest(EventValues, RequestModel):
    """The filters of `list_events`. `after` is the first entry to show, such as the last `id` that
    the stream gave; from now on by default."""

    since: Time | None = Field(None, alias="from")
    until: Time | None = Field(None, alias="to")
    after: LogSize | None = None


async def follow_events(app: AppContext, caller: Caller, request: FollowRequest) -> Stream:
    """Follow audit events while they are recorded.

    Each message is `{"events": [...], "left_out": n, "unread": m}`: events in the log's order, how
    many others match, and how many entries of the log were passed over without a look. Its `id` is
    the entry to go on from.
    """
    app.tails.require_room(caller.by)
    filters = event_filters(request, request.since, request.until)
    return Stream("text/event-stream", _messages(app, caller, filters, request.after))


async def _messages(
    app: AppContext, caller: Caller, filters: EventFilters, after: int | None
) -> AsyncGenerator[bytes, None]:
    monotonic = app.clock.monotonic
    checked = monotonic()
    async with app.tails.follow(caller.tenant_id, caller.by, filters, after) as tail:
        yield RETRY + _message(tail.missed)
        while not tail.ended:
            part = await tail.next(max(0.0, checked + CHECK_SECONDS - monotonic()))
            # A revoked session must not watch on for as long as its stream lasts.
            if monotonic() - checked >= CHECK_SECONDS:
                checked = monotonic()
                if not await caller.live(app.clock.now()):
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
