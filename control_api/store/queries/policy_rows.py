"""Queries over policies and their versions.

Also queries over a tenant's candidates (policy sets that are evaluated beside the active one and
never decide): their list, their documents, and the counts of their decisions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import orjson
from sqlalchemy import (
    ColumnElement,
    LargeBinary,
    RowMapping,
    Select,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.candidates import DECIDED, MAX_EXAMPLES
from control_api.store.schema.log import candidate_counts
from control_api.store.schema.statements import (
    Position,
    chunks,
    columns_of,
    newest_first,
    of_tenant,
    values_of,
)
from control_api.store.schema.tables import documents, policies, policy_versions
from policies.definitions.model import Candidate, Policy
from policies.ground.canonical import encode
from policies.sets.policy_set import candidate_name

PolicyChange = Literal["created", "added", "updated", "deleted", "removed", "restored"]


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy as stored. `body` holds every field of `CONTRACT.md`, Policies. `file` names the
    file that defines the policy, and `file_body` is its body there; both are None if there is no
    such file. Times are in microseconds."""

    policy_id: str
    name: str
    agent_role: str
    body: dict[str, Any]
    version: int
    user_modified: bool
    file: str | None
    file_body: dict[str, Any] | None
    created_at: int
    updated_at: int
    deleted_at: int | None

    @classmethod
    def from_row(cls, row: RowMapping) -> "StoredPolicy":
        file_body = None if row["file_body"] is None else orjson.loads(row["file_body"])
        return cls(**{**row, "body": orjson.loads(row["body"]), "file_body": file_body})

    def published(self) -> Policy:
        return Policy.from_wire({**self.body, "policy_id": self.policy_id, "version": self.version})


class StoredVersion(NamedTuple):
    """A version of a policy, with the key or person that made it, the time (microseconds), and the
    kind of change."""

    version: int
    body: dict[str, Any]
    changed_by: str
    changed_at: int
    change: PolicyChange


_COLUMNS = columns_of(policies)


async def get(connection: AsyncConnection, tenant_id: str, policy_id: str) -> StoredPolicy | None:
    """Return the policy, or None if it never existed. A deleted policy is found; it has a
    `deleted_at`."""
    return next(iter(await by_ids(connection, tenant_id, (policy_id,))), None)


class Filter(NamedTuple):
    """A filter of active policies. `name` is a part of the name, in any case. `members` are members
    of the body with their texts; `text` is a part of any text in the body."""

    agent_role: str | None = None
    name: str | None = None
    text: str | None = None
    members: Mapping[str, str] = MappingProxyType({})


async def page(
    connection: AsyncConnection, tenant_id: str, wanted: Filter, after: Position | None, limit: int
) -> list[StoredPolicy]:
    """Return a page of active policies, newest first, after the position `(created_at,
    policy_id)`."""
    query = _active(tenant_id)
    if wanted.agent_role is not None:
        query = query.where(policies.c.agent_role == wanted.agent_role)
    if wanted.name is not None:
        query = query.where(policies.c.name.icontains(wanted.name, autoescape=True))
    # In the body as canonical JSON writes them: a member without its braces, a text without quotes.
    parts = [encode({name: value})[1:-1] for name, value in wanted.members.items()]
    if wanted.text is not None:
        parts.append(encode(wanted.text)[1:-1])
    sqlite = connection.dialect.name == "sqlite"
    position = func.instr if sqlite else func.pg_catalog.position
    for number, part in enumerate(parts):
        written = bindparam(f"part_{number}", part, LargeBinary)
        query = query.where(position(policies.c.body, written) > 0)
    query = newest_first(query, policies.c.created_at, policies.c.policy_id, after, limit)
    return [StoredPolicy.from_row(row) for row in (await connection.execute(query)).mappings()]


