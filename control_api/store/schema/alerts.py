"""The tables of alert rules and of the deliveries of fired alerts."""

from sqlalchemy import Index

from control_api.store.schema.columns import (
    binary,
    boolean,
    integer,
    partial_index,
    string,
    string_or_null,
    table,
    tenant_foreign_key,
    timestamp,
    timestamp_or_null,
)

# `webhook_secret` signs deliveries, so it can't be stored as a hash. The API shows it once.
alert_rules = table(
    "alert_rules",
    string("rule_id"),
    string("name"),
    string("rule_type"),
    integer("threshold"),
    integer("window_minutes"),
    integer("cooldown_minutes"),
    integer("min_events"),
    string_or_null("webhook_url"),
    string_or_null("webhook_secret"),
    string_or_null("email"),
    boolean("enabled"),
    timestamp("created_at"),
    timestamp("updated_at"),
    timestamp_or_null("last_fired_at"),
    tenant_foreign_key(),
    Index(None, "tenant_id", "created_at", "rule_id"),
    key=("rule_id",),
)

# One row per alert and channel. `target` is the part of the destination that the API shows;
# `address` and `secret` are the destination itself, stored here because the rule may change.
alert_deliveries = table(
    "alert_deliveries",
    string("delivery_id"),
    string("rule_id"),
    string("rule_name"),
    string("rule_type"),
    timestamp("fired_at"),
    binary("detail"),
    string("channel"),
    string_or_null("target"),
    string_or_null("address"),
    string_or_null("secret"),
    string("status"),
    integer("attempts"),
    string_or_null("last_error"),
    timestamp_or_null("next_attempt_at"),
    tenant_foreign_key(),
    Index(None, "tenant_id", "fired_at", "delivery_id"),
    # Only rows still to be sent: the index stays small, however many alerts were delivered.
    partial_index(
        "ix_alert_deliveries_due", "next_attempt_at", where="next_attempt_at IS NOT NULL"
    ),
    key=("delivery_id",),
)
