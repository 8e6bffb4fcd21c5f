"""Drops a candidate, with everything that was counted of it."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import candidates
from control_api.requests.candidate import CandidateRequest
from control_api.responses.audit import Empty
from control_api.store.transaction import Transaction


async def drop_candidate(app: AppContext, caller: Caller, request: CandidateRequest) -> Empty:
    """Drop a candidate; the active policies stay as they are."""

    async def work(tx: Transaction) -> None:
        found = candidates.held(await candidates.listed(tx), request.name)
        await candidates.drop(app, tx, found, "dropped", caller.by)

    await app.store.write(caller.tenant_id, work)
    return Empty()
