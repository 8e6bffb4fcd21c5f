"""Change an alert rule: its threshold, whom it tells, whether it is on."""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.alerts.rule_change import new_secret, record, refuse_unusable
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_rule
from control_api.requests.alert_rule import Email, Minutes, Threshold, Url
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.alerts import AlertRule, AlertRuleWithSecret, RuleType
from control_api.store.queries import alerts
from control_api.store.queries.alerts import StoredRule
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound, invalid


class ChangedRule(RequestModel):
    """The fields to change; those left out stay. `rule_type` must be the rule's;
    `"webhook_secret": null` makes a new one."""

    example: ClassVar[dict[str, Any]] = {"rule_type": "denial_spike", "threshold": 50}

    rule_id: Identifier
    rule_type: RuleType
    name: Identifier = ""
    threshold: Threshold = 1
    window_minutes: Minutes = 60
    cooldown_minutes: Minutes = 60
    min_events: Threshold = 5
    webhook_url: Url | None = None
    webhook_secret: None = None
    email: Email | None = None
    enabled: bool = True

    def changes(self) -> dict[str, Any]:
        """What was given."""
        return self.model_dump(include=self.model_fields_set - {"rule_id", "webhook_secret"})


async def update_alert_rule(
    service: AppContext, caller: Caller, asked: ChangedRule
) -> AlertRuleWithSecret | AlertRule:
    """Change an alert rule; a new webhook secret is in this answer and nowhere else."""

    async def work(tx: Transaction) -> tuple[StoredRule, str | None]:
        rule = await alerts.rule(tx.connection, tx.tenant_id, asked.rule_id)
        if rule is None:
            raise NotFound(f"no such alert rule: `{asked.rule_id}`")
        if asked.rule_type != rule.rule_type:
            raise invalid([f"rule_type: this rule is a `{rule.rule_type}`, and stays one"])
        changed, secret = _with_secret(service, rule, asked)
        if changed == rule:
            return rule, None
        refuse_unusable(
            changed.rule_type,
            changed.threshold,
            changed.webhook_url,
            service.settings.webhook_allow,
        )
        # Later than before, whatever the clock does: whoever measured the rule as it was must see
        # that it is another.
        changed = replace(changed, updated_at=max(tx.now, rule.updated_at + 1))
        await alerts.put(tx.connection, tx.tenant_id, changed)
        await record(tx, "alert.updated", changed, caller.by, service.new_id())
        return changed, secret

    rule, secret = await service.store.write(caller.tenant.tenant_id, work)
    return shown_rule(rule, whole=True, secret=secret)


def _with_secret(
    service: AppContext, rule: StoredRule, asked: ChangedRule
) -> tuple[StoredRule, str | None]:
    """The rule as asked for, and its webhook's secret if that is a new one."""
    changed = replace(rule, **asked.changes())
    if changed.webhook_url is None:
        return replace(changed, webhook_secret=None), None
    if changed.webhook_secret is None or "webhook_secret" in asked.model_fields_set:
        secret = new_secret(service.entropy)
        return replace(changed, webhook_secret=secret), secret
    return changed, None
