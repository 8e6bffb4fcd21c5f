"""Lists the guardrails."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.guardrail_change import shown_guardrail
from control_api.requests.base import ListRequest
from control_api.responses.management import GuardrailShown
from control_api.responses.paging import Page, page_of
from control_api.store.queries import guardrails


async def list_guardrails(
    app: AppContext, caller: Caller, request: ListRequest
) -> Page[GuardrailShown]:
    """List guardrails, newest first."""
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await guardrails.page(
            connection, caller.tenant_id, request.after(int, str), request.limit + 1
        )
    return page_of(
        rows, request.limit, lambda row: (row.created_at, row.guardrail.name), shown_guardrail
    )
