"""Defines the tables of alert rules, the console's sessions, exports, impact runs and
guardrails."""

from sqlalchemy import Index

from control_api.store.schema.tables import (
    binaries,
    binaries_or_null,
    booleans,
    integers,
    integers_or_null,
    partial_index,
    strings,
    strings_or_null,
    table,
    tenant_foreign_key,
    timestamps,
    timestamps_or_null,
)

# `webhook_secret` signs deliveries, so it can't be stored as a hash. The API shows it once.
alert_rules = table(
    "alert_rules",
    *strings("rule_id", "name", "rule_type"),
    *integers("threshold", "window_minutes", "cooldown_minutes", "min_events"),
    *strings_or_null("webhook_url", "webhook_secret", "email"),
    *booleans("enabled"),
    *timestamps("created_at", "updated_at"),
    *timestamps_or_null("last_fired_at"),
    tenant_foreign_key(),
    Index(None, "tenant_id", "created_at", "rule_id"),
    key=("rule_id",),
)

# One row per alert and channel. `target` is the part of the destination that the API shows;
# `address` and `secret` are the destination itself, stored here because the rule may change.
alert_deliveries = table(
    "alert_deliveries",
    *strings("delivery_id", "rule_id", "rule_name", "rule_type"),
    *timestamps("fired_at"),
    *binaries("detail"),
    *strings("channel"),
    *strings_or_null("target", "address", "secret"),
    *strings("status"),
    *integers("attempts"),
    *strings_or_null("last_error"),
    *timestamps_or_null("next_attempt_at"),
    tenant_foreign_key(),
    Index(None, "tenant_id", "fired_at", "delivery_id"),
    # Only rows still to be sent: the index stays small, however many alerts were delivered.
    partial_index(
        "ix_alert_deliveries_due", "next_attempt_at", where="next_attempt_at IS NOT NULL"
    ),
    key=("delivery_id",),
)


SUPERADMIN_REALM = "superadmin"
"""The value of `tenant_id` for the superadmin's rows. No tenant has this id: the first tenant's is
`default`, and every other id begins with `ten_`."""

# `digest` is the SHA-256 of the cookie's secret. `method` is how the person signed in, and `person`
# the name in the audit trail. A session that began with a key has its SHA-256 in `key_digest`, and
# dies with it; one of OpenID Connect has the issuer, the subject and the group that gave its scope.
# No foreign key to the tenants: the superadmin, who belongs to none, has sessions too, under
# `SUPERADMIN_REALM`.
console_sessions = table(
    "console_sessions",
    *binaries("digest"),
    *strings("session_id", "method", "person", "scope"),
    *binaries_or_null("key_digest"),
    *strings_or_null("issuer", "subject", "granted_by"),
    *timestamps("created_at", "seen_at", "expires_at"),
    *strings("browser"),
    Index("ux_console_sessions_session_id", "tenant_id", "session_id", unique=True),
    Index(None, "tenant_id", "created_at", "session_id"),
    key=("digest",),
)

# `digest` is the SHA-256 of the link's secret. A link works once: `used_at` is set in the
# transaction that begins the session.
sign_in_links = table(
    "sign_in_links",
    *binaries("digest"),
    *strings("person", "scope"),
    *binaries("key_digest"),
    *timestamps("expires_at"),
    *timestamps_or_null("used_at"),
    key=("digest",),
)


# `target` is `security.export_targets.ExportTarget.identity`. Entries below `next_seq` are pushed
# and acknowledged. One process at a time pushes: the one that holds the `lease`.
export_positions = table(
    "export_positions",
    *strings("target"),
    *integers("next_seq"),
    *strings("lease"),
    *timestamps("leased_until"),
    tenant_foreign_key(),
    key=("target",),
)


# A run reads the entries from `first_seq` up to `until_seq` (exclusive). `next_seq`, `last_leaf`
# (the hash of the entry before it), `last_eid` and `counts` are how far it has come, always saved
# together. One process at a time continues it: the one that holds the `lease`. `attempts` counts
# those that took it up since anything was saved. `checkpoint_size` is that of the signed checkpoint
# that the entries were proven by.
impact_runs = table(
    "impact_runs",
    *strings("impact_id", "state"),
    *strings_or_null("reason"),
    *strings("created_by"),
    *timestamps("created_at"),
    *timestamps_or_null("ended_at"),
    *integers("first_seq", "until_seq", "next_seq"),
    *binaries("last_leaf"),
    *strings_or_null("last_eid"),
    *binaries("counts"),
    *integers_or_null("checkpoint_size"),
    *integers("attempts"),
    *strings_or_null("lease"),
    *timestamps_or_null("leased_until"),
    tenant_foreign_key(),
    # Only runs that go on: the index stays small.
    partial_index("ix_impact_runs_due", "leased_until", where="state = 'running'"),
    key=("impact_id",),
)

# The policies of a run that goes on, as JSON. Apart from it, since SQLite writes a whole row at
# each change, and these may have 32 MiB.
impact_policies = table(
    "impact_policies",
    *strings("impact_id"),
    *binaries("body"),
    tenant_foreign_key(),
    key=("impact_id",),
)


# `body` is `policies.definitions.guardrail.Guardrail.to_wire`. `file` is the file that defines the
# guardrail; null if the API made it.
guardrails = table(
    "guardrails",
    *strings("name"),
    *binaries("body"),
    *strings_or_null("file"),
    *timestamps("created_at", "updated_at"),
    tenant_foreign_key(),
    key=("name",),
)
