"""List the alert rules."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_rule
from control_api.requests.base import Listed
from control_api.responses.alerts import AlertRule
from control_api.responses.paging import Page, page_of
from control_api.store.queries import alerts


class AskedRules(Listed):
    """All of them."""


async def list_alert_rules(
    service: AppContext, caller: Caller, asked: AskedRules
) -> Page[AlertRule]:
    """List alert rules, newest first."""
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        rows = await alerts.page(
            connection, caller.tenant.tenant_id, asked.after(int, str), asked.limit + 1
        )
    whole = caller.scope == "admin"
    return page_of(
        rows,
        asked.limit,
        lambda row: (row.created_at, row.rule_id),
        lambda row: shown_rule(row, whole=whole),
    )
