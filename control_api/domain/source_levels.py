"""The levels that a tenant states of its sources, by pattern of a source id.

They have no table: the policy set's document is where they are kept, so what is shown is what
decides. A change is written under the lock of the tenant's row.
"""

from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.app_context import AppContext
from control_api.store.queries import documents
from control_api.store.transaction import Transaction
from policies.definitions.model import Sensitivity
from policies.ground.errors import Conflict, NotFound
from policies.sets.source_levels import SOURCES, sources_document, stated_levels
from policies.trail.change import ObjectChange

MAX_LEVELS = 1000
"""The most patterns of a tenant: every sidecar holds them in memory."""
_MOST_BYTES = 4 * 1024 * 1024


class Change(NamedTuple):
    """The level of a pattern before and after a change; None where it has none."""

    pattern: str
    before: Sensitivity | None
    after: Sensitivity | None


async def read(connection: AsyncConnection, tenant_id: str) -> dict[str, Sensitivity]:
    """The levels by pattern."""
    page = await documents.by_name(connection, tenant_id, [SOURCES], max_bytes=_MOST_BYTES)
    return stated_levels(page.documents[0].body)


async def put(app: AppContext, tx: Transaction, pattern: str, level: Sensitivity, by: str) -> None:
    """State the level of a pattern. Raises `Conflict` if the tenant has too many."""
    await tx.lock()
    levels = await read(tx.connection, tx.tenant_id)
    before = levels.get(pattern)
    if before == level:
        return  # so that a retry of the same request changes nothing
    if before is None and len(levels) >= MAX_LEVELS:
        raise Conflict(
            f"the tenant already states {MAX_LEVELS} levels, the most allowed: delete one, or use "
            "wildcards"
        )
    await _write(app, tx, {**levels, pattern: level}, Change(pattern, before, level), by)


async def delete(app: AppContext, tx: Transaction, pattern: str, by: str) -> None:
    """State no level of a pattern any more. Raises `NotFound` if none is stated."""
    await tx.lock()
    levels = await read(tx.connection, tx.tenant_id)
    before = levels.pop(pattern, None)
    if before is None:
        raise NotFound(f"no level is stated of `{pattern}`")
    await _write(app, tx, levels, Change(pattern, before, None), by)


async def _write(
    app: AppContext, tx: Transaction, levels: dict[str, Sensitivity], change: Change, by: str
) -> None:
    await tx.publish({SOURCES: sources_document(levels)})
    shown = [
        None if level is None else {"source_pattern": change.pattern, "sensitivity_level": level}
        for level in (change.before, change.after)
    ]
    action = "deleted" if change.after is None else "updated" if change.before else "created"
    both = ObjectChange(shown[0], shown[1], published=tx.published(SOURCES))
    await app.log_change(tx, f"source.{action}", change.pattern, by, {}, both)
