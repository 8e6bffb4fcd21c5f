"""Verifies a tenant's log. The response is 200 whether the log is valid or not."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log.verify import verify
from control_api.requests.base import EmptyRequest
from control_api.responses.audit import PurgeAnchor, SignedCheckpoint, Verified
from control_api.store.queries import log_keys


async def verify_log(app: AppContext, caller: Caller, _: EmptyRequest) -> Verified:
    """Verify the tenant's audit trail; the response names the first entry that fails, if any."""
    tenant_id = caller.tenant_id
    # All keys of the chain: a former key's signatures stay valid after a rotation.
    publics = await log_keys.trusted(app.store, app.ring)
    report = await verify(app.store, tenant_id, publics)
    anchor, checkpoint = report["anchor"], report["checkpoint"]
    return Verified(
        **{
            **report,
            "anchor": None if anchor is None else PurgeAnchor(**anchor),
            "checkpoint": None if checkpoint is None else SignedCheckpoint(**checkpoint),
        }
    )
