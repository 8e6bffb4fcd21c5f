"""The schema of release 0.1.

The steps 0001 to 0006 that led to it were never in a release: no database stands at one of them.

Revision ID: 0007
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = None
branch_labels = None
depends_on = None

# Work that has to find the tenants first may read these tables across tenants: tenants, log heads,
# alert rules, due deliveries, sidecars. Never log entries or their openings.
ACROSS = ("tenants", "log_heads", "alert_rules", "alert_deliveries", "sidecars")
# The rows of these tables belong to no tenant, and everyone can read them.
OF_NO_TENANT = ("installation", "log_keys")
MINE = "tenant_id = current_setting('sluice.tenant', true)"
EVERYONE = "current_setting('sluice.tenant', true) = '*'"
# `nullif`: a setting made with SET LOCAL is empty, not null, after its transaction.
THIS_KEY = "digest = decode(nullif(current_setting('sluice.key_digest', true), ''), 'hex')"

# Migrations share no code: a released one must go on creating exactly what it created.


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def number(name: str, *, nullable: bool = False, default: str | None = None) -> sa.Column[int]:
    return sa.Column(
        name, sa.BigInteger(), nullable=nullable, autoincrement=False, server_default=default
    )


def texts(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [text(name, nullable=nullable) for name in names]


def numbers(*names: str) -> list[sa.Column[int]]:
    return [number(name) for name in names]


def small(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.SmallInteger(), nullable=False, autoincrement=False)


def flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), nullable=False)


def binary(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=nullable)


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


def index_where(
    name: str, table: str, columns: list[str], where: str, *, unique: bool = False
) -> None:
    present = sa.text(where)
    op.create_index(
        name, table, columns, unique=unique, sqlite_where=present, postgresql_where=present
    )


def upgrade() -> None:
    table(
        "installation",
        text("epoch"),
        number("created_at"),
        binary("superadmin_digest", nullable=True),
    )
    table(
        "log_keys",
        number("place"),
        binary("public_key"),
        binary("signature", nullable=True),
        key=("place",),
    )
    table(
        "tenants",
        text("name"),
        number("created_at"),
        flag("require_agent_id"),
        flag("pii_masking"),
        flag("active"),
        number("revision"),
        number("retention_days", default="365"),
        number("session_retention_days", default="90"),
        number("reset_below", default="0"),
        number("frozen_at", nullable=True),
        text("freeze_reason", nullable=True),
    )
    index("tenants", "name")
    registry()
    fleet()
    decided_by()
    log()
    counts()
    alerts()
    if op.get_bind().dialect.name == "postgresql":
        secure_rows()


def registry() -> None:
    """Keys, agents, sessions."""
    table(
        "api_keys",
        *texts("key_id", "name", "scope"),
        binary("digest"),
        text("bound_agent_id", nullable=True),
        binary("permitted_roles"),
        number("expires_at", nullable=True),
        number("created_at"),
        number("revoked_at", nullable=True),
        of_a_tenant("api_keys"),
        key=("key_id",),
    )
    index("api_keys", "digest")
    table(
        "agents",
        *texts("agent_id", "agent_role"),
        *texts("display_name", "description", "owner", "framework", nullable=True),
        binary("permitted_roles"),
        text("credential_type"),
        text("bound_key_id", nullable=True),
        text("status"),
        *numbers("created_at", "updated_at"),
        of_a_tenant("agents"),
        key=("agent_id",),
    )
    index("agents", "tenant_id", "created_at", "agent_id")
    table(
        "sessions",
        *texts("session_id", "agent_role"),
        text("agent_id", nullable=True),
        text("user_id"),
        *numbers("created_at", "expires_at"),
        number("revoked_at", nullable=True),
        text("revocation_reason", nullable=True),
        key=("session_id",),
    )
    index("sessions", "tenant_id", "created_at", "session_id")
    table(
        "ended_sessions",
        text("session_id"),
        number("ended_at"),
        flag("revoked"),
        key=("session_id",),
        sqlite_with_rowid=False,
    )


def fleet() -> None:
    """The sidecars, as they last reported."""
    table(
        "sidecars",
        *texts("sidecar_id", "run_id"),
        text("former_run_id", nullable=True),
        number("duplicate_at", nullable=True),
        text("version"),
        *texts("agent_id", "agent_role", nullable=True),
        text("epoch"),
        number("revision"),
        number("policy_set_age_ms", nullable=True),
        number("spool_depth"),
        number("oldest_unshipped_ms", nullable=True),
        text("refusing", nullable=True),
        *numbers("first_seen", "last_seen"),
        key=("sidecar_id",),
    )


def decided_by() -> None:
    """Policies, their history, the documents published from them, and the Merkle map over these."""
    table(
        "policies",
        *texts("policy_id", "name", "agent_role"),
        binary("body"),
        number("version"),
        flag("user_modified"),
        text("file", nullable=True),
        binary("file_body", nullable=True),
        *numbers("created_at", "updated_at"),
        number("deleted_at", nullable=True),
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
        text("digest", nullable=True),
        binary("body", nullable=True),
        of_a_tenant("documents"),
        key=("name",),
    )
    index("documents", "tenant_id", "revision")
    table("set_nodes", text("node"), binary("body"), key=("node",))


def log() -> None:
    """The audit log, its index, and what retention removed of it."""
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
        *texts("eid", "kind"),
        number("ts"),
        *texts(
            "agent_role",
            "agent_id",
            "source_id",
            "decision",
            "policy_name",
            "session_id",
            "ref",
            nullable=True,
        ),
        binary("entry"),
        binary("hash"),
        key=("seq",),
    )
    op.create_index("ux_log_entries_eid", "log_entries", ["tenant_id", "eid"], unique=True)
    ref = ["tenant_id", "ref", "seq"]
    index_where("ix_log_entries_ref", "log_entries", ref, "ref IS NOT NULL")
    table(
        "openings", number("seq"), text("user_id", nullable=True), binary("openings"), key=("seq",)
    )
    table(
        "log_index",
        small("facet"),
        text("value"),
        number("seq"),
        key=("facet", "value", "seq"),
        sqlite_with_rowid=False,
    )
    table(
        "log_spans",
        *numbers("seq", "until_seq", "first_ts", "last_ts"),
        key=("seq",),
        sqlite_with_rowid=False,
    )
    table(
        "sources",
        *texts("source", "instance"),
        number("n"),
        binary("hash"),
        number("updated_at"),
        key=("source", "instance"),
    )
    table(
        "purges",
        *numbers("seq", "tree_size"),
        binary("root_hash"),
        binary("frontier"),
        binary("last_hash"),
        *numbers("purged_before", "purged_count", "purged_at"),
        text("anchor_note"),
        text("cover_note", nullable=True),
        number("finished_at", nullable=True),
        key=("seq",),
    )


def counts() -> None:
    """The decisions, counted."""
    collated = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    table(
        "tallies",
        small("facet"),
        sa.Column("value", collated, nullable=False),
        *numbers("bucket", "allowed", "denied", "last_ts"),
        key=("facet", "value", "bucket"),
        sqlite_with_rowid=False,
    )
    table(
        "first_accesses",
        *texts("agent_role", "source_id"),
        number("first_ts"),
        key=("agent_role", "source_id"),
        sqlite_with_rowid=False,
    )
    index("first_accesses", "tenant_id", "first_ts")


def alerts() -> None:
    """Alert rules, and the deliveries of what fired."""
    table(
        "alert_rules",
        *texts("rule_id", "name", "rule_type"),
        *numbers("threshold", "window_minutes", "cooldown_minutes", "min_events"),
        *texts("webhook_url", "webhook_secret", "email", nullable=True),
        flag("enabled"),
        *numbers("created_at", "updated_at"),
        number("last_fired_at", nullable=True),
        of_a_tenant("alert_rules"),
        key=("rule_id",),
    )
    index("alert_rules", "tenant_id", "created_at", "rule_id")
    table(
        "alert_deliveries",
        *texts("delivery_id", "rule_id", "rule_name", "rule_type"),
        number("fired_at"),
        binary("detail"),
        text("channel"),
        *texts("target", "address", "secret", nullable=True),
        text("status"),
        number("attempts"),
        text("last_error", nullable=True),
        number("next_attempt_at", nullable=True),
        of_a_tenant("alert_deliveries"),
        key=("delivery_id",),
    )
    index("alert_deliveries", "tenant_id", "fired_at", "delivery_id")
    index_where(
        "ix_alert_deliveries_due",
        "alert_deliveries",
        ["next_attempt_at"],
        "next_attempt_at IS NOT NULL",
    )


def secure_rows() -> None:
    """Row-level security: a transaction sees and writes only the rows of its tenant."""
    for table in sa.inspect(op.get_bind()).get_table_names():
        if table == "alembic_version":
            continue
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        # FORCE binds the owner too, for a service that runs as the owner.
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        if table not in OF_NO_TENANT:
            policy("of_tenant", table, f"USING ({MINE}) WITH CHECK ({MINE})")
        if table in ACROSS:
            policy("across", table, f"FOR SELECT USING ({EVERYONE})")
    policy("of_digest", "api_keys", f"FOR SELECT USING ({THIS_KEY})")
    # Rows are inserted and never changed. Locking the installation's row needs an UPDATE policy.
    for table in OF_NO_TENANT:
        policy("reading", table, "FOR SELECT USING (true)")
        policy("making", table, "FOR INSERT WITH CHECK (tenant_id = '')")
    policy("locking", "installation", "FOR UPDATE USING (true) WITH CHECK (false)")


def policy(name: str, table: str, rule: str) -> None:
    op.execute(f"CREATE POLICY {name} ON {table} {rule}")
