"""Creates the schema of release 0.1.

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


def texts(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=nullable) for name in names]


def numbers(
    *names: str, nullable: bool = False, default: str | None = None
) -> list[sa.Column[int]]:
    return [
        sa.Column(
            n, sa.BigInteger(), nullable=nullable, autoincrement=False, server_default=default
        )
        for n in names
    ]


def small(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.SmallInteger(), nullable=False, autoincrement=False)


def flags(*names: str) -> list[sa.Column[bool]]:
    return [sa.Column(name, sa.Boolean(), nullable=False) for name in names]


def binaries(*names: str, nullable: bool = False) -> list[sa.Column[bytes]]:
    return [sa.Column(name, sa.LargeBinary(), nullable=nullable) for name in names]


def table(
    name: str, *columns: sa.schema.SchemaItem, key: tuple[str, ...] = (), **options: bool
) -> None:
    """Create a table whose primary key begins with the tenant."""
    op.create_table(
        name,
        *texts("tenant_id"),
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
        *texts("epoch"),
        *numbers("created_at"),
        *binaries("superadmin_digest", nullable=True),
    )
    table(
        "log_keys",
        *numbers("place"),
        *binaries("public_key"),
        *binaries("signature", nullable=True),
        key=("place",),
    )
    table(
        "tenants",
        *texts("name"),
        *numbers("created_at"),
        *flags("require_agent_id", "pii_masking", "active"),
        *numbers("revision"),
        *numbers("retention_days", default="365"),
        *numbers("session_retention_days", default="90"),
        *numbers("reset_below", default="0"),
        *numbers("frozen_at", nullable=True),
        *texts("freeze_reason", nullable=True),
    )
    index("tenants", "name")
    registry()
    fleet()
    policy_tables()
    log()
    counts()
    alerts()
    if op.get_bind().dialect.name == "postgresql":
        secure_rows()


def registry() -> None:
    """Create the tables of keys, agents and sessions."""
    table(
        "api_keys",
        *texts("key_id", "name", "scope"),
        *binaries("digest"),
        *texts("bound_agent_id", nullable=True),
        *binaries("permitted_roles"),
        *numbers("expires_at", nullable=True),
        *numbers("created_at"),
        *numbers("revoked_at", nullable=True),
        of_a_tenant("api_keys"),
        key=("key_id",),
    )
    index("api_keys", "digest")
    table(
        "agents",
        *texts("agent_id", "agent_role"),
        *texts("display_name", "description", "owner", "framework", nullable=True),
        *binaries("permitted_roles"),
        *texts("credential_type"),
        *texts("bound_key_id", nullable=True),
        *texts("status"),
        *numbers("created_at", "updated_at"),
        of_a_tenant("agents"),
        key=("agent_id",),
    )
    index("agents", "tenant_id", "created_at", "agent_id")
    table(
        "sessions",
        *texts("session_id", "agent_role"),
        *texts("agent_id", nullable=True),
        *texts("user_id"),
        *numbers("created_at", "expires_at"),
        *numbers("revoked_at", nullable=True),
        *texts("revocation_reason", nullable=True),
        key=("session_id",),
    )
    index("sessions", "tenant_id", "created_at", "session_id")
    table(
        "ended_sessions",
        *texts("session_id"),
        *numbers("ended_at"),
        *flags("revoked"),
        key=("session_id",),
        sqlite_with_rowid=False,
    )


def fleet() -> None:
    """Create the table of the sidecars' last reports."""
    table(
        "sidecars",
        *texts("sidecar_id", "run_id"),
        *texts("former_run_id", nullable=True),
        *numbers("duplicate_at", nullable=True),
        *texts("version"),
        *texts("agent_id", "agent_role", nullable=True),
        *texts("epoch"),
        *numbers("revision"),
        *numbers("policy_set_age_ms", nullable=True),
        *numbers("spool_depth"),
        *numbers("oldest_unshipped_ms", nullable=True),
        *texts("refusing", nullable=True),
        *numbers("first_seen", "last_seen"),
        key=("sidecar_id",),
    )


