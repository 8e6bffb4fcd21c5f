"""Lists the active policies."""

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_policy
from control_api.requests.base import Identifier, ListRequest
from control_api.responses.management import PolicyShown
from control_api.responses.paging import Page, SortKey, page_of
from control_api.store.queries import policies
from control_api.store.queries.policies import StoredPolicy

_CHUNK = 1000  # rows read at a time if most of them may not match


class PoliciesRequest(ListRequest):
    """Every filter is an exact match; a policy must match all that are given."""

    industry: Identifier | None = None
    process_group: Identifier | None = None
    agent_role: Identifier | None = None


async def list_policies(
    app: AppContext, caller: Caller, request: PoliciesRequest
) -> Page[PolicyShown]:
    """List active policies, newest first."""
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await _matching(connection, caller.tenant_id, request)
    return page_of(rows, request.limit, _position, shown_policy)


async def _matching(
    connection: AsyncConnection, tenant_id: str, request: PoliciesRequest
) -> list[StoredPolicy]:
    """The matching rows, up to one more than a page holds, to tell whether more follow."""
    after, wanted = request.after(int, str), request.limit + 1
    # Industry and process group are stored only inside a policy's body, so they are compared here.
    # The chunks are larger then, because few rows may match.
    filtered = request.industry is not None or request.process_group is not None
    chunk = _CHUNK if filtered else wanted
    found: list[StoredPolicy] = []
    while len(found) < wanted:
        rows = await policies.page(connection, tenant_id, request.agent_role, after, chunk)
        found += [row for row in rows if _matches(row, request)]
        if len(rows) < chunk:
            break
        after = _position(rows[-1])
    return found[:wanted]


def _matches(policy: StoredPolicy, request: PoliciesRequest) -> bool:
    return (request.industry is None or policy.body["industry"] == request.industry) and (
        request.process_group is None or policy.body["process_group"] == request.process_group
    )


def _position(policy: StoredPolicy) -> SortKey:
    return policy.created_at, policy.policy_id