async def authors(
    connection: AsyncConnection, tenant_id: str, rows: Sequence[StoredPolicy]
) -> dict[str, str]:
    """Return who made the current version of each policy, by the policy's id."""
    kept = policy_versions.c
    found: dict[str, str] = {}
    for part in chunks(rows):
        current = [(row.policy_id, row.version) for row in part]
        query = select(kept.policy_id, kept.changed_by).where(
            of_tenant(policy_versions, tenant_id), tuple_(kept.policy_id, kept.version).in_(current)
        )
        found |= {row.policy_id: row.changed_by for row in await connection.execute(query)}
    return found


async def of_roles(
    connection: AsyncConnection, tenant_id: str, roles: Sequence[str]
) -> list[StoredPolicy]:
    found = await connection.execute(_active(tenant_id).where(policies.c.agent_role.in_(roles)))
    return [StoredPolicy.from_row(row) for row in found.mappings()]


async def in_force(connection: AsyncConnection, tenant_id: str) -> Sequence[RowMapping]:
    """Return all active policies, as raw rows: decoding many of them is slow, so the caller does it
    in a thread."""
    return (await connection.execute(_active(tenant_id))).mappings().all()


async def any_active(connection: AsyncConnection, tenant_id: str) -> bool:
    """Return whether the tenant has an active policy."""
    query = _active(tenant_id).with_only_columns(policies.c.policy_id).limit(1)
    return (await connection.execute(query)).first() is not None


async def taken(connection: AsyncConnection, tenant_id: str, names: Sequence[str]) -> set[str]:
    """Return those of `names` that active policies use. The name of a deleted policy is free
    again."""
    query = _active(tenant_id).with_only_columns(policies.c.name)
    return set((await connection.execute(query.where(policies.c.name.in_(names)))).scalars())


async def roles_of(connection: AsyncConnection, tenant_id: str, names: Sequence[str]) -> set[str]:
    """Return the roles of the active policies of these names."""
    found: set[str] = set()
    query = _active(tenant_id).with_only_columns(policies.c.agent_role)
    for chunk in chunks(names):
        found.update((await connection.execute(query.where(policies.c.name.in_(chunk)))).scalars())
    return found


async def of_files(connection: AsyncConnection, tenant_id: str) -> Sequence[RowMapping]:
    """Return the policies that files define, including deleted ones, as raw rows: decoding many of
    them with `StoredPolicy.from_row` is slow, so the caller does it in steps."""
    found = await connection.execute(
        select(*_COLUMNS).where(of_tenant(policies, tenant_id), policies.c.file.is_not(None))
    )
    return found.mappings().all()


async def by_ids(
    connection: AsyncConnection, tenant_id: str, policy_ids: Sequence[str]
) -> list[StoredPolicy]:
    """Return the existing policies of these ids, including deleted ones."""
    query = select(*_COLUMNS).where(of_tenant(policies, tenant_id))
    found = await connection.execute(query.where(policies.c.policy_id.in_(policy_ids)))
    return [StoredPolicy.from_row(row) for row in found.mappings()]


async def add(connection: AsyncConnection, tenant_id: str, rows: Sequence[StoredPolicy]) -> None:
    for part in chunks(rows):
        values = [{"tenant_id": tenant_id, **_values(row)} for row in part]
        await connection.execute(insert(policies), values)


async def put(connection: AsyncConnection, tenant_id: str, policy: StoredPolicy) -> None:
    await connection.execute(
        update(policies)
        .where(of_tenant(policies, tenant_id), policies.c.policy_id == policy.policy_id)
        .values(**_values(policy))
    )


async def add_versions(
    connection: AsyncConnection, tenant_id: str, rows: Sequence[StoredPolicy], by: str, change: str
) -> None:
    """Add the current version of each policy to its history."""
    values = [
        {
            "tenant_id": tenant_id,
            "policy_id": row.policy_id,
            "version": row.version,
            "body": encode(row.body),
            "changed_by": by,
            "changed_at": row.updated_at,
            "change": change,
        }
        for row in rows
    ]
    for part in chunks(values):
        await connection.execute(insert(policy_versions), part)


