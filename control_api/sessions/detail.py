"""Reads one session with the counts of its decisions. Knows no operation."""

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.presenters import session_detail
from control_api.responses.tenants import SessionDetail
from control_api.store.counters import queries as counters
from control_api.store.counters.dimensions import Dimension
from control_api.store.queries import sessions
from policies.ground.errors import NotFound


async def read_session(
    connection: AsyncConnection, tenant_id: str, session_id: str, now: int
) -> SessionDetail:
    """The session as of `now`, in microseconds; `NotFound` if it was never claimed."""
    row = await sessions.find(connection, tenant_id, session_id)
    if row is None:
        raise NotFound(f"no such session: `{session_id}`")
    counted = await counters.one_of(connection, tenant_id, Dimension.session, session_id)
    return session_detail(row, counted, now)
