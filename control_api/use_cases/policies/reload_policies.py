"""Reloads a tenant's policies from its files on request."""

from dataclasses import replace

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.policies.policy_folders import unowned_folders
from control_api.policies.policy_reload import reload_tenant
from control_api.requests.base import EmptyRequest
from control_api.responses.management import Reloaded
from control_api.revision_context import WRITTEN
from policies.definitions.definition import LoadError
from policies.ground.errors import Invalid


async def reload_policies(service: AppContext, caller: Caller, _: EmptyRequest) -> Reloaded:
    """Read the tenant's policy files again; one bad file, and nothing changes."""
    # Where the files say what is there already, nothing is written.
    WRITTEN.set(caller.tenant.policy_set.revision)
    tenant_id = caller.tenant.tenant_id
    try:
        done = await reload_tenant(service, tenant_id, caller.by)
    except LoadError as error:
        raise Invalid(
            "the policy files can't be used; nothing was changed", details=str(error)
        ) from error
    return replace(done, warnings=await _warnings(service, tenant_id))


async def _warnings(service: AppContext, tenant_id: str) -> list[str]:
    """Of the folders that belong to no tenant, those that look like this one's: what else lies in
    the directory is the operator's to know."""
    if service.settings.policy_dir is None:
        return ["SLUICE_POLICY_DIR is not set: no policy comes from a file"]
    found = await unowned_folders(service)
    return [str(each) for each in found if each.nearest == tenant_id]
