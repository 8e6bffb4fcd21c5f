"""Defines the tables of the registry and of the policy sets, and the kinds of columns, keys and
indexes from which all tables are built.

INVARIANT: every primary key and every unique constraint leads with `tenant_id`, and no foreign key
crosses tenants, so that the schema can be distributed by tenant. Times are microseconds since 1970
UTC. JSON is stored as the canonical bytes that were evaluated or hashed, never as a database's JSON
type, which would change them.
"""

from collections.abc import Callable
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
    """Return a table whose first column, and first part of the primary key, is the tenant."""
    primary_key = PrimaryKeyConstraint("tenant_id", *key)
    return Table(name, metadata, *strings("tenant_id"), *items, primary_key, **options)


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    # SQLAlchemy takes the condition once per dialect.
    condition = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _kind(
    type_: Any, *, nullable: bool = False, **options: Any
) -> Callable[..., list[Column[Any]]]:
    """Return a function that makes columns of one kind, one for each name that it is given."""
    return lambda *names: [Column(name, type_, nullable=nullable, **options) for name in names]


strings, strings_or_null = _kind(Text), _kind(Text, nullable=True)
# These sort by code point, whatever the database's default collation is.
ordered_strings = _kind(Text().with_variant(Text(collation="C"), "postgresql"))
integers = _kind(BigInteger, autoincrement=False)
integers_or_null = _kind(BigInteger, nullable=True, autoincrement=False)
small_integers = _kind(SmallInteger, autoincrement=False)
timestamps, timestamps_or_null = _kind(BigInteger), _kind(BigInteger, nullable=True)
booleans, booleans_or_null = _kind(Boolean), _kind(Boolean, nullable=True)
binaries, binaries_or_null = _kind(LargeBinary), _kind(LargeBinary, nullable=True)


def integer_with_default(name: str, default: int) -> Column[int]:
    """Return a column that a later migration added: existing rows get the default."""
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def small_integers_or_null(name: str) -> Column[list[int]]:
    """Return a column that is an array on PostgreSQL. SQLite has no arrays: the column stays NULL
    there."""
    numbers = postgresql.ARRAY(SmallInteger).with_variant(LargeBinary(), "sqlite")
    return Column(name, numbers, nullable=True)


def tenant_foreign_key() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"])


# One row, with an empty `tenant_id`. `epoch` is drawn when the database is created: a different
# epoch means a different store, even if the revisions look alike.
installation = table(
    "installation",
    *strings("epoch"),
    *timestamps("created_at"),
    *binaries_or_null("superadmin_digest"),
)

# The public half of each key that signed the logs, in order; `tenant_id` is empty. `signature` is
# the previous key's, over both public keys (`policies.ground.signing`); null for the first key.
log_keys = table(
    "log_keys",
    *integers("place"),
    *binaries("public_key"),
    *binaries_or_null("signature"),
    key=("place",),
)

# `revision` counts published documents. A sidecar below `reset_below` must reload its policy set:
# an older database was restored, and the revision jumped past every revision ever published
# (`control_api.rollback_recovery`). `frozen_at` is null unless the tenant is frozen.
# `candidates` is null without any (`control_api.store.queries.policy_rows`).
tenants = table(
    "tenants",
    *strings("name"),
    *timestamps("created_at"),
    *booleans("require_agent_id", "pii_masking", "active"),
    *integers("revision"),
    integer_with_default("retention_days", 365),
    integer_with_default("session_retention_days", 90),
    integer_with_default("reset_below", 0),
    *timestamps_or_null("frozen_at"),
    *strings_or_null("freeze_reason", "candidates"),
    # Not unique, since every unique key leads with the tenant: `find_by_name` locks instead.
    Index(None, "name"),
)

# `digest` is the key's SHA-256: no key is stored. Roles and ids are canonical JSON lists.
# A key of scope `sidecar` without `agent_ids` is from before keys had them.
api_keys = table(
    "api_keys",
    *strings("key_id", "name", "scope"),
    *binaries("digest"),
    *strings_or_null("bound_agent_id"),
    *binaries("permitted_roles"),
    *timestamps_or_null("expires_at"),
    *timestamps("created_at"),
    *timestamps_or_null("revoked_at"),
    *binaries_or_null("agent_ids", "sidecar_ids", "former_agents"),
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
    *strings("policy_id", "name", "agent_role"),
    *binaries("body"),
    *integers("version"),
    *booleans("user_modified"),
    *strings_or_null("file"),
    *binaries_or_null("file_body"),
    *timestamps("created_at", "updated_at"),
    *timestamps_or_null("deleted_at"),
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
    *strings("policy_id"),
    *integers("version"),
    *binaries("body"),
    *strings("changed_by"),
    *timestamps("changed_at"),
    *strings("change"),
    ForeignKeyConstraint(["tenant_id", "policy_id"], ["policies.tenant_id", "policies.policy_id"]),
    key=("policy_id", "version"),
)

