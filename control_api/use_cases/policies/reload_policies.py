"""Reloads a tenant's policies from its files on request."""

from dataclasses import replace

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.policy_folders import unowned_folders
from control_api.domain.policy_reload import FilesBreakGuardrail, reload_tenant
from control_api.requests.base import EmptyRequest
from control_api.responses.management import Reloaded
from control_api.revision_context import WRITTEN
from policies.definitions.definition import LoadError
from policies.ground.errors import Conflict, Invalid


async def reload_policies(app: AppContext, caller: Caller, _: EmptyRequest) -> Reloaded:
    """Reload the tenant's policy files; if any file is invalid, or they would break a guardrail,
    nothing changes."""
    # The revision to report if the files match the store, and so nothing is written.
    WRITTEN.set(caller.tenant.policy_set.revision)
    tenant_id = caller.tenant_id
    try:
        done = await reload_tenant(app, tenant_id, caller.by)
    except FilesBreakGuardrail as error:
        raise Conflict(
            f"the policy files would break a guardrail: {error}", details=error.broken.details
        ) from error
    except LoadError as error:
        raise Invalid(
            "the policy files can't be used; nothing was changed", details=str(error)
        ) from error
    return replace(done, warnings=await _warnings(app, tenant_id))


async def _warnings(app: AppContext, tenant_id: str) -> list[str]:
    """Warns of folders that belong to no tenant, but whose names look like this tenant's id."""
    if app.settings.policy_dir is None:
        return ["SLUICE_POLICY_DIR is not set: no policy comes from a file"]
    found = await unowned_folders(app)
    # The other folders are the operator's business, so this tenant does not see them.
    return [str(each) for each in found if each.nearest == tenant_id]
