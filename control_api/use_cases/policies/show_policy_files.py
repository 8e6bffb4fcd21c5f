"""Shows whether a tenant's policy files are in force."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import EmptyRequest
from control_api.responses.management import PolicyFiles
from control_api.responses.times import time_or_none


async def show_policy_files(app: AppContext, caller: Caller, _: EmptyRequest) -> PolicyFiles:
    """Show whether the tenant's policy files are in force, or why they were refused when they were
    last read."""
    refused = app.refused_files.get(caller.tenant_id)
    return PolicyFiles(
        watched=app.settings.policy_dir is not None,
        refused_at=time_or_none(None if refused is None else refused.at),
        faults=[] if refused is None else list(refused.faults),
    )
