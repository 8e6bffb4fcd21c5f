"""The tables of the registry and of the policy sets: tenants, keys, agents, policies, documents.

The kinds of columns, keys and indexes from which all tables are built.

INVARIANT: every primary key and every unique constraint leads with `tenant_id`, and no foreign key
crosses tenants, so that the schema can be distributed by tenant. Times are microseconds since 1970
UTC. JSON is stored as the canonical bytes that were evaluated or hashed, never as a database's JSON
type, which would change them.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import SchemaItem

# The migrations use the same names: a test compares the two schemas to the letter.
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def table(name: str, *items: SchemaItem, key: tuple[str, ...] = (), **options: Any) -> Table:
    """A table whose first column, and first part of the primary key, is the tenant."""
    primary_key = PrimaryKeyConstraint("tenant_id", *key)
    return Table(name, metadata, string("tenant_id"), *items, primary_key, **options)


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    # SQLAlchemy takes the condition once per dialect.
    condition = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def string(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def ordered_string(name: str) -> Column[str]:
    """A string that sorts by code point, whatever the database's default collation is."""
    return Column(name, Text().with_variant(Text(collation="C"), "postgresql"), nullable=False)


def string_or_null(name: str) -> Column[str]:
    return Column(name, Text, nullable=True)


def integer(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, autoincrement=False)


def small_integer(name: str) -> Column[int]:
    return Column(name, SmallInteger, nullable=False, autoincrement=False)


def small_integers_or_null(name: str) -> Column[list[int]]:
    """An array on PostgreSQL. SQLite has none: the column stays NULL there."""
    numbers = postgresql.ARRAY(SmallInteger).with_variant(LargeBinary(), "sqlite")
    return Column(name, numbers, nullable=True)


def integer_or_null(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True, autoincrement=False)


