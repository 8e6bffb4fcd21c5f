"""The table of the sidecars that reported."""

from sqlalchemy import PrimaryKeyConstraint, Table

from control_api.store.schema.columns import (
    count,
    count_or_null,
    metadata,
    time,
    time_or_null,
    words,
    words_or_null,
)

# `run_id` is drawn anew by each process. `duplicate_at` is when the one before it was heard again:
# two processes with one `sidecar_id`. What is in milliseconds is as of `last_seen`.
sidecars = Table(
    "sidecars",
    metadata,
    words("tenant_id"),
    words("sidecar_id"),
    words("run_id"),
    words_or_null("former_run_id"),
    time_or_null("duplicate_at"),
    words("version"),
    words_or_null("agent_id"),
    words_or_null("agent_role"),
    words("epoch"),
    count("revision"),
    count_or_null("policy_set_age_ms"),
    count("spool_depth"),
    count_or_null("oldest_unshipped_ms"),
    words_or_null("refusing"),
    time("first_seen"),
    time("last_seen"),
    PrimaryKeyConstraint("tenant_id", "sidecar_id"),
)
