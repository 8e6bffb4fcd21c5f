"""What release 0.2 adds to the schema of 0.1.

The steps 0008 to 0018 were never in a release: `control_api.store.schema.version` refuses a
database that a development version left at one of them.

Revision ID: 0019
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0007"
branch_labels = None
depends_on = None

# Work that has to find the tenants first may read these tables across tenants: impact runs that
# are due, and tenants whose logs have grown.
ACROSS = ("impact_runs", "export_positions")
MINE = "tenant_id = current_setting('sluice.tenant', true)"
EVERYONE = "current_setting('sluice.tenant', true) = '*'"
THIS_KEY = "digest = decode(nullif(current_setting('sluice.key_digest', true), ''), 'hex')"


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable, autoincrement=False)


def small(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.SmallInteger(), nullable=False, autoincrement=False)


def binary(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=nullable)


def table(
    name: str, *columns: sa.schema.SchemaItem, key: tuple[str, ...] = (), **options: bool
) -> None:
    """Creates a table whose primary key begins with the tenant, with row-level security."""
    op.create_table(
        name,
        text("tenant_id"),
        *columns,
        sa.PrimaryKeyConstraint("tenant_id", *key, name=f"pk_{name}"),
        **options,
    )
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY of_tenant ON {name} USING ({MINE}) WITH CHECK ({MINE})")
    if name in ACROSS:
        op.execute(f"CREATE POLICY across ON {name} FOR SELECT USING ({EVERYONE})")


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


# Only additions, and columns that are nullable without a default: 0.1 keeps working on them.
def upgrade() -> None:
    registry()
    fleet()
    proofs()
    log_index()
    policy_tools()
    console()
    table(
        "export_positions",
        text("target"),
        number("next_seq"),
        text("lease"),
        number("leased_until"),
        of_a_tenant("export_positions"),
        key=("target",),
    )


def registry() -> None:
    """Workloads of agents, the keys of enrolled pods, and for which agents and as which sidecars
    the keys of sidecars may speak."""
    op.add_column("agents", text("workload", nullable=True))
    op.add_column("agents", text("enrolment", nullable=True))
    workload = ["tenant_id", "workload"]
    index_where("ux_agents_workload", "agents", workload, "workload IS NOT NULL", unique=True)
    table(
        "enrolled_keys",
        text("key_id"),
        binary("digest"),
        text("scope"),
        text("agent_id"),
        text("generation"),
        text("pod"),
        text("pod_uid"),
        number("created_at"),
        number("expires_at"),
        of_a_tenant("enrolled_keys"),
        key=("key_id",),
    )
    index("enrolled_keys", "digest")
    index("enrolled_keys", "tenant_id", "created_at", "key_id")
    index("enrolled_keys", "tenant_id", "expires_at")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"CREATE POLICY of_digest ON enrolled_keys FOR SELECT USING ({THIS_KEY})")
    # A key that 0.1 makes has no binding, like every key from before.
    for name in ("agent_ids", "sidecar_ids", "former_agents"):
        op.add_column("api_keys", binary(name, nullable=True))
    table(
        "sidecar_owners",
        text("sidecar_id"),
        text("owner"),
        number("since"),
        of_a_tenant("sidecar_owners"),
        key=("sidecar_id",),
    )
    index("sidecar_owners", "tenant_id", "owner")


def fleet() -> None:
    """Whose pods sidecars run in, which of them saw the log forked, and which apply the tenant's
    levels of sources."""
    op.add_column("sidecars", text("workload", nullable=True))
    op.add_column("sidecars", text("enrolled_until", nullable=True))
    op.add_column("sidecars", text("forked", nullable=True))
    op.add_column("sidecars", sa.Column("source_levels", sa.Boolean(), nullable=True))


def proofs() -> None:
    """Checkpoints, nodes of the tree, cited documents, holds, and what else the proofs need."""
    table(
        "checkpoints",
        number("number"),
        text("origin"),
        number("size"),
        binary("root_hash"),
        binary("frontier"),
        text("note"),
        number("signed_at"),
        small("witnesses"),
        key=("number",),
    )
    size = ["tenant_id", "size", "origin"]
    op.create_index("ux_checkpoints_size", "checkpoints", size, unique=True)
    table(
        "tree_nodes",
        small("level"),
        number("place"),
        binary("hash"),
        key=("level", "place"),
        sqlite_with_rowid=False,
    )
    table(
        "incarnations",
        number("number"),
        text("origin"),
        number("seq"),
        text("cited_note"),
        number("accepted_at"),
        key=("number",),
    )
    table(
        "cited_documents",
        text("digest"),
        text("name"),
        binary("body"),
        number("published_at"),
        number("replaced_at", nullable=True),
        key=("digest",),
    )
    table(
        "holds",
        text("hold_id"),
        text("object_type"),
        text("object_id"),
        text("reason"),
        text("placed_by"),
        number("placed_at"),
        number("seq"),
        text("released_by", nullable=True),
        number("released_at", nullable=True),
        key=("hold_id",),
    )
    table(
        "acknowledgements",
        text("source"),
        number("revision"),
        number("seq"),
        number("acknowledged_at"),
        key=("source", "revision"),
    )
    table(
        "self_checks",
        number("size"),
        binary("frontier"),
        binary("last_leaf"),
        number("started_at"),
        number("finished_at", nullable=True),
        number("finished_size", nullable=True),
        text("broken_at", nullable=True),
        text("reason", nullable=True),
        number("leased_until", nullable=True),
        number("verified_at", nullable=True),
    )
    table(
        "count_checks",
        number("checked_at", nullable=True),
        text("reason", nullable=True),
        number("leased_until", nullable=True),
    )


def log_index() -> None:
    """An index of the entries that are neither decisions nor their lineage (changes, erasures,
    purges), and rows of the log's index that name several entries."""
    if op.get_bind().dialect.name == "sqlite":
        # On PostgreSQL, `control_api.store.migrate` builds it after the
        # migrations: in their transaction it would stop all appends.
        op.create_index(
            "ix_log_entries_rare_kinds",
            "log_entries",
            ["tenant_id", "kind", "seq"],
            sqlite_where=sa.text("kind NOT IN ('decision', 'lineage')"),
        )
    # 0.1 must not run beside a version that fills the column; `control_api.store.log.index` says
    # when that is.
    offsets = postgresql.ARRAY(sa.SmallInteger()).with_variant(sa.LargeBinary(), "sqlite")
    op.add_column("log_index", sa.Column("more", offsets, nullable=True))


