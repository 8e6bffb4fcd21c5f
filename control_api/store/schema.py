"""The tables. The same on SQLite and PostgreSQL; `migrations/` brings a database to them.

INVARIANT: every primary key and every unique constraint leads with `tenant_id`, and no foreign key
crosses tenants, so that the schema can be distributed by it. Times are microseconds since 1970 UTC.
JSON is stored as the canonical bytes that were decided by or hashed, never as a database's own.
"""

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

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _text_or_null(name: str) -> Column[str]:
    return Column(name, Text, nullable=True)


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, autoincrement=False)


def _time(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _time_or_null(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def _bytes(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def _bytes_or_null(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=True)


def _of_a_tenant() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"])


# One row, whose `tenant_id` is empty. `epoch` is made with the database: another epoch is another
# store, whatever its revisions say.
installation = Table(
    "installation",
    metadata,
    _text("tenant_id"),
    _text("epoch"),
    _time("created_at"),
    _bytes_or_null("superadmin_digest"),
    PrimaryKeyConstraint("tenant_id"),
)

# `revision` counts published documents, without gaps.
tenants = Table(
    "tenants",
    metadata,
    _text("tenant_id"),
    _text("name"),
    _time("created_at"),
    _flag("require_agent_id"),
    _flag("pii_masking"),
    _flag("active"),
    _count("revision"),
    PrimaryKeyConstraint("tenant_id"),
    Index(None, "name"),
)

# Of a key only the SHA-256 is kept. `permitted_roles` is a canonical JSON list.
api_keys = Table(
    "api_keys",
    metadata,
    _text("tenant_id"),
    _text("key_id"),
    _text("name"),
    _text("scope"),
    _bytes("digest"),
    _text_or_null("bound_agent_id"),
    _bytes("permitted_roles"),
    _time_or_null("expires_at"),
    _time("created_at"),
    _time_or_null("revoked_at"),
    PrimaryKeyConstraint("tenant_id", "key_id"),
    _of_a_tenant(),
    Index(None, "digest"),
)

# `body` is the policy as asked for (`service.md` 2.1); `file` and `file_body` are where a file
# defines it and what that says, null where none does. Deleted policies stay, with their history.
policies = Table(
    "policies",
    metadata,
    _text("tenant_id"),
    _text("policy_id"),
    _text("name"),
    _text("agent_role"),
    _bytes("body"),
    _count("version"),
    _flag("user_modified"),
    _text_or_null("file"),
    _bytes_or_null("file_body"),
    _time("created_at"),
    _time("updated_at"),
    _time_or_null("deleted_at"),
    PrimaryKeyConstraint("tenant_id", "policy_id"),
    _of_a_tenant(),
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
    _text("tenant_id"),
    _text("policy_id"),
    _count("version"),
    _bytes("body"),
    _text("changed_by"),
    _time("changed_at"),
    _text("change"),
    PrimaryKeyConstraint("tenant_id", "policy_id", "version"),
    ForeignKeyConstraint(["tenant_id", "policy_id"], ["policies.tenant_id", "policies.policy_id"]),
)

agents = Table(
    "agents",
    metadata,
    _text("tenant_id"),
    _text("agent_id"),
    _text("agent_role"),
    _text_or_null("display_name"),
    _text_or_null("description"),
    _text_or_null("owner"),
    _text_or_null("framework"),
    _bytes("permitted_roles"),
    _text("credential_type"),
    _text_or_null("bound_key_id"),
    _text("status"),
    _time("created_at"),
    _time("updated_at"),
    PrimaryKeyConstraint("tenant_id", "agent_id"),
    _of_a_tenant(),
    Index(None, "tenant_id", "created_at", "agent_id"),
)

# No foreign key: a session is claimed on the evaluation path, by a key whose tenant is known.
sessions = Table(
    "sessions",
    metadata,
    _text("tenant_id"),
    _text("session_id"),
    _text("agent_role"),
    _text_or_null("agent_id"),
    _text("user_id"),
    _time("created_at"),
    _time("expires_at"),
    _time_or_null("revoked_at"),
    _text_or_null("revocation_reason"),
    PrimaryKeyConstraint("tenant_id", "session_id"),
    Index(None, "tenant_id", "created_at", "session_id"),
)

# What a tenant's decisions are made by. A removed document stays, without body: its revision is how
# a sidecar learns of the removal.
documents = Table(
    "documents",
    metadata,
    _text("tenant_id"),
    _text("name"),
    _count("revision"),
    _text_or_null("digest"),
    _bytes_or_null("body"),
    PrimaryKeyConstraint("tenant_id", "name"),
    _of_a_tenant(),
    Index(None, "tenant_id", "revision"),
)

# Where a tenant's log ends. `last_ts` is 0 and `last_leaf` empty while there is no entry.
log_heads = Table(
    "log_heads",
    metadata,
    _text("tenant_id"),
    _text("log"),
    _count("size"),
    _bytes("last_leaf"),
    _time("last_ts"),
    _bytes("frontier"),
    PrimaryKeyConstraint("tenant_id"),
)

# `entry` is the authority; the columns before it are `policies.entry.Index` of it, in its order.
# What lists are filtered by is in `log_index`; `ref` is here, since a lineage entry has no more.
log_entries = Table(
    "log_entries",
    metadata,
    _text("tenant_id"),
    _count("seq"),
    _text("eid"),
    _text("kind"),
    _time("ts"),
    _text_or_null("agent_role"),
    _text_or_null("agent_id"),
    _text_or_null("source_id"),
    _text_or_null("decision"),
    _text_or_null("policy_name"),
    _text_or_null("session_id"),
    _text_or_null("ref"),
    _bytes("entry"),
    _bytes("hash"),
    PrimaryKeyConstraint("tenant_id", "seq"),
    Index("ux_log_entries_eid", "tenant_id", "eid", unique=True),
    Index(
        "ix_log_entries_ref",
        "tenant_id",
        "ref",
        "seq",
        sqlite_where=text("ref IS NOT NULL"),
        postgresql_where=text("ref IS NOT NULL"),
    ),
)

# Salts and values of what entries commit to. Rows may go: every hash still verifies.
openings = Table(
    "openings",
    metadata,
    _text("tenant_id"),
    _count("seq"),
    _text_or_null("user_id"),
    _bytes("openings"),
    PrimaryKeyConstraint("tenant_id", "seq"),
)

# Which entries say what: `control_api.store.log_index` writes it, thousands of entries at a time.
log_index = Table(
    "log_index",
    metadata,
    _text("tenant_id"),
    Column("facet", SmallInteger, nullable=False, autoincrement=False),
    _text("value"),
    _count("seq"),
    PrimaryKeyConstraint("tenant_id", "facet", "value", "seq"),
    sqlite_with_rowid=False,
)

# The earliest and the latest time of the entries from `seq` to before `until_seq`.
log_spans = Table(
    "log_spans",
    metadata,
    _text("tenant_id"),
    _count("seq"),
    _count("until_seq"),
    _time("first_ts"),
    _time("last_ts"),
    PrimaryKeyConstraint("tenant_id", "seq"),
    sqlite_with_rowid=False,
)

# The last record held of each spool, and its hash: what the next one must cite.
sources = Table(
    "sources",
    metadata,
    _text("tenant_id"),
    _text("source"),
    _text("instance"),
    _count("n"),
    _bytes("hash"),
    _time("updated_at"),
    PrimaryKeyConstraint("tenant_id", "source", "instance"),
)
