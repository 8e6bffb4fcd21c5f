"""Shows a signed checkpoint of the tenant's log: a note that proves the log's size and content at
one time to anyone who has the log's public key."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import LogSize, RequestModel
from control_api.responses.audit import Document
from control_api.store.queries import checkpoints
from policies.ground.errors import NotFound


class CheckpointRequest(RequestModel):
    """`size` asks for an older checkpoint."""

    size: LogSize | None = None


async def show_checkpoint(app: AppContext, caller: Caller, request: CheckpointRequest) -> Document:
    """Show the latest signed checkpoint of the audit trail, or the one of a size."""
    async with app.store.reading(caller.tenant_id) as connection:
        if request.size is None:
            found = await checkpoints.latest(connection, caller.tenant_id)
        else:
            found = await checkpoints.at(connection, caller.tenant_id, request.size)
    if found is None:
        of = "" if request.size is None else f" of {request.size} entries"
        raise NotFound(f"no checkpoint{of}: the list of checkpoints shows those that are kept")
    return Document("text/plain; charset=utf-8", found.note.encode())
