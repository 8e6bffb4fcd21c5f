"""Creates an alert rule."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.alerts.rule_change import new_secret, record, refuse_unusable
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import rule_change, shown_rule
from control_api.requests.alert_rule import Email, Minutes, Threshold, Url
from control_api.requests.base import Identifier, RequestModel
from control_api.requests.idempotency import HEADER, IdempotencyKey, Repeated, id_entropy
from control_api.responses.alerts import AlertRule, AlertRuleWithSecret, RuleType
from control_api.store.queries import alerts
from control_api.store.queries.alerts import StoredRule
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict
from policies.ground.ids import prefixed

# Every rule costs work each time the log grows.
MAX_RULES = 200
"""The most rules of one tenant."""


class NewRule(RequestModel):
    """What to measure and where to send the alert (`service.md` 2.7)."""

    example: ClassVar[dict[str, Any]] = {
        "name": "many denials",
        "rule_type": "denial_spike",
        "threshold": 20,
        "window_minutes": 60,
    }

    in_header: ClassVar[Mapping[str, str]] = {"idempotency_key": HEADER}

    name: Identifier
    rule_type: RuleType
    threshold: Threshold
    window_minutes: Minutes = 60
    cooldown_minutes: Minutes = 60
    min_events: Annotated[int, Field(ge=1, le=1_000_000_000)] = 5
    webhook_url: Url | None = None
    email: Email | None = None
    enabled: bool = True
    idempotency_key: IdempotencyKey | None = None


async def create_alert_rule(
    app: AppContext, caller: Caller, request: NewRule
) -> AlertRuleWithSecret | AlertRule:
    """Create an alert rule; its webhook secret is shown only in this response."""
    # This check reads nothing, so it need not hold the tenant's lock.
    refuse_unusable(
        request.rule_type, request.threshold, request.webhook_url, app.settings.webhook_allow
    )
    secret = None if request.webhook_url is None else new_secret(app.entropy)
    entropy = id_entropy(request.idempotency_key, caller.tenant_id, app.entropy)
    rule_id = prefixed("alr_", entropy)

    async def work(tx: Transaction) -> StoredRule:
        if await alerts.rule(tx.connection, tx.tenant_id, rule_id) is not None:
            raise Repeated("alert rule", rule_id)
        # Counted under the tenant's lock: two requests at once can't both pass the limit.
        if await alerts.count(tx.connection, tx.tenant_id) >= MAX_RULES:
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
        await alerts.add(tx.connection, tx.tenant_id, rule)
        await record(app, tx, "alert.created", rule, caller.by, rule_change(None, rule))
        return rule

    rule = await app.store.write(caller.tenant_id, work)
    return shown_rule(rule, full_url=True, secret=secret)
