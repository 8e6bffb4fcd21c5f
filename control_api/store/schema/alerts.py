"""The tables of alert rules and of what they fired."""

from sqlalchemy import Index, PrimaryKeyConstraint, Table, text

from control_api.store.schema.columns import (
    binary,
    count,
    flag,
    metadata,
    of_a_tenant,
    time,
    time_or_null,
    words,
    words_or_null,
)

# `webhook_secret` is what deliveries are signed with: it must be kept as it is, and is shown once.
alert_rules = Table(
    "alert_rules",
    metadata,
    words("tenant_id"),
    words("rule_id"),
    words("name"),
    words("rule_type"),
    count("threshold"),
    count("window_minutes"),
    count("cooldown_minutes"),
    count("min_events"),
    words_or_null("webhook_url"),
    words_or_null("webhook_secret"),
    words_or_null("email"),
    flag("enabled"),
    time("created_at"),
    time("updated_at"),
    time_or_null("last_fired_at"),
    PrimaryKeyConstraint("tenant_id", "rule_id"),
    of_a_tenant(),
    Index(None, "tenant_id", "created_at", "rule_id"),
)

# One row for each channel of a firing. `target` is what may be shown of where it goes; `address`
# and `secret` are where it goes, kept with the delivery since its rule may change or go.
alert_deliveries = Table(
    "alert_deliveries",
    metadata,
    words("tenant_id"),
    words("delivery_id"),
    words("rule_id"),
    words("rule_name"),
    words("rule_type"),
    time("fired_at"),
    binary("detail"),
    words("channel"),
    words_or_null("target"),
    words_or_null("address"),
    words_or_null("secret"),
    words("status"),
    count("attempts"),
    words_or_null("last_error"),
    time_or_null("next_attempt_at"),
    PrimaryKeyConstraint("tenant_id", "delivery_id"),
    of_a_tenant(),
    Index(None, "tenant_id", "fired_at", "delivery_id"),
    Index(
        "ix_alert_deliveries_due",
        "next_attempt_at",
        sqlite_where=text("next_attempt_at IS NOT NULL"),
        postgresql_where=text("next_attempt_at IS NOT NULL"),
    ),
)