async def versions(
    connection: AsyncConnection, tenant_id: str, policy_id: str, before: int | None, limit: int
) -> list[StoredVersion]:
    """Return up to `limit` versions of a policy with a number below `before` (None: all), newest
    first."""
    kept = policy_versions.c
    query = select(kept.version, kept.body, kept.changed_by, kept.changed_at, kept.change).where(
        of_tenant(policy_versions, tenant_id), kept.policy_id == policy_id
    )
    if before is not None:
        query = query.where(kept.version < before)
    rows = await connection.execute(query.order_by(kept.version.desc()).limit(limit))
    return [StoredVersion(row.version, orjson.loads(row.body), *row[2:]) for row in rows]


def _active(tenant_id: str) -> Any:
    return select(*_COLUMNS).where(of_tenant(policies, tenant_id), policies.c.deleted_at.is_(None))


def _values(policy: StoredPolicy) -> dict[str, Any]:
    file_body = None if policy.file_body is None else encode(policy.file_body)
    return {**values_of(policy), "body": encode(policy.body), "file_body": file_body}


MAX_GROUPS = 1000
"""The most groups of decisions that are read of a candidate: those with the most decisions."""


class StoredCandidate(NamedTuple):
    """A candidate as the column `tenants.candidates` lists it. `created_at` is in microseconds."""

    name: str
    revision: int
    created_at: int

    @property
    def listed(self) -> Candidate:
        return Candidate(self.name, self.revision)


class CandidateTotals(NamedTuple):
    """The number of decisions that a candidate evaluated, and of those that it decides otherwise or
    can't decide."""

    decided: int = 0
    newly_denied: int = 0
    newly_allowed: int = 0
    error: int = 0

    @property
    def same(self) -> int:
        return self.decided - self.newly_denied - self.newly_allowed - self.error


class CountedGroup(NamedTuple):
    """A group of decisions on which a candidate has the same effect, with their number and
    examples. Times are in microseconds."""

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
    """Return the tenant's candidates from the text of the column `tenants.candidates`, in order of
    name."""
    found = [] if column is None else orjson.loads(column)
    return tuple(StoredCandidate(*each) for each in found)


def write_candidates(candidates: Iterable[StoredCandidate]) -> str | None:
    ordered = [list(each) for each in sorted(candidates)]
    return encode(ordered).decode() if ordered else None


async def document_names(connection: AsyncConnection, tenant_id: str, name: str) -> list[str]:
    found = await connection.execute(_existing(tenant_id, name, documents.c.name))
    return list(found.scalars())


async def bodies(connection: AsyncConnection, tenant_id: str, name: str) -> list[bytes]:
    """Return the documents of a candidate, one for each role that it has policies for."""
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
    """Return the candidate's groups with the most decisions, at most `MAX_GROUPS`; equal ones in
    order of digest."""
    counted = candidate_counts.c
    rows = await connection.execute(
        select(*(counted[name] for name in CountedGroup._fields))
        .where(*_of(tenant_id, candidate), counted.outcome != DECIDED)
        .order_by(counted.counted.desc(), counted.group_digest)
        .limit(MAX_GROUPS)
    )
    return [CountedGroup._make((*row[:-1], row.examples.split(" ")[:MAX_EXAMPLES])) for row in rows]


async def forget(connection: AsyncConnection, tenant_id: str, name: str) -> None:
    """Delete the counts of a candidate. The caller must hold the lock of the log's head."""
    await connection.execute(
        delete(candidate_counts).where(
            of_tenant(candidate_counts, tenant_id), candidate_counts.c.name == name
        )
    )


def _of(tenant_id: str, candidate: Candidate) -> tuple[ColumnElement[bool], ...]:
    name, revision = candidate_counts.c["name", "revision"]
    mine = of_tenant(candidate_counts, tenant_id)
    return mine, name == candidate.name, revision == candidate.revision
