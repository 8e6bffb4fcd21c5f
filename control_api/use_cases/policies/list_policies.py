"""List the active policies."""

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_policy
from control_api.requests.base import Identifier, Listed
from control_api.responses.management import PolicyShown
from control_api.responses.paging import Page, Place, page_of
from control_api.store.queries import policies
from control_api.store.queries.policies import StoredPolicy

_CHUNK = 1000


class AskedPolicies(Listed):
    """Filters, each exact; together they narrow."""

    industry: Identifier | None = None
    process_group: Identifier | None = None
    agent_role: Identifier | None = None


async def list_policies(
    service: AppContext, caller: Caller, asked: AskedPolicies
) -> Page[PolicyShown]:
    """List active policies, newest first."""
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        rows = await _matching(connection, caller.tenant.tenant_id, asked)
    return page_of(rows, asked.limit, _place, shown_policy)


async def _matching(
    connection: AsyncConnection, tenant_id: str, asked: AskedPolicies
) -> list[StoredPolicy]:
    """One more than a page. Industry and process group stand inside a policy's body alone, so they
    are compared here."""
    after, wanted = asked.after(int, str), asked.limit + 1
    filtered = asked.industry is not None or asked.process_group is not None
    chunk = _CHUNK if filtered else wanted
    found: list[StoredPolicy] = []
    while len(found) < wanted:
        rows = await policies.page(connection, tenant_id, asked.agent_role, after, chunk)
        found += [row for row in rows if _matches(row, asked)]
        if len(rows) < chunk:
            break
        after = _place(rows[-1])
    return found[:wanted]


def _matches(policy: StoredPolicy, asked: AskedPolicies) -> bool:
    return (asked.industry is None or policy.body["industry"] == asked.industry) and (
        asked.process_group is None or policy.body["process_group"] == asked.process_group
    )


def _place(policy: StoredPolicy) -> Place:
    return policy.created_at, policy.policy_id
