"""Deletes a guardrail: from then on, policies may do what it forbade."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import guardrail_change
from control_api.requests.guardrail import GuardrailRequest
from control_api.responses.audit import Empty
from control_api.store.transaction import Transaction


async def delete_guardrail(app: AppContext, caller: Caller, request: GuardrailRequest) -> Empty:
    """Delete a guardrail; one deleted before is not found."""

    async def work(tx: Transaction) -> None:
        row = await guardrail_change.existing(tx, request.name)
        guardrail_change.refuse_defined(row)
        await guardrail_change.delete(app, tx, row, caller.by)

    await app.store.write(caller.tenant_id, work)
    return Empty()
