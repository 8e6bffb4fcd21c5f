"""A session's audit events, in the order in which they were recorded."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log import read
from control_api.requests.base import Identifier, Listed
from control_api.responses.audit import AuditEvent
from control_api.responses.paging import Page


class AskedTrail(Listed):
    """Which session."""

    session_id: Identifier


async def show_session_trail(
    service: AppContext, caller: Caller, asked: AskedTrail
) -> Page[AuditEvent]:
    """Show a session's audit events in order; a session never seen is not found."""
    seq = asked.seq()
    trail = await read.session_trail(
        service.store,
        caller.tenant.tenant_id,
        asked.session_id,
        asked.limit,
        after_seq=-1 if seq is None else seq,
    )
    events = [AuditEvent(**event) for event in trail.events]
    return Page(events, None if trail.next is None else (trail.next,))
