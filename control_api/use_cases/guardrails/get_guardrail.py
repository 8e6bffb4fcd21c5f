"""Shows one guardrail."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.guardrail_change import shown_guardrail
from control_api.requests.guardrail import GuardrailRequest
from control_api.responses.management import GuardrailShown
from control_api.store.queries import guardrails
from policies.ground.errors import NotFound


async def get_guardrail(
    app: AppContext, caller: Caller, request: GuardrailRequest
) -> GuardrailShown:
    """Show one guardrail."""
    async with app.store.reading(caller.tenant_id) as connection:
        row = await guardrails.get(connection, caller.tenant_id, request.name)
    if row is None:
        raise NotFound(f"no such guardrail: `{request.name}`")
    return shown_guardrail(row)
