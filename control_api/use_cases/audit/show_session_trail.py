"""Shows a session's audit events in the order they were recorded."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log import read
from control_api.presenters import event_page
from control_api.requests.base import Identifier, ListRequest
from control_api.responses.audit import AuditEvent
from control_api.responses.paging import Page


class SessionTrailRequest(ListRequest):
    """`limit` and `cursor` select the page of events."""

    session_id: Identifier


async def show_session_trail(
    app: AppContext, caller: Caller, request: SessionTrailRequest
) -> Page[AuditEvent]:
    """Show a session's audit events in order; an unknown session is not found."""
    seq = request.seq()
    trail = await read.session_trail(
        app.store,
        caller.tenant_id,
        request.session_id,
        request.limit,
        after_seq=-1 if seq is None else seq,
    )
    return event_page(trail)
