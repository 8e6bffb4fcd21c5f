"""Queries over a tenant's candidates: which there are, their documents, and what was counted of
them. Knows nothing of how a candidate is evaluated."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Select, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.candidates import DECIDED, MAX_EXAMPLES
from control_api.store.schema.log import candidate_counts
from control_api.store.schema.statements import of_tenant
from control_api.store.schema.tables import documents
from policies.definitions.model import Candidate
from policies.ground.canonical import encode
from policies.sets.policy_set import candidate_name

MAX_GROUPS = 1000
"""The groups that are read of a candidate: those with the most decisions."""


class StoredCandidate(NamedTuple):
    """A candidate as the column `tenants.candidates` lists it; `created_at` is in microseconds."""

    name: str
    revision: int
    created_at: int

    @property
    def listed(self) -> Candidate:
        """The part that a decision needs."""
        return Candidate(self.name, self.revision)


class CandidateTotals(NamedTuple):
    """How many decisions a candidate evaluated, and how many of them it decides otherwise or
    can't decide."""

    decided: int = 0
    newly_denied: int = 0
    newly_allowed: int = 0
    error: int = 0

    @property
    def same(self) -> int:
        return self.decided - self.newly_denied - self.newly_allowed - self.error


class CountedGroup(NamedTuple):
    """Decisions that a candidate changes alike. Times are in microseconds."""

    outcome: str
    agent_role: str
    source_id: str
    policy_name_before: str
    policy_name_after: str
    counted: int
    first_ts: int
    last_ts: int
    examples: list[str]


def read_candidates(column: str | None) -> tuple[StoredCandidate, ...]:
    """The tenant's candidates, in order of name."""
    found = [] if column is None else orjson.loads(column)
    return tuple(StoredCandidate(*each) for each in found)


def write_candidates(candidates: Iterable[StoredCandidate]) -> str | None:
    """The reverse of `read_candidates`."""
    ordered = [list(each) for each in sorted(candidates)]
    return encode(ordered).decode() if ordered else None


async def document_names(connection: AsyncConnection, tenant_id: str, name: str) -> list[str]:
    """The documents of a candidate that exist."""
    found = await connection.execute(_existing(tenant_id, name, documents.c.name))
    return list(found.scalars())


async def bodies(connection: AsyncConnection, tenant_id: str, name: str) -> list[bytes]:
    """The documents of a candidate, one for each role that it has policies of."""
    found = await connection.execute(_existing(tenant_id, name, documents.c.body))
    return list(found.scalars())


def _existing(tenant_id: str, name: str, column: Any) -> Select[Any]:
    prefix = candidate_name(name, "")
    return select(column).where(
        of_tenant(documents, tenant_id),
        # Not a range, and not LIKE: the column sorts by the database's collation, and a name may
        # hold an underscore. This is no query that decisions wait for.
        func.substr(documents.c.name, 1, len(prefix)) == prefix,
        documents.c.digest.is_not(None),
    )


async def totals(
    connection: AsyncConnection, tenant_id: str, candidate: Candidate
) -> CandidateTotals:
    rows = await connection.execute(
        select(candidate_counts.c.outcome, func.sum(candidate_counts.c.counted))
        .where(*_of(tenant_id, candidate))
        .group_by(candidate_counts.c.outcome)
    )
    return CandidateTotals(**{outcome: int(counted) for outcome, counted in rows})


async def groups(
    connection: AsyncConnection, tenant_id: str, candidate: Candidate
) -> list[CountedGroup]:
    """The groups with the most decisions, at most `MAX_GROUPS`; of equals, in order of digest."""
    counted = candidate_counts.c
    rows = await connection.execute(
        select(
            counted.outcome,
            counted.agent_role,
            counted.source_id,
            counted.policy_name_before,
            counted.policy_name_after,
            counted.counted,
            counted.first_ts,
            counted.last_ts,
            counted.examples,
        )
        .where(*_of(tenant_id, candidate), counted.outcome != DECIDED)
        .order_by(counted.counted.desc(), counted.group_digest)
        .limit(MAX_GROUPS)
    )
    return [CountedGroup(*row[:-1], row.examples.split(" ")[:MAX_EXAMPLES]) for row in rows]


async def forget(connection: AsyncConnection, tenant_id: str, name: str) -> None:
    """Deletes what was counted of a candidate. The caller must hold the lock of the log's head."""
    await connection.execute(
        delete(candidate_counts).where(
            of_tenant(candidate_counts, tenant_id), candidate_counts.c.name == name
        )
    )


def _of(tenant_id: str, candidate: Candidate) -> tuple[ColumnElement[bool], ...]:
    counted = candidate_counts.c
    return (
        of_tenant(candidate_counts, tenant_id),
        counted.name == candidate.name,
        counted.revision == candidate.revision,
    )
