"""Responses about alert rules and fired alerts (`service.md` 2.7, contract section 4)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

_NOW = "2026-01-31T12:00:00.000000Z"

RuleType = Literal[
    "denial_spike", "new_source_access", "isolation_violation", "high_deny_rate", "doubtful_time"
]
Channel = Literal["webhook", "email", "none"]
DeliveryStatus = Literal["pending", "delivered", "failed", "no_destination"]


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert rule (2.7). Callers that may not change rules see only the webhook's origin."""

    rule_id: str
    name: str
    rule_type: RuleType
    threshold: int
    window_minutes: int
    cooldown_minutes: int
    min_events: int
    webhook_url: str | None
    email: str | None
    enabled: bool
    created_at: str
    updated_at: str
    last_fired_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "rule_id": "alr_7vR2kXwZ4pTq9sLmN3bYcD",
        "name": "many denials",
        "rule_type": "denial_spike",
        "threshold": 20,
        "window_minutes": 60,
        "cooldown_minutes": 60,
        "min_events": 5,
        "webhook_url": "https://hooks.example.com/sluice",
        "email": None,
        "enabled": True,
        "created_at": _NOW,
        "updated_at": _NOW,
        "last_fired_at": None,
    }


@dataclass(frozen=True, slots=True)
class AlertRuleWithSecret(AlertRule):
    """An alert rule with the secret that signs its webhooks, shown only once."""

    webhook_secret: str

    example: ClassVar[dict[str, Any]] = {
        **AlertRule.example,
        "webhook_secret": "whsec_" + "A" * 43 + "=",
    }


@dataclass(frozen=True, slots=True)
class FiredAlert:
    """A fired alert and its delivery; `target` is the destination without secrets."""

    delivery_id: str
    rule_id: str
    rule_name: str
    rule_type: RuleType
    fired_at: str
    detail: dict[str, Any]
    channel: Channel
    target: str | None
    status: DeliveryStatus
    attempts: int
    last_error: str | None
    next_attempt_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "delivery_id": "dlv_9sLmN3bYcD7vR2kXwZ4pTq",
        "rule_id": "alr_7vR2kXwZ4pTq9sLmN3bYcD",
        "rule_name": "many denials",
        "rule_type": "denial_spike",
        "fired_at": _NOW,
        "detail": {"measured": 23, "threshold": 20, "window_minutes": 60},
        "channel": "webhook",
        "target": "https://hooks.example.com",
        "status": "delivered",
        "attempts": 1,
        "last_error": None,
        "next_attempt_at": None,
    }
