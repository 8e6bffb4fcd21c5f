"""Creates a guardrail, if what is in force does not break it."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import guardrail_change
from control_api.domain.guardrail_change import shown_guardrail
from control_api.domain.guardrails import require_new
from control_api.requests.guardrail import NewGuardrail
from control_api.responses.management import GuardrailShown
from control_api.store.queries import guardrails
from control_api.store.queries.guardrails import StoredGuardrail
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict


async def create_guardrail(
    app: AppContext, caller: Caller, request: NewGuardrail
) -> GuardrailShown:
    """Create a guardrail; one that the policies in force break is refused with a request that
    shows it."""

    async def work(tx: Transaction) -> StoredGuardrail:
        if await guardrails.get(tx.connection, tx.tenant_id, request.name) is not None:
            raise Conflict(f"a guardrail named `{request.name}` already exists")
        guardrail = request.guardrail()
        await require_new(tx, [guardrail])
        return await guardrail_change.create(app, tx, guardrail, caller.by)

    return shown_guardrail(await app.store.write(caller.tenant_id, work))
