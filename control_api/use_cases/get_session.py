"""Show one session: whose it is, how it stands, and what was decided in it."""

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.asked import Asked, Identifier
from control_api.caller import Caller
from control_api.service import Service
from control_api.store import sessions, tallies
from control_api.store.facets import Facet
from control_api.tenant_shapes import SessionDetail
from control_api.use_cases.rendered import session_detail
from policies.ground.errors import NotFound


class AskedSession(Asked):
    """Which session."""

    session_id: Identifier


async def get_session(service: Service, caller: Caller, asked: AskedSession) -> SessionDetail:
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
    counted = await tallies.one_of(connection, tenant_id, Facet.session, session_id)
    return session_detail(row, counted, now)
