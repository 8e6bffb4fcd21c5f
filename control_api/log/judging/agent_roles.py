"""Reads from the log in which roles agents could act in the past: a record may arrive long after it
was made, and its agent's roles may have changed meanwhile."""

from collections.abc import Collection

import orjson
from sqlalchemy import select, text

from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import log_entries
from control_api.store.store import Store

SLACK = 120_000_000
"""Microseconds by which a sidecar may learn later of a change, as for `trail/recompute`."""
MAX_SCANNED = 20_000
_ROWS = 500
_MARK = b'"what":"agent.'


async def former_roles(
    store: Store, tenant_id: str, agent_ids: Collection[str], since: int
) -> dict[str, set[str]]:
    """The roles that these agents had at some time since `since` (microseconds), as far as changes
    of them say it; the newest `MAX_SCANNED` changes of the tenant are looked at."""
    found: dict[str, set[str]] = {agent_id: set() for agent_id in agent_ids}
    query = select(log_entries.c.seq, log_entries.c.entry).where(
        log_entries.c.tenant_id == tenant_id,
        # In the words of the index's condition: otherwise no database uses it.
        text("kind = 'change' AND kind NOT IN ('decision', 'lineage')"),
        log_entries.c.seq >= first_kept(tenant_id),
        log_entries.c.ts >= since - SLACK,
    )
    query = query.order_by(log_entries.c.seq.desc()).limit(_ROWS)
    async with store.reading(tenant_id) as connection:
        before: int | None = None
        for _ in range(MAX_SCANNED // _ROWS):
            page = query if before is None else query.where(log_entries.c.seq < before)
            rows = (await connection.execute(page)).all()
            for row in rows:
                if _MARK in row.entry:
                    _note(orjson.loads(row.entry)["pub"], found)
            if len(rows) < _ROWS:
                break
            before = rows[-1].seq
    return found


def _note(pub: dict[str, object], found: dict[str, set[str]]) -> None:
    roles = found.get(str(pub["target"]))
    if roles is None:
        return
    # Each holds the members that differ, or all if the agent was created.
    for state in (pub.get("before"), pub.get("after")):
        if isinstance(state, dict):
            roles.update(map(str, state.get("permitted_roles", ())))
