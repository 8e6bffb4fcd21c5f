"""Shows one session: its owner, its state, and the counts of its decisions."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.sessions import read_session
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.tenants import SessionDetail


class SessionRequest(RequestModel):
    """Names one session."""

    session_id: Identifier


async def get_session(app: AppContext, caller: Caller, request: SessionRequest) -> SessionDetail:
    """Show one session; a session that was never claimed is not found."""
    tenant_id = caller.tenant_id
    async with app.store.reading(tenant_id) as connection:
        return await read_session(connection, tenant_id, request.session_id, app.clock.now())