def policy_tables() -> None:
    """Create the tables of policies, their history, the documents published from them, and the
    Merkle map over these documents."""
    table(
        "policies",
        *texts("policy_id", "name", "agent_role"),
        *binaries("body"),
        *numbers("version"),
        *flags("user_modified"),
        *texts("file", nullable=True),
        *binaries("file_body", nullable=True),
        *numbers("created_at", "updated_at"),
        *numbers("deleted_at", nullable=True),
        of_a_tenant("policies"),
        key=("policy_id",),
    )
    active = ["tenant_id", "name"]
    index_where("ux_policies_active_name", "policies", active, "deleted_at IS NULL", unique=True)
    index("policies", "tenant_id", "agent_role")
    table(
        "policy_versions",
        *texts("policy_id"),
        *numbers("version"),
        *binaries("body"),
        *texts("changed_by"),
        *numbers("changed_at"),
        *texts("change"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "policy_id"],
            ["policies.tenant_id", "policies.policy_id"],
            name="fk_policy_versions_policies",
        ),
        key=("policy_id", "version"),
    )
    table(
        "documents",
        *texts("name"),
        *numbers("revision"),
        *texts("digest", nullable=True),
        *binaries("body", nullable=True),
        of_a_tenant("documents"),
        key=("name",),
    )
    index("documents", "tenant_id", "revision")
    table("set_nodes", *texts("node"), *binaries("body"), key=("node",))


def log() -> None:
    """Create the tables of the audit log, its index, and the anchors of purges."""
    table(
        "log_heads",
        *texts("log"),
        *numbers("size"),
        *binaries("last_leaf"),
        *numbers("last_ts"),
        *binaries("frontier"),
    )
    table(
        "log_entries",
        *numbers("seq"),
        *texts("eid", "kind"),
        *numbers("ts"),
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
        *binaries("entry", "hash"),
        key=("seq",),
    )
    op.create_index("ux_log_entries_eid", "log_entries", ["tenant_id", "eid"], unique=True)
    ref = ["tenant_id", "ref", "seq"]
    index_where("ix_log_entries_ref", "log_entries", ref, "ref IS NOT NULL")
    table(
        "openings",
        *numbers("seq"),
        *texts("user_id", nullable=True),
        *binaries("openings"),
        key=("seq",),
    )
    table(
        "log_index",
        small("facet"),
        *texts("value"),
        *numbers("seq"),
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
        *numbers("n"),
        *binaries("hash"),
        *numbers("updated_at"),
        key=("source", "instance"),
    )
    table(
        "purges",
        *numbers("seq", "tree_size"),
        *binaries("root_hash", "frontier", "last_hash"),
        *numbers("purged_before", "purged_count", "purged_at"),
        *texts("anchor_note"),
        *texts("cover_note", nullable=True),
        *numbers("finished_at", nullable=True),
        key=("seq",),
    )


def counts() -> None:
    """Create the tables of counted decisions."""
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
        *numbers("first_ts"),
        key=("agent_role", "source_id"),
        sqlite_with_rowid=False,
    )
    index("first_accesses", "tenant_id", "first_ts")


def alerts() -> None:
    """Create the tables of alert rules, and of the deliveries of alerts that fired."""
    table(
        "alert_rules",
        *texts("rule_id", "name", "rule_type"),
        *numbers("threshold", "window_minutes", "cooldown_minutes", "min_events"),
        *texts("webhook_url", "webhook_secret", "email", nullable=True),
        *flags("enabled"),
        *numbers("created_at", "updated_at"),
        *numbers("last_fired_at", nullable=True),
        of_a_tenant("alert_rules"),
        key=("rule_id",),
    )
    index("alert_rules", "tenant_id", "created_at", "rule_id")
    table(
        "alert_deliveries",
        *texts("delivery_id", "rule_id", "rule_name", "rule_type"),
        *numbers("fired_at"),
        *binaries("detail"),
        *texts("channel"),
        *texts("target", "address", "secret", nullable=True),
        *texts("status"),
        *numbers("attempts"),
        *texts("last_error", nullable=True),
        *numbers("next_attempt_at", nullable=True),
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
    """Enable row-level security: a transaction sees and writes only the rows of its tenant."""
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
