"""Shows one alert rule."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_rule
from control_api.requests.alert_rule import RuleRequest
from control_api.responses.alerts import AlertRule
from control_api.store.queries import alerts
from policies.ground.errors import NotFound


async def get_alert_rule(app: AppContext, caller: Caller, request: RuleRequest) -> AlertRule:
    """Show an alert rule, without its webhook secret."""
    async with app.store.reading(caller.tenant_id) as connection:
        rule = await alerts.rule(connection, caller.tenant_id, request.rule_id)
    if rule is None:
        raise NotFound(f"no such alert rule: `{request.rule_id}`")
    return shown_rule(rule, full_url=caller.scope == "admin")