def policy_tools() -> None:
    """Guardrails, impact runs, and candidates with what the log says of them."""
    table(
        "guardrails",
        text("name"),
        binary("body"),
        text("file", nullable=True),
        number("created_at"),
        number("updated_at"),
        of_a_tenant("guardrails"),
        key=("name",),
    )
    table(
        "impact_runs",
        text("impact_id"),
        text("state"),
        text("reason", nullable=True),
        text("created_by"),
        number("created_at"),
        number("ended_at", nullable=True),
        number("first_seq"),
        number("until_seq"),
        number("next_seq"),
        binary("last_leaf"),
        text("last_eid", nullable=True),
        binary("counts"),
        number("checkpoint_size", nullable=True),
        number("attempts"),
        text("lease", nullable=True),
        number("leased_until", nullable=True),
        of_a_tenant("impact_runs"),
        key=("impact_id",),
    )
    index_where("ix_impact_runs_due", "impact_runs", ["leased_until"], "state = 'running'")
    table(
        "impact_policies",
        text("impact_id"),
        binary("body"),
        of_a_tenant("impact_policies"),
        key=("impact_id",),
    )
    op.add_column("tenants", text("candidates", nullable=True))
    op.add_column("log_heads", text("candidates", nullable=True))
    table(
        "candidate_counts",
        text("name"),
        number("revision"),
        binary("group_digest"),
        text("outcome"),
        text("agent_role"),
        text("source_id"),
        text("policy_name_before"),
        text("policy_name_after"),
        number("counted"),
        number("first_ts"),
        number("last_ts"),
        text("examples"),
        key=("name", "revision", "group_digest"),
    )


def console() -> None:
    """The console's sessions, and the one-time links that begin one."""
    table(
        "console_sessions",
        binary("digest"),
        text("session_id"),
        text("method"),
        text("person"),
        text("scope"),
        binary("key_digest", nullable=True),
        text("issuer", nullable=True),
        text("subject", nullable=True),
        text("granted_by", nullable=True),
        number("created_at"),
        number("seen_at"),
        number("expires_at"),
        text("browser"),
        key=("digest",),
    )
    session = ["tenant_id", "session_id"]
    op.create_index("ux_console_sessions_session_id", "console_sessions", session, unique=True)
    index("console_sessions", "tenant_id", "created_at", "session_id")
    table(
        "sign_in_links",
        binary("digest"),
        text("person"),
        text("scope"),
        binary("key_digest"),
        number("expires_at"),
        number("used_at", nullable=True),
        key=("digest",),
    )
