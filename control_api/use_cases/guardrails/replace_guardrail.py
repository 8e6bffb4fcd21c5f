"""Replaces a guardrail, if what is in force does not break the new one."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import guardrail_change
from control_api.domain.guardrail_change import shown_guardrail
from control_api.domain.guardrails import require_new
from control_api.requests.guardrail import GuardrailAsked
from control_api.responses.management import GuardrailShown
from control_api.store.queries.guardrails import StoredGuardrail
from control_api.store.transaction import Transaction


async def replace_guardrail(
    app: AppContext, caller: Caller, request: GuardrailAsked
) -> GuardrailShown:
    """Replace a guardrail; one that the policies in force break is refused with a request that
    shows it."""

    async def work(tx: Transaction) -> StoredGuardrail:
        row = await guardrail_change.existing(tx, request.name)
        guardrail_change.refuse_defined(row)
        guardrail = request.guardrail()
        if row.guardrail == guardrail:
            return row  # so that a retry of the same request changes nothing
        await require_new(tx, [guardrail])
        return await guardrail_change.change(app, tx, row, guardrail, caller.by)

    return shown_guardrail(await app.store.write(caller.tenant_id, work))
