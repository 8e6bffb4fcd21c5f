"""Lists the alert rules."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_rule
from control_api.requests.base import ListRequest
from control_api.responses.alerts import AlertRule
from control_api.responses.paging import Page, page_of
from control_api.store.queries import alerts


async def list_alert_rules(
    app: AppContext, caller: Caller, request: ListRequest
) -> Page[AlertRule]:
    """List alert rules, newest first."""
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await alerts.page(
            connection, caller.tenant_id, request.after(int, str), request.limit + 1
        )
    # A webhook URL often contains a secret, so only keys that may change a rule see the whole URL.
    full_url = caller.scope == "admin"
    return page_of(
        rows,
        request.limit,
        lambda row: (row.created_at, row.rule_id),
        lambda row: shown_rule(row, full_url=full_url),
    )
