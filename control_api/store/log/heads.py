"""The head row of each tenant's log: where the log ends.

Loading a head locks it until the transaction ends, and creates it for a tenant's first record.
Knows nothing of entries.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import orjson
from sqlalchemy import Connection, bindparam, exists, select, update

from control_api.store.errors import UnknownState
from control_api.store.schema.log import log_entries, log_heads
from control_api.store.schema.statements import insert_if_absent, of_tenant
from control_api.store.schema.tables import installation, tenants
from policies.definitions.model import Candidate
from policies.ground.canonical import encode
from policies.ground.errors import NotFound


class LogEnd(NamedTuple):
    """A head row without the tenant, in the order of the table's columns. `last_ts` is in
    microseconds since 1970 UTC. `candidates` is as in the table: see `listed`."""

    log: str
    size: int
    last_leaf: bytes
    last_ts: int
    frontier: bytes
    candidates: str | None = None


@lru_cache(maxsize=1024)
def listed(candidates: str | None) -> tuple[Candidate, ...]:
    """The candidates that a head's row names."""
    return (
        () if candidates is None else tuple(Candidate(*each) for each in orjson.loads(candidates))
    )


def list_candidates(
    connection: Connection, tenant_id: str, candidates: Iterable[Candidate]
) -> None:
    """Names the tenant's candidates in its head, for all entries after this transaction. The caller
    must hold the head's lock, and append an entry: cached ends of the log are then out of date."""
    text = encode([list(each) for each in candidates]).decode()
    named = {"tenant": tenant_id, "named": None if text == "[]" else text}
    connection.execute(_LIST, named)


def load(connection: Connection, tenant_id: str) -> LogEnd:
    """Locks and reads the head. Raises `NotFound` if there is no such tenant, and `UnknownState` if
    a log has entries but no head."""
    wanted = {"tenant": tenant_id}
    row = connection.execute(_HEAD, wanted).one_or_none()
    if row is None:
        _create(connection, tenant_id)
        row = connection.execute(_HEAD, wanted).one()
    return LogEnd(*row)


def move(connection: Connection, tenant_id: str, loaded_size: int, end: LogEnd) -> bool:
    """Moves the head to `end`. Returns False if it no longer has the size that was loaded."""
    moved = dict(zip(_MOVE_PARAMETERS, (tenant_id, loaded_size, *end[1:5]), strict=True))
    return connection.execute(_MOVE, moved).rowcount == 1


def _create(connection: Connection, tenant_id: str) -> None:
    """Creates the head of an empty log. The log's name contains the installation's epoch and the
    tenant, so that a log from another database is recognised as foreign."""
    wanted = {"tenant": tenant_id}
    if connection.execute(_TENANT, wanted).first() is None:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    # With a new head, the next entry would get number 0 and start a second chain over the first.
    if connection.execute(_HEADLESS_ENTRY, wanted).first() is not None:
        raise UnknownState(f"the log of tenant `{tenant_id}` has entries and no head")
    epoch = connection.execute(_EPOCH).scalar_one()
    connection.execute(
        # If two replicas create the same head at once, one inserts it, and both then read that row.
        insert_if_absent(log_heads, connection.dialect),
        {
            "tenant_id": tenant_id,
            "log": f"sluice/{epoch}/{tenant_id}",
            "size": 0,
            "last_leaf": b"",
            "last_ts": 0,
            "frontier": b"",
        },
    )


# The row stays locked until the transaction ends: of two replicas that append, one waits here.
_HEAD = (
    select(
        log_heads.c.log,
        log_heads.c.size,
        log_heads.c.last_leaf,
        log_heads.c.last_ts,
        log_heads.c.frontier,
        log_heads.c.candidates,
    )
    .where(of_tenant(log_heads, bindparam("tenant")))
    .with_for_update()
)
_LIST = (
    update(log_heads)
    .where(of_tenant(log_heads, bindparam("tenant")))
    .values(candidates=bindparam("named"))
)
_TENANT = select(tenants.c.tenant_id).where(of_tenant(tenants, bindparam("tenant")))
_EPOCH = select(installation.c.epoch).where(of_tenant(installation, ""))
# One statement sees one state of the database. If it read only the entries, it could find those
# that another replica has committed, with the head, since this transaction looked for the head.
_HEADLESS_ENTRY = (
    select(log_entries.c.seq)
    .where(
        of_tenant(log_entries, bindparam("tenant")),
        ~exists().where(of_tenant(log_heads, bindparam("tenant"))),
    )
    .limit(1)
)
_MOVE_PARAMETERS = ("tenant", "loaded", "to_size", "to_leaf", "to_ts", "to_frontier")
_MOVE = (
    update(log_heads)
    .where(
        of_tenant(log_heads, bindparam("tenant")),
        log_heads.c.size == bindparam("loaded"),
    )
    .values(
        size=bindparam("to_size"),
        last_leaf=bindparam("to_leaf"),
        last_ts=bindparam("to_ts"),
        frontier=bindparam("to_frontier"),
    )
)