# `permitted_roles` is a canonical JSON list. `bound_key_id`, if set, names the only key that may
# speak for the agent. Pods that run as `workload` enrol as the agent; `enrolment` is the generation
# of their keys (`control_api.registry.enrolment`), null while no pod may hold one.
agents = table(
    "agents",
    *strings("agent_id", "agent_role"),
    *strings_or_null("display_name", "description", "owner", "framework"),
    *binaries("permitted_roles"),
    *strings("credential_type"),
    *strings_or_null("bound_key_id"),
    *strings("status"),
    *timestamps("created_at", "updated_at"),
    *strings_or_null("workload", "enrolment"),
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
    *strings("key_id"),
    *binaries("digest"),
    *strings("scope", "agent_id", "generation", "pod", "pod_uid"),
    *timestamps("created_at", "expires_at"),
    tenant_foreign_key(),
    Index(None, "digest"),  # a request presents only its key
    Index(None, "tenant_id", "created_at", "key_id"),  # for pages, newest first
    Index(None, "tenant_id", "expires_at"),
    key=("key_id",),
)

# No foreign key: a session is claimed on the evaluation path, by a key of a known tenant.
sessions = table(
    "sessions",
    *strings("session_id", "agent_role"),
    *strings_or_null("agent_id"),
    *strings("user_id"),
    *timestamps("created_at", "expires_at"),
    *timestamps_or_null("revoked_at"),
    *strings_or_null("revocation_reason"),
    Index(None, "tenant_id", "created_at", "session_id"),  # for pages, newest first
    key=("session_id",),
)

# What remains of a purged session: the id, so that it can't be claimed again, and its end, but
# nothing about its owner.
ended_sessions = table(
    "ended_sessions",
    *strings("session_id"),
    *timestamps("ended_at"),
    *booleans("revoked"),
    key=("session_id",),
    sqlite_with_rowid=False,
)

# Each sidecar process draws a new `run_id`. `duplicate_at` is the time when `former_run_id` last
# reported again, which means that two processes share one `sidecar_id`. Ages in milliseconds are as
# of `last_seen`.
sidecars = table(
    "sidecars",
    *strings("sidecar_id", "run_id"),
    *strings_or_null("former_run_id"),
    *timestamps_or_null("duplicate_at"),
    *strings("version"),
    *strings_or_null("agent_id", "agent_role"),
    *strings("epoch"),
    *integers("revision"),
    *integers_or_null("policy_set_age_ms"),
    *integers("spool_depth"),
    *integers_or_null("oldest_unshipped_ms"),
    *strings_or_null("refusing"),
    *timestamps("first_seen", "last_seen"),
    *strings_or_null("workload", "enrolled_until", "forked"),
    *booleans_or_null("source_levels"),
    key=("sidecar_id",),
)

# `owner` is the id of the key that uses the sidecar's id, or for pods `agent/` and their agent's.
sidecar_owners = table(
    "sidecar_owners",
    *strings("sidecar_id", "owner"),
    *timestamps("since"),
    tenant_foreign_key(),
    Index(None, "tenant_id", "owner"),  # shown with the key
    key=("sidecar_id",),
)

# The policy set: the documents that decide for a tenant. A removed document stays, without a body,
# because its revision tells sidecars of the removal.
documents = table(
    "documents",
    *strings("name"),
    *integers("revision"),
    *strings_or_null("digest"),
    *binaries_or_null("body"),
    tenant_foreign_key(),
    Index(None, "tenant_id", "revision"),  # sidecars ask for the changes after a revision
    key=("name",),
)

# The Merkle map over the documents that exist (`policies.sets.merkle_map`); its root is signed.
set_nodes = table(
    "set_nodes",
    *strings("node"),
    *binaries("body"),
    key=("node",),
)
