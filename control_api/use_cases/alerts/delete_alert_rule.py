"""Deletes an alert rule. Alerts that the rule has already fired are still delivered."""

from control_api.alerts.rule_change import record
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import rule_change
from control_api.requests.alert_rule import RuleRequest
from control_api.responses.audit import Empty
from control_api.store.queries import alerts
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound


async def delete_alert_rule(app: AppContext, caller: Caller, request: RuleRequest) -> Empty:
    """Delete an alert rule; a rule deleted before is not found."""

    async def work(tx: Transaction) -> None:
        rule = await alerts.rule(tx.connection, tx.tenant_id, request.rule_id)
        if rule is None:
            raise NotFound(f"no such alert rule: `{request.rule_id}`")
        await alerts.remove(tx.connection, tx.tenant_id, rule.rule_id)
        await record(app, tx, "alert.deleted", rule, caller.by, rule_change(rule, None))

    await app.store.write(caller.tenant_id, work)
    return Empty()
