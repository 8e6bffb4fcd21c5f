"""Lists the claimed sessions."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import session_fields
from control_api.requests.base import Identifier, ListRequest
from control_api.responses.paging import Page, page_of
from control_api.responses.tenants import SessionShown
from control_api.store.queries import sessions
from policies.definitions.model import SessionState


class SessionsRequest(ListRequest):
    """Every filter is an exact match; a session must match all that are given. `status` is the
    session's status at the time of the request."""

    agent_role: Identifier | None = None
    status: SessionState | None = None


async def list_sessions(
    app: AppContext, caller: Caller, request: SessionsRequest
) -> Page[SessionShown]:
    """List sessions, newest first."""
    now = app.clock.now()
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await sessions.page(
            connection,
            caller.tenant_id,
            agent_role=request.agent_role,
            state=request.status,
            now=now,
            after=request.after(int, str),
            limit=request.limit + 1,
        )
    return page_of(
        rows,
        request.limit,
        lambda row: (row.created_at, row.session_id),
        lambda row: SessionShown(**session_fields(row, now)),
    )
