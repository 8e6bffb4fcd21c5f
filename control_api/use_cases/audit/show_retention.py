"""Shows how long audit events are kept, and the anchor of the last purge."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.tenants import stored
from control_api.log.anchor_check import anchor_answer
from control_api.presenters import audit_policy_text
from control_api.requests.base import EmptyRequest
from control_api.responses.audit import PurgeAnchor, Retention
from control_api.store.queries import holds, purges, redactions


async def show_retention(app: AppContext, caller: Caller, _: EmptyRequest) -> Retention:
    """Show how long audit events are kept, the anchor of the last purge, and what a legal hold
    keeps."""
    tenant_id = caller.tenant_id
    async with app.store.reading(tenant_id) as connection:
        tenant = await stored(connection, tenant_id)
        anchor = await purges.latest_anchor(connection, tenant_id)
        held = await holds.active(connection, tenant_id)
        size = await redactions.log_size(connection, tenant_id) if held else 0
        kept = range(0 if anchor is None else anchor.purged.size, size)
        held_from = await holds.first_held(connection, tenant_id, held, kept, size)
    return Retention(
        tenant.retention_days,
        audit_policy_text(tenant.retention_days),
        None if anchor is None else PurgeAnchor(**anchor_answer(anchor)),
        held_from if held else None,
    )
