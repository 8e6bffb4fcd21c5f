"""Shows an audit event and the actions recorded on it."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log import read
from control_api.requests.base import Identifier, ListRequest
from control_api.responses.audit import AuditEvent, Lineage, LineageAction
from control_api.responses.paging import PagedPart


class LineageRequest(ListRequest):
    """`limit` and `cursor` select the page of actions."""

    event_id: Identifier


async def show_lineage(
    app: AppContext, caller: Caller, request: LineageRequest
) -> PagedPart[Lineage]:
    """Show an audit event and the actions recorded on it, in order."""
    seq = request.seq()  # None for the first page, which begins at entry 0
    event, actions = await read.lineage(
        app.store,
        caller.tenant_id,
        request.event_id,
        request.limit,
        after_seq=-1 if seq is None else seq,
    )
    shown = Lineage(AuditEvent(**event), [LineageAction(**each) for each in actions.events])
    return PagedPart(shown, None if actions.next is None else (actions.next,))
