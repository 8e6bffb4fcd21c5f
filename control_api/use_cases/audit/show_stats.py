"""Counts a tenant's decisions by source type, role and source."""

from typing import Literal, NamedTuple

from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import deny_rate
from control_api.requests.base import RequestModel
from control_api.responses.counts import (
    OverTime,
    RoleCount,
    SourceCount,
    SpanCount,
    Stats,
    TypeCount,
)
from control_api.store.counters import queries as counters
from control_api.store.counters.dimensions import MINUTE, Dimension
from policies.ground.canonical import rfc3339

TOP = 10
"""The most roles, and the most sources, that a response lists: those with the most events."""


class Window(NamedTuple):
    """So many spans of so many minutes."""

    spans: int
    minutes: int


# No more spans than a chart can show.
WINDOWS = {"hour": Window(60, 1), "day": Window(96, 15), "week": Window(84, 120)}


class StatsRequest(RequestModel):
    """By default, without the counts over time."""

    window: Literal["hour", "day", "week"] | None = Field(
        None,
        description="Count decisions over time too: the last hour by the minute, the last day by "
        "15 minutes, or the last week by two hours.",
    )


async def show_stats(app: AppContext, caller: Caller, request: StatsRequest) -> Stats:
    """Count the tenant's audit events that retention has kept."""
    tenant_id = caller.tenant_id
    # These counters grow in step with the log, so the response takes as long after ten events as
    # after a billion.
    async with app.store.reading(tenant_id) as connection:
        types = await counters.all_of(connection, tenant_id, Dimension.source_type)
        roles = await counters.top_of(connection, tenant_id, Dimension.agent_role, TOP)
        sources = await counters.top_of(connection, tenant_id, Dimension.source_id, TOP)
        over_time = None
        if request.window is not None:
            now, window = app.clock.now(), WINDOWS[request.window]
            over_time = await _over_time(connection, tenant_id, now, window)
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
    connection: AsyncConnection, tenant_id: str, now: int, window: Window
) -> OverTime:
    until = now // (window.minutes * MINUTE) + 1
    first = until - window.spans
    found = await counters.by_spans(connection, tenant_id, window.minutes, first, until)
    spans = [
        SpanCount(rfc3339(number * window.minutes * MINUTE), *found.get(number, (0, 0)))
        for number in range(first, until)
    ]
    return OverTime(window.minutes, spans)
