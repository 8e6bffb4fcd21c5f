"""An event, and what followed from it."""

from control_api.asked import Asked, Identifier
from control_api.caller import Caller
from control_api.log import read
from control_api.service import Service
from control_api.shapes import AuditEvent, Lineage, LineageAction


class AskedLineage(Asked):
    """Which event."""

    event_id: Identifier


async def show_lineage(service: Service, caller: Caller, asked: AskedLineage) -> Lineage:
    """Show an audit event and the actions recorded on it, in order."""
    event, actions = await read.lineage(service.store, caller.tenant.tenant_id, asked.event_id)
    return Lineage(AuditEvent(**event), [LineageAction(**action) for action in actions])
