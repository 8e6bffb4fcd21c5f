"""Defines the requests about alerts, and the responses (`CONTRACT.md`, Alerts)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from control_api.alerts.queries import Channel, DeliveryStatus, RuleType, StoredDelivery, StoredRule
from control_api.edge.answers import time_or_none
from control_api.edge.field_descriptions import says
from control_api.edge.requests import IDEMPOTENCY_HEADER, IdempotencyKey, Identifier, RequestModel

_NOW = "2026-01-31T12:00:00.000000Z"
_WEEK = 7 * 24 * 60  # minutes

# 1 to 65535, digit by digit: the API's description shows the pattern, so it has to say all of it.
_PORT = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
# A URL that the service can call. It has no user and no fragment, which could hide where it leads.
_URL = rf"^https?://{_LABEL}(\.{_LABEL})*\.?(:({_PORT}))?([/?][!$-~]*)?$"
Url = Annotated[str, Field(max_length=2048, pattern=_URL)]
Email = Annotated[
    str, Field(max_length=254, pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+$")
]
Minutes = Annotated[int, Field(ge=1, le=_WEEK)]
Threshold = Annotated[int, Field(ge=1, le=1_000_000_000)]

RULE_NAME = says("The rule's name, unique in the tenant.")


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert rule (`CONTRACT.md`, Alerts). Callers that may not change rules see only the
    webhook's origin."""

    rule_id: str
    name: Annotated[str, RULE_NAME]
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
    last_fired_at: Annotated[
        str | None, says("When the rule last fired (RFC 3339, UTC). `null` if it never has.")
    ]

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

    @staticmethod
    def of(
        rule: StoredRule, *, full_url: bool, secret: str | None = None
    ) -> "AlertRule | AlertRuleWithSecret":
        """Return the rule as a response shows it, with its webhook `secret` if one is given.
        Without `full_url`, only the origin of the webhook's URL is shown."""
        url = rule.webhook_url
        fields: dict[str, Any] = {
            name: getattr(rule, name) for name in StoredRule.__slots__ if name != "webhook_secret"
        }
        # The path of a webhook is often a secret too.
        fields["webhook_url"] = url if full_url or url is None else target_of("webhook", url)
        for name in ("created_at", "updated_at", "last_fired_at"):
            fields[name] = time_or_none(fields[name])
        if secret is None:
            return AlertRule(**fields)
        return AlertRuleWithSecret(**fields, webhook_secret=secret)


@dataclass(frozen=True, slots=True)
class AlertRuleWithSecret(AlertRule):
    """An alert rule with the secret that signs its webhooks, shown only once."""

    webhook_secret: Annotated[
        str, says("The secret that signs this rule's webhooks (Standard Webhooks).")
    ]

    example: ClassVar[dict[str, Any]] = {
        **AlertRule.example,
        "webhook_secret": "whsec_" + "A" * 43 + "=",
    }


@dataclass(frozen=True, slots=True)
class FiredAlert:
    """A fired alert and its delivery; `target` is the destination without secrets."""

    delivery_id: Annotated[str, says("The delivery's id.")]
    rule_id: str
    rule_name: Annotated[str, says("The alert rule's name.")]
    rule_type: RuleType
    fired_at: Annotated[str, says("When the rule fired (RFC 3339, UTC).")]
    detail: Annotated[dict[str, Any], says("What the rule measured when it fired.")]
    channel: Annotated[
        Channel, says("How the alert is delivered. `none` if the rule names no destination.")
    ]
    target: Annotated[str | None, says("Where the alert goes, without secrets.")]
    status: Annotated[DeliveryStatus, says("The status of the delivery.")]
    attempts: Annotated[int, says("How many times delivery was attempted.")]
    last_error: Annotated[
        str | None, says("Why the last attempt failed. `null` if it did not fail.")
    ]
    next_attempt_at: Annotated[
        str | None, says("When delivery is tried again (RFC 3339, UTC). `null` if it is not.")
    ]

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

    @classmethod
    def of(cls, row: StoredDelivery) -> "FiredAlert":
        fields: dict[str, Any] = {name: getattr(row, name) for name in cls.__slots__}
        for name in ("fired_at", "next_attempt_at"):
            fields[name] = time_or_none(fields[name])
        return cls(**fields)


class NewRule(RequestModel):
    """The rule to measure, and the receivers of its alerts (`CONTRACT.md`, Alerts)."""

    example: ClassVar[dict[str, Any]] = {
        "name": "many denials",
        "rule_type": "denial_spike",
        "threshold": 20,
        "window_minutes": 60,
    }

    in_header: ClassVar[Mapping[str, str]] = {"idempotency_key": IDEMPOTENCY_HEADER}

    name: Annotated[Identifier, RULE_NAME]
    rule_type: RuleType
    threshold: Threshold
    window_minutes: Minutes = 60
    cooldown_minutes: Minutes = 60
    min_events: Annotated[int, Field(ge=1, le=1_000_000_000)] = 5
    webhook_url: Url | None = None
    email: Email | None = None
    enabled: bool = True
    idempotency_key: IdempotencyKey | None = None


class RuleRequest(RequestModel):
    """A request about one alert rule, which the path names by its id."""

    rule_id: Identifier


class ChangedRule(RequestModel):
    """The fields to change. Fields left out keep their value. `rule_type` must be the rule's own
    type; `"webhook_secret": null` makes a new secret."""

    example: ClassVar[dict[str, Any]] = {"rule_type": "denial_spike", "threshold": 50}
    shown = AlertRule

    rule_id: Identifier
    rule_type: RuleType
    name: Annotated[Identifier, RULE_NAME] = ""
    threshold: Threshold = 1
    window_minutes: Minutes = 60
    cooldown_minutes: Minutes = 60
    min_events: Threshold = 5
    webhook_url: Url | None = None
    webhook_secret: Annotated[
        None, says("`null` makes a new secret, shown once in the answer.")
    ] = None
    email: Email | None = None
    enabled: bool = True

    def changes(self) -> dict[str, Any]:
        """Return the fields of the rule that the request sets, except for the secret."""
        return self.model_dump(include=self.model_fields_set - {"rule_id", "webhook_secret"})


def target_of(channel: str, address: str) -> str:
    """Return a delivery's destination without secret parts, such as the path of a webhook's URL."""
    if channel == "email":
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
