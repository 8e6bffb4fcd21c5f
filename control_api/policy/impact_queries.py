"""Queries impact runs: recorded decisions that are made again by other policies. The counts of a
run are JSON here."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.features import impact_policies, impact_runs
from control_api.store.schema.statements import columns_of, of_tenant, values_of


class RunState(StrEnum):
    """The state of a run. Only a running one changes."""

    running = "running"
    done = "done"
    cancelled = "cancelled"
    failed = "failed"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run's row (`store.schema.impact`). Times are in microseconds since 1970 UTC."""

    impact_id: str
    state: str
    reason: str | None
    created_by: str
    created_at: int
    ended_at: int | None
    first_seq: int
    until_seq: int
    next_seq: int
    last_leaf: bytes
    last_eid: str | None
    counts: bytes
    checkpoint_size: int | None
    attempts: int
    lease: str | None
    leased_until: int | None


@dataclass(frozen=True, slots=True)
class Reached:
    """The progress of a run, to go on from."""

    next_seq: int
    last_leaf: bytes
    last_eid: str | None
    counts: bytes


async def add(connection: AsyncConnection, tenant_id: str, run: StoredRun, policies: bytes) -> None:
    await connection.execute(insert(impact_runs).values(tenant_id=tenant_id, **values_of(run)))
    row = {"tenant_id": tenant_id, "impact_id": run.impact_id, "body": policies}
    await connection.execute(insert(impact_policies).values(row))


async def find(connection: AsyncConnection, tenant_id: str, impact_id: str) -> StoredRun | None:
    query = select(*columns_of(impact_runs)).where(*_is(tenant_id, impact_id))
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else StoredRun(*row)


async def policies_of(connection: AsyncConnection, tenant_id: str, impact_id: str) -> bytes | None:
    """Return the policies of a run, as they were added; None once it has ended."""
    query = select(impact_policies.c.body).where(
        of_tenant(impact_policies, tenant_id), impact_policies.c.impact_id == impact_id
    )
    return (await connection.execute(query)).scalar_one_or_none()


async def count_running(connection: AsyncConnection, tenant_id: str) -> int:
    query = select(func.count()).where(
        of_tenant(impact_runs, tenant_id), impact_runs.c.state == RunState.running
    )
    return (await connection.execute(query)).scalar_one()


async def due(connection: AsyncConnection, now: int, limit: int) -> list[tuple[str, str]]:
    """Return the `(tenant_id, impact_id)` of runs of all tenants that no process continues, those
    that waited longest first."""
    query = (
        select(impact_runs.c.tenant_id, impact_runs.c.impact_id)
        .where(impact_runs.c.state == RunState.running, impact_runs.c.leased_until <= now)
        .order_by(impact_runs.c.leased_until)
        .limit(limit)
    )
    return [(row.tenant_id, row.impact_id) for row in await connection.execute(query)]


async def claim(
    connection: AsyncConnection, tenant_id: str, impact_id: str, lease: str, now: int, until: int
) -> StoredRun | None:
    """Return the run, leased to the caller until `until`; None if it ended, or another process has
    it."""
    claimed = (
        update(impact_runs)
        .where(
            *_is(tenant_id, impact_id),
            impact_runs.c.state == RunState.running,
            impact_runs.c.leased_until <= now,
        )
        .values(lease=lease, leased_until=until, attempts=impact_runs.c.attempts + 1)
    )
    if not (await connection.execute(claimed)).rowcount:
        return None
    return await find(connection, tenant_id, impact_id)


async def save(
    connection: AsyncConnection,
    tenant_id: str,
    impact_id: str,
    lease: str,
    reached: Reached,
    until: int,
) -> bool:
    """Saves how far the holder of the lease has come, and renews its lease. False, and nothing is
    saved, if it holds it no more, or the run was cancelled."""
    values = {**values_of(reached), "attempts": 0, "leased_until": until}
    return await _change(connection, tenant_id, impact_id, lease, values)


async def end(
    connection: AsyncConnection,
    tenant_id: str,
    impact_id: str,
    lease: str | None,
    values: Mapping[str, Any],
) -> bool:
    """Ends a running run with these values, among them `state` and `ended_at`, and forgets its
    policies. With a `lease`, only if it is held. False if there is no such running run."""
    ended = {**values, "lease": None, "leased_until": None}
    if not await _change(connection, tenant_id, impact_id, lease, ended):
        return False
    await connection.execute(
        delete(impact_policies).where(
            of_tenant(impact_policies, tenant_id), impact_policies.c.impact_id == impact_id
        )
    )
    return True


async def renew(
    connection: AsyncConnection, tenant_id: str, impact_id: str, lease: str, until: int
) -> bool:
    """Holds the lease until then; from a time that has passed, another process may continue. False
    as for `save`."""
    return await _change(connection, tenant_id, impact_id, lease, {"leased_until": until})


async def forget(connection: AsyncConnection, tenant_id: str, before: int, keep: int) -> int:
    """Deletes runs that ended before `before`, and all but the `keep` that ended last. Returns how
    many."""
    ended = (of_tenant(impact_runs, tenant_id), impact_runs.c.ended_at.is_not(None))
    newest = (
        select(impact_runs.c.impact_id)
        .where(*ended)
        .order_by(impact_runs.c.ended_at.desc(), impact_runs.c.impact_id.desc())
        .limit(keep)
    )
    old = or_(impact_runs.c.ended_at < before, impact_runs.c.impact_id.not_in(newest))
    return int((await connection.execute(delete(impact_runs).where(*ended, old))).rowcount)


async def _change(
    connection: AsyncConnection,
    tenant_id: str,
    impact_id: str,
    lease: str | None,
    values: Mapping[str, Any],
) -> bool:
    held = () if lease is None else (impact_runs.c.lease == lease,)
    changed = (
        update(impact_runs)
        .where(*_is(tenant_id, impact_id), impact_runs.c.state == RunState.running, *held)
        .values(**values)
    )
    return bool((await connection.execute(changed)).rowcount)


def _is(tenant_id: str, impact_id: str) -> tuple[ColumnElement[bool], ...]:
    return of_tenant(impact_runs, tenant_id), impact_runs.c.impact_id == impact_id
