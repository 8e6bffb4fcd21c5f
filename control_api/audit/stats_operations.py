"""Counts a tenant's decisions by source type, role, source and time (`CONTRACT.md`, Statistics)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.audit.bundle import Audit
from control_api.auth import Caller
from control_api.edge.requests import RequestModel
from control_api.store.counters import queries as counters
from control_api.store.counters.counters import MINUTE, Dimension
from policies.ground.canonical import rfc3339


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

    begin: str
    allowed: int
    denied: int

    example: ClassVar[dict[str, Any]] = {
        "begin": "2026-01-31T12:00:00.000000Z",
        "allowed": 14,
        "denied": 3,
    }


@dataclass(frozen=True, slots=True)
class OverTime:
    """Decisions over a window of time: of each span of `span_minutes`, oldest first; the last one
    has not ended yet."""

    span_minutes: int
    spans: list[SpanCount]

    example: ClassVar[dict[str, Any]] = {"span_minutes": 1, "spans": [SpanCount.example]}


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of the audit trail (`CONTRACT.md`, Statistics); `deny_rate` is from 0 to 1."""

    total: int
    allowed: int
    denied: int
    deny_rate: float
    by_source_type: dict[str, TypeCount]
    top_roles: list[RoleCount]
    top_sources: list[SourceCount]
    over_time: OverTime | None

    example: ClassVar[dict[str, Any]] = {
        **TypeCount.example,
        "deny_rate": 0.176,
        "by_source_type": {"api": TypeCount.example},
        "top_roles": [RoleCount.example],
        "top_sources": [SourceCount.example],
        "over_time": None,
    }


def deny_rate(allowed: int, denied: int) -> float:
    """Return the share of decisions that were `DENY`, from 0 to 1; 0 if there were none."""
    return denied / (allowed + denied) if denied else 0.0


TOP = 10
"""The most roles, and the most sources, that a response lists: those with the most events."""


WINDOWS = {"hour": (60, 1), "day": (96, 15), "week": (84, 120)}
"""So many spans of so many minutes: no more spans than a chart can show."""


class StatsRequest(RequestModel):
    """By default, without the counts over time."""

    window: Literal["hour", "day", "week"] | None = Field(
        None,
        description="Count decisions over time too: the last hour by the minute, the last day by "
        "15 minutes, or the last week by two hours.",
    )


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
