"""A policy's history: every version there ever was of it, the present one included."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import Identifier, Listed
from control_api.responses.management import PolicyFields, PolicyVersion
from control_api.responses.paging import Page, page_of
from control_api.store.queries import policies
from control_api.store.queries.policies import StoredVersion
from policies.ground.canonical import rfc3339
from policies.ground.errors import NotFound


class AskedVersions(Listed):
    """Of which policy; deleted ones have a history, too."""

    policy_id: Identifier


async def list_policy_versions(
    service: AppContext, caller: Caller, asked: AskedVersions
) -> Page[PolicyVersion]:
    """List a policy's versions, newest first."""
    tenant_id, before = caller.tenant.tenant_id, asked.seq()
    async with service.store.reading(tenant_id) as connection:
        if await policies.get(connection, tenant_id, asked.policy_id) is None:
            raise NotFound(f"no such policy: `{asked.policy_id}`")
        rows = await policies.versions(
            connection, tenant_id, asked.policy_id, before, asked.limit + 1
        )
    return page_of(rows, asked.limit, lambda row: (row.version,), _shown)


def _shown(row: StoredVersion) -> PolicyVersion:
    return PolicyVersion(
        version=row.version,
        policy=PolicyFields(**row.body),
        changed_by=row.changed_by,
        changed_at=rfc3339(row.changed_at),
        change=row.change,  # type: ignore[arg-type]  # written from the same set
    )
