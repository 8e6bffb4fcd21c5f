"""The first schema.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Migrations share no code: a released one must go on creating exactly what it created.


def text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def text_or_null(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=True)


def number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, autoincrement=False)


def number_or_null(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=True)


def flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), nullable=False)


def binary(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def binary_or_null(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=True)


def table(
    name: str, *columns: sa.schema.SchemaItem, key: tuple[str, ...] = (), **options: bool
) -> None:
    """Creates a table whose primary key begins with the tenant."""
    op.create_table(
        name,
        text("tenant_id"),
        *columns,
        sa.PrimaryKeyConstraint("tenant_id", *key, name=f"pk_{name}"),
        **options,
    )


def of_a_tenant(name: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=f"fk_{name}_tenants")


def index(table: str, *columns: str) -> None:
    op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)


def index_where(name: str, table: str, columns: list[str], where: str, *, unique: bool) -> None:
    present = sa.text(where)
    op.create_index(
        name, table, columns, unique=unique, sqlite_where=present, postgresql_where=present
    )


def upgrade() -> None:
    table("installation", text("epoch"), number("created_at"), binary_or_null("superadmin_digest"))
    table(
        "tenants",
        text("name"),
        number("created_at"),
        flag("require_agent_id"),
        flag("pii_masking"),
        flag("active"),
        number("revision"),
    )
    index("tenants", "name")
    registry()
    decided_by()
    log()


def registry() -> None:
    """Keys, agents, sessions."""
    table(
        "api_keys",
        text("key_id"),
        text("name"),
        text("scope"),
        binary("digest"),
        text_or_null("bound_agent_id"),
        binary("permitted_roles"),
        number_or_null("expires_at"),
        number("created_at"),
        number_or_null("revoked_at"),
        of_a_tenant("api_keys"),
        key=("key_id",),
    )
    index("api_keys", "digest")
    table(
        "agents",
        text("agent_id"),
        text("agent_role"),
        text_or_null("display_name"),
        text_or_null("description"),
        text_or_null("owner"),
        text_or_null("framework"),
        binary("permitted_roles"),
        text("credential_type"),
        text_or_null("bound_key_id"),
        text("status"),
        number("created_at"),
        number("updated_at"),
        of_a_tenant("agents"),
        key=("agent_id",),
    )
    index("agents", "tenant_id", "created_at", "agent_id")
    table(
        "sessions",
        text("session_id"),
        text("agent_role"),
        text_or_null("agent_id"),
        text("user_id"),
        number("created_at"),
        number("expires_at"),
        number_or_null("revoked_at"),
        text_or_null("revocation_reason"),
        key=("session_id",),
    )
    index("sessions", "tenant_id", "created_at", "session_id")


def decided_by() -> None:
    """Policies, their history, and the documents published from them."""
    table(
        "policies",
        text("policy_id"),
        text("name"),
        text("agent_role"),
        binary("body"),
        number("version"),
        flag("user_modified"),
        text_or_null("file"),
        binary_or_null("file_body"),
        number("created_at"),
        number("updated_at"),
        number_or_null("deleted_at"),
        of_a_tenant("policies"),
        key=("policy_id",),
    )
    active = ["tenant_id", "name"]
    index_where("ux_policies_active_name", "policies", active, "deleted_at IS NULL", unique=True)
    index("policies", "tenant_id", "agent_role")
    table(
        "policy_versions",
        text("policy_id"),
        number("version"),
        binary("body"),
        text("changed_by"),
        number("changed_at"),
        text("change"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "policy_id"],
            ["policies.tenant_id", "policies.policy_id"],
            name="fk_policy_versions_policies",
        ),
        key=("policy_id", "version"),
    )
    table(
        "documents",
        text("name"),
        number("revision"),
        text_or_null("digest"),
        binary_or_null("body"),
        of_a_tenant("documents"),
        key=("name",),
    )
    index("documents", "tenant_id", "revision")


def log() -> None:
    """The audit log."""
    table(
        "log_heads",
        text("log"),
        number("size"),
        binary("last_leaf"),
        number("last_ts"),
        binary("frontier"),
    )
    table(
        "log_entries",
        number("seq"),
        text("eid"),
        text("kind"),
        number("ts"),
        text_or_null("agent_role"),
        text_or_null("agent_id"),
        text_or_null("source_id"),
        text_or_null("decision"),
        text_or_null("policy_name"),
        text_or_null("session_id"),
        text_or_null("ref"),
        binary("entry"),
        binary("hash"),
        key=("seq",),
    )
    op.create_index("ux_log_entries_eid", "log_entries", ["tenant_id", "eid"], unique=True)
    ref = ["tenant_id", "ref", "seq"]
    index_where("ix_log_entries_ref", "log_entries", ref, "ref IS NOT NULL", unique=False)
    table("openings", number("seq"), text_or_null("user_id"), binary("openings"), key=("seq",))
    table(
        "log_index",
        sa.Column("facet", sa.SmallInteger(), nullable=False, autoincrement=False),
        text("value"),
        number("seq"),
        key=("facet", "value", "seq"),
        sqlite_with_rowid=False,
    )
    table(
        "log_spans",
        number("seq"),
        number("until_seq"),
        number("first_ts"),
        number("last_ts"),
        key=("seq",),
        sqlite_with_rowid=False,
    )
    table(
        "sources",
        text("source"),
        text("instance"),
        number("n"),
        binary("hash"),
        number("updated_at"),
        key=("source", "instance"),
    )
