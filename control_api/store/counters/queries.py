"""Queries over the counts of decisions, which `control_api.store.counters.counters` maintains.
Knows nothing of HTTP."""

from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.dimensions import BUCKETS, SEPARATOR, Dimension
from control_api.store.schema.tables import first_accesses, tallies


class CountedValue(NamedTuple):
    """The decisions counted for one value; `last_ts` in microseconds since 1970 UTC."""

    value: str
    allowed: int
    denied: int
    last_ts: int

    @property
    def total(self) -> int:
        return self.allowed + self.denied


NO_DECISIONS = CountedValue("", 0, 0, 0)


async def all_of(
    connection: AsyncConnection, tenant_id: str, dimension: Dimension
) -> list[CountedValue]:
    """Every value of an all-time dimension, in order of value."""
    found = await connection.execute(
        select(tallies.c.value, tallies.c.allowed, tallies.c.denied, tallies.c.last_ts)
        .where(tallies.c.tenant_id == tenant_id, tallies.c.facet == int(dimension))
        .order_by(tallies.c.value)
    )
    return [CountedValue(*row) for row in found]


async def top_of(
    connection: AsyncConnection, tenant_id: str, dimension: Dimension, limit: int
) -> list[CountedValue]:
    """The values with the most decisions; equal ones in order of value."""
    total = tallies.c.allowed + tallies.c.denied
    found = await connection.execute(
        select(tallies.c.value, tallies.c.allowed, tallies.c.denied, tallies.c.last_ts)
        .where(tallies.c.tenant_id == tenant_id, tallies.c.facet == int(dimension))
        .order_by(total.desc(), tallies.c.value)
        .limit(limit)
    )
    return [CountedValue(*row) for row in found]


async def one_of(
    connection: AsyncConnection, tenant_id: str, dimension: Dimension, value: str
) -> CountedValue:
    """One value of an all-time dimension."""
    found = await connection.execute(
        select(tallies.c.value, tallies.c.allowed, tallies.c.denied, tallies.c.last_ts).where(
            tallies.c.tenant_id == tenant_id,
            tallies.c.facet == int(dimension),
            tallies.c.value == value,
        )
    )
    row = found.one_or_none()
    return NO_DECISIONS if row is None else CountedValue(*row)


async def by_agent(
    connection: AsyncConnection, tenant_id: str, since: int, agent_id: str | None = None
) -> list[CountedValue]:
    """The decisions of each agent, or of one, since `since` (microseconds), in order of id."""
    query = (
        select(
            tallies.c.value,
            func.sum(tallies.c.allowed),
            func.sum(tallies.c.denied),
            func.max(tallies.c.last_ts),
        )
        .where(
            tallies.c.tenant_id == tenant_id,
            tallies.c.facet == int(Dimension.agent),
            tallies.c.bucket >= since // BUCKETS[Dimension.agent],
        )
        .group_by(tallies.c.value)
        .order_by(tallies.c.value)
    )
    if agent_id is not None:
        query = query.where(tallies.c.value == agent_id)
    rows = await connection.execute(query)
    return [
        CountedValue(value, int(allowed), int(denied), last)
        for value, allowed, denied, last in rows
    ]


async def sources_of(
    connection: AsyncConnection, tenant_id: str, agent_id: str, since: int, limit: int
) -> list[CountedValue]:
    """The sources that an agent requested since `since`, most requested first. Counts whole
    days."""
    prefix = agent_id + SEPARATOR
    total = func.sum(tallies.c.allowed + tallies.c.denied)
    rows = await connection.execute(
        select(
            tallies.c.value,
            func.sum(tallies.c.allowed),
            func.sum(tallies.c.denied),
            func.max(tallies.c.last_ts),
        )
        .where(
            tallies.c.tenant_id == tenant_id,
            tallies.c.facet == int(Dimension.agent_source),
            # A range scan instead of LIKE: the id may contain wildcard characters.
            tallies.c.value >= prefix,
            tallies.c.value < agent_id + chr(ord(SEPARATOR) + 1),
            tallies.c.bucket >= since // BUCKETS[Dimension.agent_source],
        )
        .group_by(tallies.c.value)
        .order_by(total.desc(), tallies.c.value)
        .limit(limit)
    )
    return [
        CountedValue(value[len(prefix) :], int(allowed), int(denied), last)
        for value, allowed, denied, last in rows
    ]


async def window(
    connection: AsyncConnection, tenant_id: str, dimension: Dimension, since: int, until: int
) -> CountedValue:
    """The sum of a dimension's buckets that begin at `since` or later and before `until`."""
    width = BUCKETS[dimension]
    found = await connection.execute(
        select(
            func.coalesce(func.sum(tallies.c.allowed), 0),
            func.coalesce(func.sum(tallies.c.denied), 0),
            func.coalesce(func.max(tallies.c.last_ts), 0),
        ).where(
            tallies.c.tenant_id == tenant_id,
            tallies.c.facet == int(dimension),
            tallies.c.value == "",
            tallies.c.bucket >= -(-since // width),
            tallies.c.bucket < -(-until // width),
        )
    )
    allowed, denied, last = found.one()
    return CountedValue("", int(allowed), int(denied), last)


async def new_accesses(
    connection: AsyncConnection, tenant_id: str, since: int, until: int, limit: int
) -> tuple[int, list[tuple[str, str]]]:
    """How many pairs of role and source were first allowed in that time, and up to `limit` of
    them, earliest first."""
    within = (
        first_accesses.c.tenant_id == tenant_id,
        first_accesses.c.first_ts >= since,
        first_accesses.c.first_ts < until,
    )
    many = (await connection.execute(select(func.count()).where(*within))).scalar_one()
    rows = await connection.execute(
        select(first_accesses.c.agent_role, first_accesses.c.source_id)
        .where(*within)
        .order_by(first_accesses.c.first_ts)
        .limit(limit)
    )
    return many, [(role, source) for role, source in rows]
