"""An event, and what followed from it."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log import read
from control_api.requests.base import Identifier, Listed
from control_api.responses.audit import AuditEvent, Lineage, LineageAction
from control_api.responses.paging import Part


class AskedLineage(Listed):
    """Which event; pages are of its actions."""

    event_id: Identifier


async def show_lineage(service: AppContext, caller: Caller, asked: AskedLineage) -> Part[Lineage]:
    """Show an audit event and the actions recorded on it, in order."""
    seq = asked.seq()
    event, actions = await read.lineage(
        service.store,
        caller.tenant.tenant_id,
        asked.event_id,
        asked.limit,
        after_seq=-1 if seq is None else seq,
    )
    shown = Lineage(AuditEvent(**event), [LineageAction(**each) for each in actions.events])
    return Part(shown, None if actions.next is None else (actions.next,))
