"""Queries the tables of impact runs, in which recorded requests are decided again by other
policies. Counts are stored as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.features import impact_policies, impact_runs
from control_api.store.schema.statements import columns_of, of_tenant, values_of


class RunState(StrEnum):
    """The state of an impact run. Only a running one still changes."""

    running = "running"
    done = "done"
    cancelled = "cancelled"
    failed = "failed"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """An impact run's row (`store.schema.features`). Times are in microseconds since 1970 UTC."""

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
    """The saved progress of a run, from which it can be continued."""

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
    """Return the policies of a run as the JSON that was stored with it, or None once the run has
    ended."""
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
    """Return the `(tenant_id, impact_id)` of running runs, of all tenants, whose lease has expired.
    The runs that waited longest come first."""
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
    """Take the lease of a run until the time `until`, and return the run. Return None if the run
    ended, or another process holds its lease."""
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
    """Save the progress of the run, and renew its lease. Return False, and save nothing, if the
    caller has lost the lease or the run was cancelled."""
    values = {**values_of(reached), "attempts": 0, "leased_until": until}
    return await _change(connection, tenant_id, impact_id, lease, values)


async def end(
    connection: AsyncConnection,
    tenant_id: str,
    impact_id: str,
    lease: str | None,
    values: Mapping[str, Any],
) -> bool:
    """End a running run with these values, among them `state` and `ended_at`, and delete its
    policies. If `lease` is given, do so only if the caller still holds it. Return False if nothing
    was ended."""
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
    """Renew the lease until the time `until`; with a time that has passed, another process may
    continue the run. Return False if the caller has lost the lease or the run has ended."""
    return await _change(connection, tenant_id, impact_id, lease, {"leased_until": until})


async def forget(connection: AsyncConnection, tenant_id: str, before: int, keep: int) -> int:
    """Delete the tenant's runs that ended before the time `before`, and all ended ones but the
    `keep` newest. Return the number of deleted runs."""
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
