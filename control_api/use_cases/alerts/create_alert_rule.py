"""Create an alert rule."""

import base64
from collections.abc import Callable
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from control_api.alerts.evaluator import target_of
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_rule
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.alerts import AlertRule, AlertRuleWithSecret, RuleType
from control_api.security.egress import AllowedHosts, literal
from control_api.store.queries import alerts
from control_api.store.queries.alerts import StoredRule
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict, invalid
from policies.ground.ids import prefixed
from policies.trail.record import change_record

WEEK = 7 * 24 * 60
MOST_RULES = 200
"""Of a tenant: each is measured whenever the log grows."""


_PORT = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
# One that can be called and hides nothing: no user, no fragment.
_URL = rf"^https?://{_LABEL}(\.{_LABEL})*\.?(:({_PORT}))?([/?][!$-~]*)?$"
Url = Annotated[str, Field(max_length=2048, pattern=_URL)]
Email = Annotated[
    str, Field(max_length=254, pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+$")
]
Minutes = Annotated[int, Field(ge=1, le=WEEK)]
Threshold = Annotated[int, Field(ge=1, le=1_000_000_000)]


class NewRule(RequestModel):
    """What to measure, and whom to tell (`service.md` 2.7)."""

    example: ClassVar[dict[str, Any]] = {
        "name": "many denials",
        "rule_type": "denial_spike",
        "threshold": 20,
        "window_minutes": 60,
    }

    name: Identifier
    rule_type: RuleType
    threshold: Threshold
    window_minutes: Minutes = 60
    cooldown_minutes: Minutes = 60
    min_events: Annotated[int, Field(ge=1, le=1_000_000_000)] = 5
    webhook_url: Url | None = None
    email: Email | None = None
    enabled: bool = True


async def create_alert_rule(
    service: AppContext, caller: Caller, asked: NewRule
) -> AlertRuleWithSecret | AlertRule:
    """Create an alert rule; the secret of its webhook is in this answer and nowhere else."""
    refuse_unusable(asked.rule_type, asked.threshold, asked.webhook_url, service)
    secret = None if asked.webhook_url is None else new_secret(service.entropy)

    async def work(tx: Transaction) -> StoredRule:
        if await alerts.count(tx.connection, tx.tenant_id) >= MOST_RULES:
            raise Conflict(f"the tenant has {MOST_RULES} alert rules already: delete one")
        rule = StoredRule(
            rule_id=prefixed("alr_", service.entropy(16)),
            **asked.model_dump(),
            webhook_secret=secret,
            created_at=tx.now,
            updated_at=tx.now,
        )
        await alerts.add(tx.connection, tx.tenant_id, rule)
        await record(tx, "alert.created", rule, caller.by, service.new_id())
        return rule

    rule = await service.store.write(caller.tenant.tenant_id, work)
    return shown_rule(rule, whole=True, secret=secret)


def new_secret(entropy: Callable[[int], bytes]) -> str:
    """`whsec_` and 32 random bytes in base64 (Standard Webhooks)."""
    return "whsec_" + base64.b64encode(entropy(32)).decode("ascii")


def refuse_unusable(
    rule_type: str, threshold: int, webhook_url: str | None, service: AppContext
) -> None:
    """`Invalid` where the rule could never fire, or its webhook never be called."""
    complaints = []
    if rule_type == "high_deny_rate" and threshold > 100:
        complaints.append("threshold: of `high_deny_rate` is a percentage: at most 100")
    if webhook_url is not None and not _callable(service.settings.webhook_allow, webhook_url):
        complaints.append("webhook_url: leads to an address that is not public")
    if complaints:
        raise invalid(complaints)


def _callable(allowed: AllowedHosts, url: str) -> bool:
    """Of a literal address; a name is judged when it is called."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    address = literal(host)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return address is None or allowed.permits(host, port, address)


async def record(tx: Transaction, what: str, rule: StoredRule, by: str, record_id: str) -> None:
    """Who made the rule what it is; of a webhook only where it leads."""
    url = rule.webhook_url
    detail = {
        "name": rule.name,
        "rule_type": rule.rule_type,
        "threshold": rule.threshold,
        "window_minutes": rule.window_minutes,
        "cooldown_minutes": rule.cooldown_minutes,
        "enabled": rule.enabled,
        "webhook": None if url is None else target_of("webhook", url),
        "email": rule.email is not None,
    }
    await tx.append(change_record(what, rule.rule_id, by, detail, record_id=record_id))
