"""Lists the active policies."""

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_policy
from control_api.requests.base import Identifier, ListRequest
from control_api.responses.management import PolicyShown
from control_api.responses.paging import Page, SortKey, page_of
from control_api.store.queries import policies
from control_api.store.queries.policies import Filter, StoredPolicy


class PoliciesRequest(ListRequest):
    """A policy must match all filters that are given. Those of names and sources find parts of
    them, the others are exact."""

    name: Identifier | None = None
    source: Identifier | None = None
    industry: Identifier | None = None
    process_group: Identifier | None = None
    agent_role: Identifier | None = None


async def list_policies(
    app: AppContext, caller: Caller, request: PoliciesRequest
) -> Page[PolicyShown]:
    """List active policies, newest first."""
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await _matching(connection, caller.tenant_id, request)
        authors = await policies.authors(connection, caller.tenant_id, rows[: request.limit])
    return page_of(
        rows, request.limit, _position, lambda row: shown_policy(row, authors[row.policy_id])
    )


async def _matching(
    connection: AsyncConnection, tenant_id: str, request: PoliciesRequest
) -> list[StoredPolicy]:
    """The matching rows, up to one more than a page holds, to tell whether more follow."""
    after, wanted = request.after(int, str), request.limit + 1
    named = {"industry": request.industry, "process_group": request.process_group}
    members = {name: value for name, value in named.items() if value is not None}
    wanting = Filter(request.agent_role, request.name, request.source, members)
    found: list[StoredPolicy] = []
    while len(found) < wanted:
        rows = await policies.page(connection, tenant_id, wanting, after, wanted)
        found += [row for row in rows if _matches(row, request.source)]
        if len(rows) < wanted:
            break
        after = _position(rows[-1])
    return found[:wanted]


def _matches(policy: StoredPolicy, source: str | None) -> bool:
    # The query finds the text of a source anywhere in the body.
    body = policy.body
    return source is None or any(
        source in each for each in (*body["allowed_sources"], *body["denied_sources"])
    )


def _position(policy: StoredPolicy) -> SortKey:
    return policy.created_at, policy.policy_id
