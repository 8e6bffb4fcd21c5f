"""Queries over the counts of decisions, which `control_api.store.counters.counters` maintains."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import Integer, Select, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.counters import BUCKETS, SEPARATOR, Dimension
from control_api.store.schema.log import first_accesses, tallies
from control_api.store.schema.statements import of_tenant


class CountedValue(NamedTuple):
    """The numbers of allowed and denied decisions for one value of a dimension. `last_ts` is the
    time of the last one, in microseconds since 1970 UTC."""

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
    """Return the counts for every value of an all-time dimension, in order of value."""
    query = _of(_COUNTS, tenant_id, dimension).order_by(tallies.c.value)
    return [CountedValue(*row) for row in await connection.execute(query)]


async def top_of(
    connection: AsyncConnection, tenant_id: str, dimension: Dimension, limit: int
) -> list[CountedValue]:
    """Return the counts for the values of an all-time dimension that have the most decisions; ties
    in order of value."""
    total = tallies.c.allowed + tallies.c.denied
    query = _of(_COUNTS, tenant_id, dimension).order_by(total.desc(), tallies.c.value)
    return [CountedValue(*row) for row in await connection.execute(query.limit(limit))]


async def one_of(
    connection: AsyncConnection, tenant_id: str, dimension: Dimension, value: str
) -> CountedValue:
    query = _of(_COUNTS, tenant_id, dimension).where(tallies.c.value == value)
    row = (await connection.execute(query)).one_or_none()
    return NO_DECISIONS if row is None else CountedValue(*row)


async def by_agent(
    connection: AsyncConnection, tenant_id: str, since: int, agent_id: str | None = None
) -> list[CountedValue]:
    """Return the decisions of each agent, or of `agent_id` only, since `since` (microseconds), in
    order of id."""
    query = _since(tenant_id, Dimension.agent, since).order_by(tallies.c.value)
    if agent_id is not None:
        query = query.where(tallies.c.value == agent_id)
    return _summed(await connection.execute(query))


async def agent_by_spans(
    connection: AsyncConnection, tenant_id: str, agent_id: str, hours: int, first: int
) -> dict[int, tuple[int, int]]:
    """Return the numbers of allowed and denied decisions of one agent in spans of `hours` hours, by
    the number of the span since 1970, from the span `first` on."""
    number = tallies.c.bucket // literal_column(str(hours), Integer)
    sums = select(number, func.sum(tallies.c.allowed), func.sum(tallies.c.denied))
    query = _of(sums, tenant_id, Dimension.agent).where(
        tallies.c.value == agent_id, tallies.c.bucket >= first * hours
    )
    rows = await connection.execute(query.group_by(number))
    return {int(span): (int(allowed), int(denied)) for span, allowed, denied in rows}


async def sources_of(
    connection: AsyncConnection, tenant_id: str, agent_id: str, since: int, limit: int
) -> list[CountedValue]:
    """Return the sources that an agent requested since `since`, most requested first. The day of
    `since` counts in full."""
    prefix = agent_id + SEPARATOR
    total = func.sum(tallies.c.allowed + tallies.c.denied)
    query = _since(tenant_id, Dimension.agent_source, since).where(
        # A range scan instead of LIKE: the id may contain wildcard characters. The column sorts by
        # code point on both databases (`ordered_string`).
        tallies.c.value >= prefix,
        tallies.c.value < agent_id + chr(ord(SEPARATOR) + 1),
    )
    query = query.order_by(total.desc(), tallies.c.value).limit(limit)
    found = _summed(await connection.execute(query))
    return [each._replace(value=each.value.removeprefix(prefix)) for each in found]


async def window(
    connection: AsyncConnection, tenant_id: str, dimension: Dimension, since: int, until: int
) -> CountedValue:
    """Return the sum of a dimension's buckets that begin at `since` or later and before `until`."""
    width = BUCKETS[dimension]
    query = _of(_SUMS, tenant_id, dimension).where(
        tallies.c.value == "",
        # Round up at both ends, so that consecutive windows count no bucket twice.
        tallies.c.bucket >= -(-since // width),
        tallies.c.bucket < -(-until // width),
    )
    found = _summed(await connection.execute(query))
    return found[0] if found else NO_DECISIONS


async def by_spans(
    connection: AsyncConnection, tenant_id: str, minutes: int, first: int, until: int
) -> dict[int, tuple[int, int]]:
    """Return the numbers of allowed and denied decisions in spans of `minutes` minutes, by the
    number of the span since 1970, from `first` until before `until`. A span without decisions is
    left out."""
    # Without a parameter: PostgreSQL would not see that the two expressions are the same one.
    number = tallies.c.bucket // literal_column(str(minutes), Integer)
    sums = select(number, func.sum(tallies.c.allowed), func.sum(tallies.c.denied))
    query = _of(sums, tenant_id, Dimension.minute).where(
        tallies.c.value == "",
        tallies.c.bucket >= first * minutes,
        tallies.c.bucket < until * minutes,
    )
    rows = await connection.execute(query.group_by(number))
    return {int(span): (int(allowed), int(denied)) for span, allowed, denied in rows}


async def new_accesses(
    connection: AsyncConnection, tenant_id: str, since: int, until: int, limit: int
) -> tuple[int, list[tuple[str, str]]]:
    """Return the number of pairs of role and source that were first allowed from `since` until
    before `until`, and up to `limit` of these pairs, earliest first."""
    within = (
        of_tenant(first_accesses, tenant_id),
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


_COUNTS = select(tallies.c.value, tallies.c.allowed, tallies.c.denied, tallies.c.last_ts)
_SUMS = select(
    tallies.c.value,
    func.sum(tallies.c.allowed),
    func.sum(tallies.c.denied),
    func.max(tallies.c.last_ts),
).group_by(tallies.c.value)


def _of(query: Select[Any], tenant_id: str, dimension: Dimension) -> Select[Any]:
    return query.where(of_tenant(tallies, tenant_id), tallies.c.facet == int(dimension))


def _since(tenant_id: str, dimension: Dimension, since: int) -> Select[Any]:
    """Return the query for the sums over the buckets that end after `since`."""
    return _of(_SUMS, tenant_id, dimension).where(tallies.c.bucket >= since // BUCKETS[dimension])


def _summed(rows: Iterable[Any]) -> list[CountedValue]:
    # PostgreSQL's sum of a BIGINT is a NUMERIC, which the driver returns as a Decimal.
    return [
        CountedValue(value, int(allowed), int(denied), last)
        for value, allowed, denied, last in rows
    ]
