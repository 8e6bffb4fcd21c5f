"""Changes an alert rule."""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.alerts.rule_change import new_secret, record, refuse_unusable
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import rule_change, shown_rule
from control_api.requests.alert_rule import Email, Minutes, Threshold, Url
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.alerts import AlertRule, AlertRuleWithSecret, RuleType
from control_api.store.queries import alerts
from control_api.store.queries.alerts import StoredRule
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound, invalid


class ChangedRule(RequestModel):
    """The fields to change. Fields left out keep their value. `rule_type` must be the rule's own
    type; `"webhook_secret": null` makes a new secret."""

    example: ClassVar[dict[str, Any]] = {"rule_type": "denial_spike", "threshold": 50}
    shown = AlertRule

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
        """The fields that the request gives, without the id and the secret."""
        return self.model_dump(include=self.model_fields_set - {"rule_id", "webhook_secret"})


async def update_alert_rule(
    app: AppContext, caller: Caller, request: ChangedRule
) -> AlertRuleWithSecret | AlertRule:
    """Change an alert rule; a new webhook secret is shown only in this response."""

    async def work(tx: Transaction) -> tuple[StoredRule, str | None]:
        rule = await alerts.rule(tx.connection, tx.tenant_id, request.rule_id)
        if rule is None:
            raise NotFound(f"no such alert rule: `{request.rule_id}`")
        if request.rule_type != rule.rule_type:
            raise invalid([f"rule_type: must stay `{rule.rule_type}`, the type of this rule"])
        changed, secret = _with_secret(app, rule, request)
        if changed == rule:
            return rule, None
        # Check the whole rule with its changes: a new threshold may not fit the old type.
        refuse_unusable(
            changed.rule_type,
            changed.threshold,
            changed.webhook_url,
            app.settings.webhook_allow,
        )
        # Always later than the last change, even if the clock steps back: the evaluator compares
        # this time to notice that a rule has changed since it was measured.
        changed = replace(changed, updated_at=max(tx.now, rule.updated_at + 1))
        await alerts.put(tx.connection, tx.tenant_id, changed)
        both = rule_change(rule, changed)
        await record(app, tx, "alert.updated", changed, caller.by, both)
        return changed, secret

    rule, secret = await app.store.write(caller.tenant_id, work)
    return shown_rule(rule, full_url=True, secret=secret)


def _with_secret(
    app: AppContext, rule: StoredRule, request: ChangedRule
) -> tuple[StoredRule, str | None]:
    """The changed rule, and its webhook secret if a new one was made."""
    # Without a webhook there is nothing to sign. A webhook that is set again gets a new secret, so
    # the former receiver can't forge alerts for the new one.
    changed = replace(rule, **request.changes())
    if changed.webhook_url is None:
        return replace(changed, webhook_secret=None), None
    if changed.webhook_secret is None or "webhook_secret" in request.model_fields_set:
        secret = new_secret(app.entropy)
        return replace(changed, webhook_secret=secret), secret
    return changed, None
