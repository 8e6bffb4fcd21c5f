"""States the level of the sources that a pattern matches."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import source_levels
from control_api.requests.source import SourceAsked
from control_api.responses.sources import SourceShown
from control_api.store.transaction import Transaction


async def put_source(app: AppContext, caller: Caller, request: SourceAsked) -> SourceShown:
    """State the level at which the sources of a pattern are decided at least, whatever a request
    states."""

    async def work(tx: Transaction) -> None:
        await source_levels.put(
            app, tx, request.source_pattern, request.sensitivity_level, caller.by
        )

    await app.store.write(caller.tenant_id, work)
    return SourceShown(request.source_pattern, request.sensitivity_level)
