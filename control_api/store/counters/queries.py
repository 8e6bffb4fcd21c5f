"""Queries over the counts of decisions, which `control_api.store.counters.counters` maintains.

Also counts what each decision says of the tenant's candidates, in step with the log. A candidate is
a policy set that is evaluated beside the active one, and never decides.

    counts.add(pub, index)                for each decision of a batch, in memory
    counts.save(connection, tenant_id)    in the transaction that appends the batch

INVARIANT: the candidates are those of the log's head, which is locked, or is still where this batch
begins. They only change together with an entry of the log, so a batch that goes behind that head
counts for exactly the candidates that there are. A batch that is sent again is not appended again,
and so not counted again.

An entry counts as decided by a candidate if the policy set that it was decided by has the
candidate: if `facts.revision` is the candidate's `revision` or later. Its results for other
candidates, or for another revision of one, are not counted.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Integer, Select, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.counters import BUCKETS, SEPARATOR, Dimension
from control_api.store.schema.log import candidate_counts, first_accesses, tallies
from control_api.store.schema.statements import of_tenant
from policies.definitions.model import Candidate
from policies.ground.canonical import encode
from policies.trail.entry import Index

DECIDED = "decided"
MAX_EXAMPLES = 5


class CandidateGroup(NamedTuple):
    """A group of decisions that are counted together: those of one candidate with the same outcome,
    role, source, and policy names before and after. For the outcome `DECIDED`, all but the
    candidate is empty."""

    name: str
    revision: int
    outcome: str
    agent_role: str = ""
    source_id: str = ""
    policy_name_before: str = ""
    policy_name_after: str = ""

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the group, which is part of its row's key. Empty for `DECIDED`, so that
        its row can be found without it."""
        if self.outcome == DECIDED:
            return b""
        return hashlib.sha256(encode(list(self[2:]))).digest()


class _Counted:
    """The decisions of a group: their number, the earliest and the latest time, and the first ids
    as examples."""

    __slots__ = ("examples", "first", "last", "many")

    def __init__(self, ts: int) -> None:
        self.many, self.first, self.last = 0, ts, ts
        self.examples: list[str] = []

    def add(self, ts: int) -> None:
        self.many += 1
        self.first, self.last = min(self.first, ts), max(self.last, ts)


class BatchCandidates:
    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        self._candidates = candidates
        self._groups: dict[CandidateGroup, _Counted] = {}

    def add(self, pub: bytes, index: Index) -> None:
        """Count one `decision` entry. `pub` is the part of the entry that is recorded in clear,
        rather than as commitments."""
        decoded = orjson.loads(pub)
        # Only our own services are known to write an integer there.
        revision = decoded["facts"].get("revision")
        if type(revision) is not int:
            return  # decided without the policy set: stale, or unreadable
        items: list[dict[str, Any]] = decoded.get("candidates") or []
        differing = {(each["name"], each["revision"]): each for each in items}
        for candidate in self._candidates:
            if revision < candidate.revision:
                continue
            self._counted(CandidateGroup(*candidate, DECIDED), index.ts)
            if (item := differing.get(candidate)) is not None:
                self._differs(candidate, item, index)

    def _differs(self, candidate: Candidate, item: dict[str, Any], index: Index) -> None:
        outcome = _OUTCOMES.get((index.decision, item["decision"]))
        if outcome is None:
            return  # the same decision: no enforcement point of ours says so
        group = CandidateGroup(
            *candidate,
            outcome,
            index.agent_role or "",
            index.source_id or "",
            index.policy_name or "",
            item["policy_name"],
        )
        counted = self._counted(group, index.ts)
        if len(counted.examples) < MAX_EXAMPLES:
            counted.examples.append(index.eid)

    def _counted(self, group: CandidateGroup, ts: int) -> _Counted:
        counted = self._groups.get(group)
        if counted is None:
            counted = self._groups[group] = _Counted(ts)
        counted.add(ts)
        return counted

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows to add, without the tenant, in order of their keys."""
        rows = [
            (
                *group[:2],
                group.digest,
                *group[2:],
                counted.many,
                counted.first,
                counted.last,
                " ".join(counted.examples),
            )
            for group, counted in self._groups.items()
        ]
        return sorted(rows)

    def save(self, connection: Connection, tenant_id: str) -> None:
        """Add the rows to those stored on SQLite. On PostgreSQL they are part of the batch's one
        statement."""
        if rows := self.rows():
            values = [(tenant_id, *row) for row in rows]
            connection.exec_driver_sql(_UPSERT, values)


_OUTCOMES: dict[tuple[str | None, str], str] = {
    ("ALLOW", "DENY"): "newly_denied",
    ("DENY", "ALLOW"): "newly_allowed",
    ("ALLOW", "ERROR"): "error",
    ("DENY", "ERROR"): "error",
}


_EXAMPLES = (
    # A row that has few examples takes those of the next batch too; readers take the first ones.
    "CASE WHEN candidate_counts.examples = '' THEN excluded.examples"
    " WHEN length(candidate_counts.examples) - length(replace(candidate_counts.examples, ' ', ''))"
    f" >= {MAX_EXAMPLES - 1} THEN candidate_counts.examples"
    " ELSE candidate_counts.examples || ' ' || excluded.examples END"
)
ON_CONFLICT = (
    "ON CONFLICT (tenant_id, name, revision, group_digest) DO UPDATE SET"
    " counted = candidate_counts.counted + excluded.counted,"
    " first_ts = CASE WHEN excluded.first_ts < candidate_counts.first_ts"
    " THEN excluded.first_ts ELSE candidate_counts.first_ts END,"
    " last_ts = CASE WHEN excluded.last_ts > candidate_counts.last_ts"
    " THEN excluded.last_ts ELSE candidate_counts.last_ts END,"
    f" examples = {_EXAMPLES}"
)
"""The SQL clause that adds a row to the stored one with the same key, in syntax that both databases
accept."""
_NAMES = ", ".join(column.name for column in candidate_counts.c)
_MARKS = ", ".join("?" for _ in candidate_counts.c)
_UPSERT = f"INSERT INTO candidate_counts ({_NAMES}) VALUES ({_MARKS}) {ON_CONFLICT}"  # noqa: S608


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
