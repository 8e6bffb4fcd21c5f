"""Lists a policy's versions, the current one included."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import Identifier, ListRequest
from control_api.responses.management import PolicyFields, PolicyVersion
from control_api.responses.paging import Page, page_of
from control_api.store.queries import policies
from control_api.store.queries.policies import StoredVersion
from policies.ground.canonical import rfc3339
from policies.ground.errors import NotFound


class PolicyVersionsRequest(ListRequest):
    """A deleted policy keeps its history."""

    policy_id: Identifier


async def list_policy_versions(
    app: AppContext, caller: Caller, request: PolicyVersionsRequest
) -> Page[PolicyVersion]:
    """List a policy's versions, newest first."""
    tenant_id, before = caller.tenant_id, request.seq()
    async with app.store.reading(tenant_id) as connection:
        # This finds deleted policies too: an auditor may ask for their history.
        if await policies.get(connection, tenant_id, request.policy_id) is None:
            raise NotFound(f"no such policy: `{request.policy_id}`")
        rows = await policies.versions(
            connection, tenant_id, request.policy_id, before, request.limit + 1
        )
    return page_of(rows, request.limit, lambda row: (row.version,), _shown)


def _shown(row: StoredVersion) -> PolicyVersion:
    return PolicyVersion(
        version=row.version,
        policy=PolicyFields(**row.body),
        changed_by=row.changed_by,
        changed_at=rfc3339(row.changed_at),
        change=row.change,
    )
