"""Shows what roles may read of which sources, in a table."""

from typing import Any

import orjson
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.analyses import here
from control_api.analyses.job import Job
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import ends_with_client
from control_api.requests.base import Identifier, ListRequest, QueryInt
from control_api.responses.access import AccessCell, AccessMatrix, AccessOfRole
from control_api.responses.paging import PagedPart
from control_api.store.queries import documents
from policies.analysis.matrix import Columns
from policies.definitions.wildcard import is_pattern, matcher
from policies.sets.policy_set import ROLE, role_name

MAX_SCANNED = 5_000
"""The names of roles that a request compares with its pattern."""
_CHUNK = 500
_LARGE = 1 << 20


class AccessMatrixRequest(ListRequest):
    """Which roles and sources to show. `agent_role` and `source_id` may be patterns; without a
    `source_id`, the columns are the entries of the roles' policies."""

    limit: QueryInt = Field(20, ge=1, le=50, description="The most roles to return.")
    agent_role: Identifier | None = None
    source_id: Identifier | None = None
    sources: QueryInt = Field(12, ge=1, le=50, description="The most sources to return.")
    source_after: Identifier | None = None


@ends_with_client
async def show_access_matrix(
    app: AppContext, caller: Caller, request: AccessMatrixRequest
) -> PagedPart[AccessMatrix]:
    """Show the highest level at which each role's policies allow each source.

    The columns are the sources and patterns as policies name them, or those that overlap
    `source_id`. Exact, as far as the policies go: which registered agents may act in a role now,
    `show_access` says. A page may be shorter than `limit`, or empty, and still have a
    next one.
    """
    tenant_id = caller.tenant_id
    async with app.store.snapshot(tenant_id) as connection:
        names, after = await _names(connection, tenant_id, request)
        bodies = [
            body async for _, body in documents.bodies(connection, tenant_id, names, small=_LARGE)
        ]
    roles = b"[" + b",".join(bodies) + b"]"
    columns = Columns(request.source_id, request.source_after, request.sources)
    job = Job("matrix", columns._asdict(), (roles,))
    found = orjson.loads(await here.answer(app.analyses, tenant_id, job))
    return PagedPart(_shown(found), after)


async def _names(
    connection: AsyncConnection, tenant_id: str, request: AccessMatrixRequest
) -> tuple[list[str], tuple[str] | None]:
    """The documents of the roles of this page, and after which one the next page begins."""
    wanted = request.agent_role
    if wanted is not None and not is_pattern(wanted):
        return [role_name(wanted)], None
    matches = _anything if wanted is None else matcher((wanted,))
    given = request.after(str)
    after = None if given is None else str(given[0])
    found: list[str] = []
    for _ in range(MAX_SCANNED // _CHUNK):
        names = await documents.names_after(connection, tenant_id, ROLE, after, _CHUNK)
        for name in names:
            if matches(name.removeprefix(ROLE)):
                if len(found) == request.limit:
                    return found, (found[-1],)
                found.append(name)
        if len(names) < _CHUNK:
            return found, None
        after = names[-1]
    return found, None if after is None else (after,)


def _anything(_name: str) -> bool:
    return True


def _shown(found: dict[str, Any]) -> AccessMatrix:
    rows = [
        AccessOfRole(
            row["agent_role"],
            None if row["cells"] is None else [AccessCell(**each) for each in row["cells"]],
            row["fault"],
        )
        for row in found["roles"]
    ]
    return AccessMatrix(found["sources"], found["next_source"], rows)
