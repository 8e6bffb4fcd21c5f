"""States no level of a pattern any more: from then on, the request and the sidecar decide alone."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import source_levels
from control_api.requests.source import SourceRequest
from control_api.responses.audit import Empty
from control_api.store.transaction import Transaction


async def delete_source(app: AppContext, caller: Caller, request: SourceRequest) -> Empty:
    """Delete the level of a pattern; one deleted before is not found."""

    async def work(tx: Transaction) -> None:
        await source_levels.delete(app, tx, request.source_pattern, caller.by)

    await app.store.write(caller.tenant_id, work)
    return Empty()
