"""The head rows: where each tenant's log ends. Loading one locks it until the transaction ends, and
begins the log with its tenant's first record. Knows nothing of entries.
"""

from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select, update
from sqlalchemy.dialects import postgresql, sqlite

from control_api.store.errors import UnknownState
from control_api.store.schema.tables import installation, log_entries, log_heads, tenants
from policies.ground.errors import NotFound


class LogEnd(NamedTuple):
    """Where a log ends: its head's row."""

    log: str
    size: int
    last_leaf: bytes
    last_ts: int
    frontier: bytes


def load(connection: Connection, tenant_id: str) -> LogEnd:
    """`NotFound` where there is no such tenant; `UnknownState` where the head is missing."""
    wanted = {"tenant": tenant_id}
    row = connection.execute(_HEAD, wanted).one_or_none()
    if row is None:
        _begin(connection, tenant_id)
        row = connection.execute(_HEAD, wanted).one()
    return LogEnd(*row)


def move(connection: Connection, tenant_id: str, loaded: int, end: LogEnd) -> bool:
    """To where the log ends now; False where it does not stand at the size that was loaded."""
    moved = dict(zip(_MOVED, (tenant_id, loaded, *end[1:]), strict=True))
    return connection.execute(_MOVE, moved).rowcount == 1


def _begin(connection: Connection, tenant_id: str) -> None:
    """The head of a log without entries. Its name tells the store and the tenant, so that a log
    from elsewhere is seen to be one."""
    wanted = {"tenant": tenant_id}
    if connection.execute(_TENANT, wanted).first() is None:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    if connection.execute(_ANY, wanted).first() is not None:
        raise UnknownState(f"the log of tenant `{tenant_id}` has entries and no head")
    epoch = connection.execute(_EPOCH).scalar_one()
    connection.execute(
        _BEGINNING[connection.dialect.name],
        {
            "tenant_id": tenant_id,
            "log": f"sluice/{epoch}/{tenant_id}",
            "size": 0,
            "last_leaf": b"",
            "last_ts": 0,
            "frontier": b"",
        },
    )


# The row is locked until the transaction ends: of two replicas, one waits here.
_HEAD = (
    select(
        log_heads.c.log,
        log_heads.c.size,
        log_heads.c.last_leaf,
        log_heads.c.last_ts,
        log_heads.c.frontier,
    )
    .where(log_heads.c.tenant_id == bindparam("tenant"))
    .with_for_update()
)
_TENANT = select(tenants.c.tenant_id).where(tenants.c.tenant_id == bindparam("tenant"))
_EPOCH = select(installation.c.epoch).where(installation.c.tenant_id == "")
_ANY = select(log_entries.c.seq).where(log_entries.c.tenant_id == bindparam("tenant")).limit(1)
# Of two replicas that begin the same log one inserts, and both read what it inserted.
_BEGINNING = {
    "sqlite": sqlite.insert(log_heads).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(log_heads).on_conflict_do_nothing(),
}
_MOVED = ("tenant", "loaded", "to_size", "to_leaf", "to_ts", "to_frontier")
_MOVE = (
    update(log_heads)
    .where(
        log_heads.c.tenant_id == bindparam("tenant"),
        log_heads.c.size == bindparam("loaded"),
    )
    .values(
        size=bindparam("to_size"),
        last_leaf=bindparam("to_leaf"),
        last_ts=bindparam("to_ts"),
        frontier=bindparam("to_frontier"),
    )
)
