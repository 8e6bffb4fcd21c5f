"""The table of sidecars, as they last reported."""

from sqlalchemy import PrimaryKeyConstraint, Table

from control_api.store.schema.columns import (
    integer,
    integer_or_null,
    metadata,
    string,
    string_or_null,
    timestamp,
    timestamp_or_null,
)

# Each process draws a new `run_id`. `duplicate_at` is when `former_run_id` reported again, which
# means that two processes share one `sidecar_id`. Ages in milliseconds are as of `last_seen`.
sidecars = Table(
    "sidecars",
    metadata,
    string("tenant_id"),
    string("sidecar_id"),
    string("run_id"),
    string_or_null("former_run_id"),
    timestamp_or_null("duplicate_at"),
    string("version"),
    string_or_null("agent_id"),
    string_or_null("agent_role"),
    string("epoch"),
    integer("revision"),
    integer_or_null("policy_set_age_ms"),
    integer("spool_depth"),
    integer_or_null("oldest_unshipped_ms"),
    string_or_null("refusing"),
    timestamp("first_seen"),
    timestamp("last_seen"),
    PrimaryKeyConstraint("tenant_id", "sidecar_id"),
)
