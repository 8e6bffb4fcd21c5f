"""Lists the tenant's candidates."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.candidates import listed_candidate
from control_api.domain.tenants import stored
from control_api.requests.base import ListRequest
from control_api.responses.candidates import CandidateListed
from control_api.responses.paging import Page, page_of
from control_api.store.queries import candidates


async def list_candidates(
    app: AppContext, caller: Caller, request: ListRequest
) -> Page[CandidateListed]:
    """List the candidates in order of name, each with its counts."""
    after = request.after(str)
    async with app.store.reading(caller.tenant_id) as connection:
        tenant = await stored(connection, caller.tenant_id)
        rows = [
            (each, await candidates.totals(connection, caller.tenant_id, each.listed))
            for each in candidates.read_candidates(tenant.candidates)
            if after is None or each.name > str(after[0])
        ]
    return page_of(
        rows, request.limit, lambda row: (row[0].name,), lambda row: listed_candidate(*row)
    )
