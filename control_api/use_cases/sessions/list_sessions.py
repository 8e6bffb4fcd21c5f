"""List the sessions that were claimed."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import session_fields
from control_api.requests.base import Identifier, Listed
from control_api.responses.paging import Page, page_of
from control_api.responses.tenants import SessionShown, SessionStatus
from control_api.store.queries import sessions


class AskedSessions(Listed):
    """Filters, each exact; together they narrow. A session's status is that of the moment."""

    agent_role: Identifier | None = None
    status: SessionStatus | None = None


async def list_sessions(
    service: AppContext, caller: Caller, asked: AskedSessions
) -> Page[SessionShown]:
    """List sessions, newest first."""
    now = service.clock.now()
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        rows = await sessions.page(
            connection,
            caller.tenant.tenant_id,
            agent_role=asked.agent_role,
            state=asked.status,
            now=now,
            after=asked.after(int, str),
            limit=asked.limit + 1,
        )
    return page_of(
        rows,
        asked.limit,
        lambda row: (row.created_at, row.session_id),
        lambda row: SessionShown(**session_fields(row, now)),
    )
