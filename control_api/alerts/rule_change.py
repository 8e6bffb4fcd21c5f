"""Validates alert rules, creates their webhook secrets, and records their changes in the log."""

import base64
from collections.abc import Callable

from control_api.alerts.evaluator import target_of
from control_api.app_context import AppContext
from control_api.security.egress import AllowedHosts
from control_api.store.queries.alerts import StoredRule
from control_api.store.transaction import Transaction
from policies.ground.errors import invalid
from policies.trail.change import ObjectChange


def new_secret(entropy: Callable[[int], bytes]) -> str:
    """A webhook secret: `whsec_` and 32 random bytes in base64 (Standard Webhooks)."""
    return "whsec_" + base64.b64encode(entropy(32)).decode("ascii")


def refuse_unusable(
    rule_type: str, threshold: int, webhook_url: str | None, allowed: AllowedHosts
) -> None:
    """Raises `Invalid` if the rule could never fire, or if its webhook could never be called."""
    complaints = []
    if rule_type == "high_deny_rate" and threshold > 100:
        complaints.append("threshold: for `high_deny_rate` it is a percentage, at most 100")
    # This refuses literal addresses only: a name is resolved and checked at each delivery.
    if webhook_url is not None and not allowed.permits_url(webhook_url):
        complaints.append("webhook_url: its address is not public")
    if complaints:
        raise invalid(complaints)


async def record(
    app: AppContext, tx: Transaction, what: str, rule: StoredRule, by: str, change: ObjectChange
) -> None:
    """Log who changed the rule, and its new values."""
    url = rule.webhook_url
    detail = {
        "name": rule.name,
        "rule_type": rule.rule_type,
        "threshold": rule.threshold,
        "window_minutes": rule.window_minutes,
        "cooldown_minutes": rule.cooldown_minutes,
        "enabled": rule.enabled,
        # Without its path, which many receivers use as a secret.
        "webhook": None if url is None else target_of("webhook", url),
        "email": rule.email is not None,
    }
    await app.log_change(tx, what, rule.rule_id, by, detail, change)
