"""Defines the operations on alert rules and fired alerts. Each change of a rule is recorded in the
log."""

import base64
from collections.abc import Callable
from dataclasses import asdict, replace

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.alerts import queries
from control_api.alerts.channels import Alerts
from control_api.alerts.models import (
    AlertRule,
    AlertRuleWithSecret,
    ChangedRule,
    FiredAlert,
    NewRule,
    RuleRequest,
    target_of,
)
from control_api.alerts.queries import StoredRule
from control_api.auth import Caller
from control_api.edge.answers import Empty, Page, page_of
from control_api.edge.requests import ListRequest, Repeated, id_entropy
from control_api.security.egress import AllowedHosts
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict, NotFound, invalid
from policies.ground.ids import prefixed
from policies.trail.change import ObjectChange

# Every rule costs work each time the log grows.
MAX_RULES = 200
"""The most rules of one tenant."""


async def list_alert_rules(alerts: Alerts, caller: Caller, request: ListRequest) -> Page[AlertRule]:
    """List alert rules, newest first."""
    async with alerts.store.reading(caller.tenant_id) as connection:
        rows = await queries.page_of_rules(
            connection, caller.tenant_id, request.after(int, str), request.limit + 1
        )
    # A webhook URL often contains a secret, so only keys that may change a rule see the whole URL.
    full_url = caller.scope == "admin"
    return page_of(
        rows,
        request.limit,
        lambda row: (row.created_at, row.rule_id),
        lambda row: AlertRule.of(row, full_url=full_url),
    )


async def create_alert_rule(
    alerts: Alerts, caller: Caller, request: NewRule
) -> AlertRuleWithSecret | AlertRule:
    """Create an alert rule; its webhook secret is shown only in this response."""
    # This check reads nothing, so it need not hold the tenant's lock.
    _refuse_unusable(
        request.rule_type, request.threshold, request.webhook_url, alerts.allowed_hosts
    )
    secret = None if request.webhook_url is None else _new_secret(alerts.entropy)
    entropy = id_entropy(request.idempotency_key, caller.tenant_id, alerts.entropy)
    rule_id = prefixed("alr_", entropy)

    async def work(tx: Transaction) -> StoredRule:
        if await queries.rule(tx.connection, tx.tenant_id, rule_id) is not None:
            raise Repeated("alert rule", rule_id)
        # Counted under the tenant's lock: two requests at once can't both pass the limit.
        if await queries.count_rules(tx.connection, tx.tenant_id) >= MAX_RULES:
            raise Conflict(
                f"the tenant already has {MAX_RULES} alert rules, the most allowed: delete one"
            )
        rule = StoredRule(
            rule_id=rule_id,
            **request.model_dump(exclude={"idempotency_key"}),
            webhook_secret=secret,
            created_at=tx.now,
            updated_at=tx.now,
        )
        await queries.add_rule(tx.connection, tx.tenant_id, rule)
        await _record(alerts, tx, "alert.created", None, rule, caller.by)
        return rule

    rule = await alerts.store.write(caller.tenant_id, work)
    return AlertRule.of(rule, full_url=True, secret=secret)


async def get_alert_rule(alerts: Alerts, caller: Caller, request: RuleRequest) -> AlertRule:
    """Show an alert rule, without its webhook secret."""
    async with alerts.store.reading(caller.tenant_id) as connection:
        rule = await _existing(connection, caller.tenant_id, request.rule_id)
    return AlertRule.of(rule, full_url=caller.scope == "admin")


async def _existing(connection: AsyncConnection, tenant_id: str, rule_id: str) -> StoredRule:
    if (rule := await queries.rule(connection, tenant_id, rule_id)) is None:
        raise NotFound(f"no such alert rule: `{rule_id}`")
    return rule


