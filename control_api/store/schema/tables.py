"""The tables. The same on SQLite and PostgreSQL; `migrations/` brings a database to them."""

from sqlalchemy import ForeignKeyConstraint, Index, PrimaryKeyConstraint, Table, text

from control_api.store.schema.alerts import alert_deliveries, alert_rules
from control_api.store.schema.columns import (
    binary,
    binary_or_null,
    count,
    count_from,
    flag,
    metadata,
    of_a_tenant,
    time,
    time_or_null,
    words,
    words_or_null,
)
from control_api.store.schema.counters import first_accesses, tallies
from control_api.store.schema.fleet import sidecars
from control_api.store.schema.log import (
    log_entries,
    log_heads,
    log_index,
    log_spans,
    openings,
    purges,
    sources,
)

__all__ = [
    "agents",
    "alert_deliveries",
    "alert_rules",
    "api_keys",
    "documents",
    "ended_sessions",
    "first_accesses",
    "installation",
    "log_entries",
    "log_heads",
    "log_index",
    "log_keys",
    "log_spans",
    "metadata",
    "openings",
    "policies",
    "policy_versions",
    "purges",
    "sessions",
    "set_nodes",
    "sidecars",
    "sources",
    "tallies",
    "tenants",
]

# One row, whose `tenant_id` is empty. `epoch` is made with the database: another epoch is another
# store, whatever its revisions say.
installation = Table(
    "installation",
    metadata,
    words("tenant_id"),
    words("epoch"),
    time("created_at"),
    binary_or_null("superadmin_digest"),
    PrimaryKeyConstraint("tenant_id"),
)

# The public half of each key that signed, in order; `tenant_id` is empty. `signature` is by the key
# before it, over both (`policies.ground.signing`); the first has none.
log_keys = Table(
    "log_keys",
    metadata,
    words("tenant_id"),
    count("place"),
    binary("public_key"),
    binary_or_null("signature"),
    PrimaryKeyConstraint("tenant_id", "place"),
)

# `revision` counts published documents; whoever follows from below `reset_below` begins anew: the
# store was put back then, and the revision leapt (`control_api.maintenance.rollback_recovery`).
# `frozen_at` is null
# where the tenant is not frozen.
tenants = Table(
    "tenants",
    metadata,
    words("tenant_id"),
    words("name"),
    time("created_at"),
    flag("require_agent_id"),
    flag("pii_masking"),
    flag("active"),
    count("revision"),
    count_from("retention_days", 365),
    count_from("session_retention_days", 90),
    count_from("reset_below", 0),
    time_or_null("frozen_at"),
    words_or_null("freeze_reason"),
    PrimaryKeyConstraint("tenant_id"),
    Index(None, "name"),
)

# Of a key only the SHA-256 is kept. `permitted_roles` is a canonical JSON list.
api_keys = Table(
    "api_keys",
    metadata,
    words("tenant_id"),
    words("key_id"),
    words("name"),
    words("scope"),
    binary("digest"),
    words_or_null("bound_agent_id"),
    binary("permitted_roles"),
    time_or_null("expires_at"),
    time("created_at"),
    time_or_null("revoked_at"),
    PrimaryKeyConstraint("tenant_id", "key_id"),
    of_a_tenant(),
    Index(None, "digest"),
)

# `body` is the policy as asked for (`service.md` 2.1); `file` and `file_body` are where a file
# defines it and what that says, null where none does. Deleted policies stay, with their history.
policies = Table(
    "policies",
    metadata,
    words("tenant_id"),
    words("policy_id"),
    words("name"),
    words("agent_role"),
    binary("body"),
    count("version"),
    flag("user_modified"),
    words_or_null("file"),
    binary_or_null("file_body"),
    time("created_at"),
    time("updated_at"),
    time_or_null("deleted_at"),
    PrimaryKeyConstraint("tenant_id", "policy_id"),
    of_a_tenant(),
    Index(
        "ux_policies_active_name",
        "tenant_id",
        "name",
        unique=True,
        sqlite_where=text("deleted_at IS NULL"),
        postgresql_where=text("deleted_at IS NULL"),
    ),
    Index(None, "tenant_id", "agent_role"),
)

policy_versions = Table(
    "policy_versions",
    metadata,
    words("tenant_id"),
    words("policy_id"),
    count("version"),
    binary("body"),
    words("changed_by"),
    time("changed_at"),
    words("change"),
    PrimaryKeyConstraint("tenant_id", "policy_id", "version"),
    ForeignKeyConstraint(["tenant_id", "policy_id"], ["policies.tenant_id", "policies.policy_id"]),
)

agents = Table(
    "agents",
    metadata,
    words("tenant_id"),
    words("agent_id"),
    words("agent_role"),
    words_or_null("display_name"),
    words_or_null("description"),
    words_or_null("owner"),
    words_or_null("framework"),
    binary("permitted_roles"),
    words("credential_type"),
    words_or_null("bound_key_id"),
    words("status"),
    time("created_at"),
    time("updated_at"),
    PrimaryKeyConstraint("tenant_id", "agent_id"),
    of_a_tenant(),
    Index(None, "tenant_id", "created_at", "agent_id"),
)

# No foreign key: a session is claimed on the evaluation path, by a key whose tenant is known.
sessions = Table(
    "sessions",
    metadata,
    words("tenant_id"),
    words("session_id"),
    words("agent_role"),
    words_or_null("agent_id"),
    words("user_id"),
    time("created_at"),
    time("expires_at"),
    time_or_null("revoked_at"),
    words_or_null("revocation_reason"),
    PrimaryKeyConstraint("tenant_id", "session_id"),
    Index(None, "tenant_id", "created_at", "session_id"),
)

# What is left of a session once its own retention has passed: that this id was used, so that it
# never comes back to life. Nothing of whose it was.
ended_sessions = Table(
    "ended_sessions",
    metadata,
    words("tenant_id"),
    words("session_id"),
    time("ended_at"),
    flag("revoked"),
    PrimaryKeyConstraint("tenant_id", "session_id"),
    sqlite_with_rowid=False,
)

# What a tenant's decisions are made by. A removed document stays, without body: its revision is how
# a sidecar learns of the removal.
documents = Table(
    "documents",
    metadata,
    words("tenant_id"),
    words("name"),
    count("revision"),
    words_or_null("digest"),
    binary_or_null("body"),
    PrimaryKeyConstraint("tenant_id", "name"),
    of_a_tenant(),
    Index(None, "tenant_id", "revision"),
)

# The Merkle map over the documents that are there (`policies.sets.merkle_map`): what is signed of
# them.
set_nodes = Table(
    "set_nodes",
    metadata,
    words("tenant_id"),
    words("node"),
    binary("body"),
    PrimaryKeyConstraint("tenant_id", "node"),
)
