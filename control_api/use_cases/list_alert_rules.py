"""List the alert rules."""

from control_api.alert_shapes import AlertRule
from control_api.asked import Listed
from control_api.caller import Caller
from control_api.paging import Page, page_of
from control_api.service import Service
from control_api.store import alerts
from control_api.use_cases.rendered import shown_rule


class AskedRules(Listed):
    """All of them."""


async def list_alert_rules(service: Service, caller: Caller, asked: AskedRules) -> Page[AlertRule]:
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
