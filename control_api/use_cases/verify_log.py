"""Verify a tenant's log: the answer is 200 whether it holds or not."""

from control_api.asked import Nothing
from control_api.caller import Caller
from control_api.log.verify import verify
from control_api.service import Service
from control_api.shapes import Verified


async def verify_log(service: Service, caller: Caller, _: Nothing) -> Verified:
    """Walk the tenant's audit trail, and say whether it is what it was."""
    return Verified(**await verify(service.store, caller.tenant.tenant_id))