async def update_alert_rule(
    alerts: Alerts, caller: Caller, request: ChangedRule
) -> AlertRuleWithSecret | AlertRule:
    """Change an alert rule; a new webhook secret is shown only in this response."""

    async def work(tx: Transaction) -> tuple[StoredRule, str | None]:
        rule = await _existing(tx.connection, tx.tenant_id, request.rule_id)
        if request.rule_type != rule.rule_type:
            raise invalid([f"rule_type: must stay `{rule.rule_type}`, the type of this rule"])
        changed, secret = _with_secret(alerts, rule, request)
        if changed == rule:
            return rule, None
        # Check the whole rule with its changes: a new threshold may not fit the old type.
        _refuse_unusable(
            changed.rule_type, changed.threshold, changed.webhook_url, alerts.allowed_hosts
        )
        # Always later than the last change, even if the clock steps back: the evaluator compares
        # this time to notice that a rule has changed since it was measured.
        changed = replace(changed, updated_at=max(tx.now, rule.updated_at + 1))
        await queries.put_rule(tx.connection, tx.tenant_id, changed)
        await _record(alerts, tx, "alert.updated", rule, changed, caller.by)
        return changed, secret

    rule, secret = await alerts.store.write(caller.tenant_id, work)
    return AlertRule.of(rule, full_url=True, secret=secret)


async def delete_alert_rule(alerts: Alerts, caller: Caller, request: RuleRequest) -> Empty:
    """Delete an alert rule; a rule deleted before is not found."""

    async def work(tx: Transaction) -> None:
        rule = await _existing(tx.connection, tx.tenant_id, request.rule_id)
        # What the rule has fired already is still delivered.
        await queries.remove_rule(tx.connection, tx.tenant_id, rule.rule_id)
        await _record(alerts, tx, "alert.deleted", rule, None, caller.by)

    await alerts.store.write(caller.tenant_id, work)
    return Empty()


async def list_fired_alerts(
    alerts: Alerts, caller: Caller, request: ListRequest
) -> Page[FiredAlert]:
    """List fired alerts with the state of their delivery, newest first."""
    async with alerts.store.reading(caller.tenant_id) as connection:
        rows = await queries.page_of_deliveries(
            connection, caller.tenant_id, request.after(int, str), request.limit + 1
        )
    return page_of(rows, request.limit, lambda row: (row.fired_at, row.delivery_id), FiredAlert.of)


def _with_secret(
    alerts: Alerts, rule: StoredRule, request: ChangedRule
) -> tuple[StoredRule, str | None]:
    """Return the rule with the requested changes, and the webhook secret if a new one was made,
    else None."""
    # Without a webhook there is nothing to sign. A webhook that is set again gets a new secret, so
    # the former receiver can't forge alerts for the new one.
    changed = replace(rule, **request.changes())
    if changed.webhook_url is None:
        return replace(changed, webhook_secret=None), None
    if changed.webhook_secret is None or "webhook_secret" in request.model_fields_set:
        secret = _new_secret(alerts.entropy)
        return replace(changed, webhook_secret=secret), secret
    return changed, None


def _new_secret(entropy: Callable[[int], bytes]) -> str:
    """Make a webhook secret: `whsec_` and 32 random bytes in base64 (Standard Webhooks)."""
    return "whsec_" + base64.b64encode(entropy(32)).decode("ascii")


def _refuse_unusable(
    rule_type: str, threshold: int, webhook_url: str | None, allowed: AllowedHosts
) -> None:
    """Raise `Invalid` if the rule could never fire, or if its webhook could never be called."""
    complaints = []
    if rule_type == "high_deny_rate" and threshold > 100:
        complaints.append("threshold: for `high_deny_rate` it is a percentage, at most 100")
    # This refuses literal addresses only: a name is resolved and checked at each delivery.
    if webhook_url is not None and not allowed.permits_url(webhook_url):
        complaints.append("webhook_url: its address is not public")
    if complaints:
        raise invalid(complaints)


_LOGGED = ("name", "rule_type", "threshold", "window_minutes", "cooldown_minutes", "enabled")


async def _record(
    alerts: Alerts,
    tx: Transaction,
    what: str,
    before: StoredRule | None,
    after: StoredRule | None,
    by: str,
) -> None:
    """Record in the log who changed the rule, and its values: the new ones, or the last ones of a
    deleted rule."""
    rule = after or before
    assert rule is not None
    url = rule.webhook_url
    detail = {name: getattr(rule, name) for name in _LOGGED}
    # Without its path, which many receivers use as a secret.
    detail["webhook"] = None if url is None else target_of("webhook", url)
    detail["email"] = rule.email is not None
    change = ObjectChange(_logged(before), _logged(after), ("email",))
    await alerts.changes.record(tx, what, rule.rule_id, by, detail, change)


def _logged(rule: StoredRule | None) -> dict[str, object] | None:
    """Return the rule as it is shown to keys that may not change it, for the log. `ObjectChange`
    masks its email address."""
    return None if rule is None else asdict(AlertRule.of(rule, full_url=False))