def integer_with_default(name: str, default: int) -> Column[int]:
    """For a column that a later migration added: existing rows get the default."""
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def timestamp(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def timestamp_or_null(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True)


def boolean(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def boolean_or_null(name: str) -> Column[Any]:
    return Column(name, Boolean, nullable=True)


def binary(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def binary_or_null(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=True)


def tenant_foreign_key() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"])


# One row, with an empty `tenant_id`. `epoch` is drawn when the database is created: a different
# epoch means a different store, even if the revisions look alike.
installation = table(
    "installation",
    string("epoch"),
    timestamp("created_at"),
    binary_or_null("superadmin_digest"),
)

# The public half of each key that signed the logs, in order; `tenant_id` is empty. `signature` is
# the previous key's, over both public keys (`policies.ground.signing`); null for the first key.
log_keys = table(
    "log_keys",
    integer("place"),
    binary("public_key"),
    binary_or_null("signature"),
    key=("place",),
)

# `revision` counts published documents. A sidecar below `reset_below` must reload its policy set:
# an older database was restored, and the revision jumped past every revision ever published
# (`control_api.rollback_recovery`). `frozen_at` is null unless the tenant is frozen.
# `candidates` is null without any (`control_api.store.queries.policy_rows`).
tenants = table(
    "tenants",
    string("name"),
    timestamp("created_at"),
    boolean("require_agent_id"),
    boolean("pii_masking"),
    boolean("active"),
    integer("revision"),
    integer_with_default("retention_days", 365),
    integer_with_default("session_retention_days", 90),
    integer_with_default("reset_below", 0),
    timestamp_or_null("frozen_at"),
    string_or_null("freeze_reason"),
    string_or_null("candidates"),
    # Not unique, since every unique key leads with the tenant: `find_by_name` locks instead.
    Index(None, "name"),
)

# `digest` is the key's SHA-256: no key is stored. Roles and ids are canonical JSON lists.
# A key of scope `sidecar` without `agent_ids` is from before keys had them.
api_keys = table(
    "api_keys",
    string("key_id"),
    string("name"),
    string("scope"),
    binary("digest"),
    string_or_null("bound_agent_id"),
    binary("permitted_roles"),
    timestamp_or_null("expires_at"),
    timestamp("created_at"),
    timestamp_or_null("revoked_at"),
    binary_or_null("agent_ids"),
    binary_or_null("sidecar_ids"),
    binary_or_null("former_agents"),
    tenant_foreign_key(),
    # For the one look-up that does not know the tenant yet: a request presents only its key.
    Index(None, "digest"),
    key=("key_id",),
)

# `body` is the policy as requested (`CONTRACT.md`, Policies). `file` is the file that defines the
# policy and `file_body` its definition there; both are null if no file does. Deleted policies stay,
# with their history.
policies = table(
    "policies",
    string("policy_id"),
    string("name"),
    string("agent_role"),
    binary("body"),
    integer("version"),
    boolean("user_modified"),
    string_or_null("file"),
    binary_or_null("file_body"),
    timestamp("created_at"),
    timestamp("updated_at"),
    timestamp_or_null("deleted_at"),
    tenant_foreign_key(),
    # A deleted policy keeps its name; an active one may use the same name.
    partial_index(
        "ux_policies_active_name", "tenant_id", "name", unique=True, where="deleted_at IS NULL"
    ),
    Index(None, "tenant_id", "agent_role"),
    key=("policy_id",),
)

# Every version of each policy, the current one included.
policy_versions = table(
    "policy_versions",
    string("policy_id"),
    integer("version"),
    binary("body"),
    string("changed_by"),
    timestamp("changed_at"),
    string("change"),
    ForeignKeyConstraint(["tenant_id", "policy_id"], ["policies.tenant_id", "policies.policy_id"]),
    key=("policy_id", "version"),
)

# `permitted_roles` is a canonical JSON list. `bound_key_id`, if set, names the only key that may
# speak for the agent. Pods that run as `workload` enrol as the agent; `enrolment` is the generation
# of their keys (`control_api.registry.enrolment`), null while no pod may hold one.
agents = table(
    "agents",
    string("agent_id"),
    string("agent_role"),
    string_or_null("display_name"),
    string_or_null("description"),
    string_or_null("owner"),
    string_or_null("framework"),
    binary("permitted_roles"),
    string("credential_type"),
    string_or_null("bound_key_id"),
    string("status"),
    timestamp("created_at"),
    timestamp("updated_at"),
    string_or_null("workload"),
    string_or_null("enrolment"),
    tenant_foreign_key(),
    Index(None, "tenant_id", "created_at", "agent_id"),  # for pages, newest first
    partial_index(
        "ux_agents_workload", "tenant_id", "workload", unique=True, where="workload IS NOT NULL"
    ),
    key=("agent_id",),
)

# The keys of enrolled pods, which live an hour. Unlike `api_keys` they have no document each: what
# ends them is the one document of their agent's enrolment, and expired ones are deleted.
enrolled_keys = table(
    "enrolled_keys",
    string("key_id"),
    binary("digest"),
    string("scope"),
    string("agent_id"),
    string("generation"),
    string("pod"),
    string("pod_uid"),
    timestamp("created_at"),
    timestamp("expires_at"),
    tenant_foreign_key(),
    Index(None, "digest"),  # a request presents only its key
    Index(None, "tenant_id", "created_at", "key_id"),  # for pages, newest first
    Index(None, "tenant_id", "expires_at"),
    key=("key_id",),
)

# No foreign key: a session is claimed on the evaluation path, by a key of a known tenant.
sessions = table(
    "sessions",
    string("session_id"),
    string("agent_role"),
    string_or_null("agent_id"),
    string("user_id"),
    timestamp("created_at"),
    timestamp("expires_at"),
    timestamp_or_null("revoked_at"),
    string_or_null("revocation_reason"),
    Index(None, "tenant_id", "created_at", "session_id"),  # for pages, newest first
    key=("session_id",),
)

# What remains of a purged session: the id, so that it can't be claimed again, and its end, but
# nothing about its owner.
ended_sessions = table(
    "ended_sessions",
    string("session_id"),
    timestamp("ended_at"),
    boolean("revoked"),
    key=("session_id",),
    sqlite_with_rowid=False,
)

# Each sidecar process draws a new `run_id`. `duplicate_at` is the time when `former_run_id` last
# reported again, which means that two processes share one `sidecar_id`. Ages in milliseconds are as
# of `last_seen`.
sidecars = table(
    "sidecars",
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
    string_or_null("workload"),
    string_or_null("enrolled_until"),
    string_or_null("forked"),
    boolean_or_null("source_levels"),
    key=("sidecar_id",),
)

# `owner` is the id of the key that uses the sidecar's id, or for pods `agent/` and their agent's.
sidecar_owners = table(
    "sidecar_owners",
    string("sidecar_id"),
    string("owner"),
    timestamp("since"),
    tenant_foreign_key(),
    Index(None, "tenant_id", "owner"),  # shown with the key
    key=("sidecar_id",),
)

# The policy set: the documents that decide for a tenant. A removed document stays, without a body,
# because its revision tells sidecars of the removal.
documents = table(
    "documents",
    string("name"),
    integer("revision"),
    string_or_null("digest"),
    binary_or_null("body"),
    tenant_foreign_key(),
    Index(None, "tenant_id", "revision"),  # sidecars ask for the changes after a revision
    key=("name",),
)

# The Merkle map over the documents that exist (`policies.sets.merkle_map`); its root is signed.
set_nodes = table(
    "set_nodes",
    string("node"),
    binary("body"),
    key=("node",),
)
