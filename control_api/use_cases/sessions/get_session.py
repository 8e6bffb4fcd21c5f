"""Show one session: whose it is, how it stands, and what was decided in it."""

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import session_detail
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.tenants import SessionDetail
from control_api.store.counters import queries as tallies
from control_api.store.counters.dimensions import Dimension
from control_api.store.queries import sessions
from policies.ground.errors import NotFound


class AskedSession(RequestModel):
    """Which session."""

    session_id: Identifier


async def get_session(service: AppContext, caller: Caller, asked: AskedSession) -> SessionDetail:
    """Show one session; one that nobody ever claimed is not found."""
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        return await detail(
            connection, caller.tenant.tenant_id, asked.session_id, service.clock.now()
        )


async def detail(
    connection: AsyncConnection, tenant_id: str, session_id: str, now: int
) -> SessionDetail:
    row = await sessions.find(connection, tenant_id, session_id)
    if row is None:
        raise NotFound(f"no such session: `{session_id}`")
    counted = await tallies.one_of(connection, tenant_id, Dimension.session, session_id)
    return session_detail(row, counted, now)
