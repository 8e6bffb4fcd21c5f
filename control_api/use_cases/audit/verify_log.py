"""Verify a tenant's log: the answer is 200 whether it holds or not."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log.verify import verify
from control_api.requests.base import EmptyRequest
from control_api.responses.audit import PurgeAnchor, SignedCheckpoint, Verified
from control_api.store.queries import log_keys


async def verify_log(service: AppContext, caller: Caller, _: EmptyRequest) -> Verified:
    """Walk the tenant's audit trail, and say whether it is what it was."""
    tenant_id = caller.tenant.tenant_id
    publics = await log_keys.trusted(service.store, service.ring)
    report = await verify(service.store, tenant_id, publics)
    anchor, noted = report["anchor"], report["checkpoint"]
    return Verified(
        **{
            **report,
            "anchor": None if anchor is None else PurgeAnchor(**anchor),
            "checkpoint": None if noted is None else SignedCheckpoint(**noted),
        }
    )
