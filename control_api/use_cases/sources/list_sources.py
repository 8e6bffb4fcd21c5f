"""Lists the levels that the tenant states of its sources."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import source_levels
from control_api.requests.base import ListRequest
from control_api.responses.paging import Page, page_of
from control_api.responses.sources import SourceShown


async def list_sources(app: AppContext, caller: Caller, request: ListRequest) -> Page[SourceShown]:
    """List the levels of sources, in order of pattern."""
    after = request.after(str)
    async with app.store.reading(caller.tenant_id) as connection:
        levels = await source_levels.read(connection, caller.tenant_id)
    rows = sorted(each for each in levels.items() if after is None or each[0] > str(after[0]))
    return page_of(rows, request.limit, lambda row: (row[0],), lambda row: SourceShown(*row))
