"""How long audit events are kept, and what the last purge left: the anchor that `verify` starts
from."""

from control_api.asked import Nothing
from control_api.caller import Caller
from control_api.log.anchor_check import shown
from control_api.service import Service
from control_api.shapes import PurgeAnchor, Retention
from control_api.store import purges
from control_api.tenant_change import stored
from control_api.use_cases.retention_settings import audit_policy


async def show_retention(service: Service, caller: Caller, _: Nothing) -> Retention:
    """Show the retention of audit events, and the anchor of the last purge."""
    tenant_id = caller.tenant.tenant_id
    async with service.store.reading(tenant_id) as connection:
        tenant = await stored(connection, tenant_id)
        anchor = await purges.newest(connection, tenant_id)
    return Retention(
        tenant.retention_days,
        audit_policy(tenant.retention_days),
        None if anchor is None else PurgeAnchor(**shown(anchor)),
    )
