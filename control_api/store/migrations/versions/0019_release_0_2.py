"""Adds what release 0.2 needs to the schema of 0.1.

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


def texts(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=nullable) for name in names]


def numbers(*names: str, nullable: bool = False) -> list[sa.Column[int]]:
    whole = sa.BigInteger()
    return [sa.Column(name, whole, nullable=nullable, autoincrement=False) for name in names]


def small(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.SmallInteger(), nullable=False, autoincrement=False)


def binaries(*names: str, nullable: bool = False) -> list[sa.Column[bytes]]:
    return [sa.Column(name, sa.LargeBinary(), nullable=nullable) for name in names]


def table(
    name: str, *columns: sa.schema.SchemaItem, key: tuple[str, ...] = (), **options: bool
) -> None:
    """Create a table whose primary key begins with the tenant, with row-level security."""
    op.create_table(
        name,
        *texts("tenant_id"),
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
        *texts("target"),
        *numbers("next_seq"),
        *texts("lease"),
        *numbers("leased_until"),
        of_a_tenant("export_positions"),
        key=("target",),
    )


def registry() -> None:
    """Add the workloads of agents, the keys of enrolled pods, and the bindings of sidecars' keys:
    for which agents, and as which sidecars, they may speak."""
    for column in texts("workload", "enrolment", nullable=True):
        op.add_column("agents", column)
    workload = ["tenant_id", "workload"]
    index_where("ux_agents_workload", "agents", workload, "workload IS NOT NULL", unique=True)
    table(
        "enrolled_keys",
        *texts("key_id"),
        *binaries("digest"),
        *texts("scope", "agent_id", "generation", "pod", "pod_uid"),
        *numbers("created_at", "expires_at"),
        of_a_tenant("enrolled_keys"),
        key=("key_id",),
    )
    index("enrolled_keys", "digest")
    index("enrolled_keys", "tenant_id", "created_at", "key_id")
    index("enrolled_keys", "tenant_id", "expires_at")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"CREATE POLICY of_digest ON enrolled_keys FOR SELECT USING ({THIS_KEY})")
    # A key that 0.1 makes has no binding, like every key from before.
    for binding in binaries("agent_ids", "sidecar_ids", "former_agents", nullable=True):
        op.add_column("api_keys", binding)
    table(
        "sidecar_owners",
        *texts("sidecar_id", "owner"),
        *numbers("since"),
        of_a_tenant("sidecar_owners"),
        key=("sidecar_id",),
    )
    index("sidecar_owners", "tenant_id", "owner")


def fleet() -> None:
    """Add to the sidecars the workload whose pod each runs in, whether it saw the log forked, and
    whether it applies the tenant's levels of sources."""
    for column in texts("workload", "enrolled_until", "forked", nullable=True):
        op.add_column("sidecars", column)
    op.add_column("sidecars", sa.Column("source_levels", sa.Boolean(), nullable=True))


def proofs() -> None:
    """Add checkpoints, nodes of the tree, cited documents, holds, and the other tables that proofs
    need."""
    table(
        "checkpoints",
        *numbers("number"),
        *texts("origin"),
        *numbers("size"),
        *binaries("root_hash", "frontier"),
        *texts("note"),
        *numbers("signed_at"),
        small("witnesses"),
        key=("number",),
    )
    size = ["tenant_id", "size", "origin"]
    op.create_index("ux_checkpoints_size", "checkpoints", size, unique=True)
    table(
        "tree_nodes",
        small("level"),
        *numbers("place"),
        *binaries("hash"),
        key=("level", "place"),
        sqlite_with_rowid=False,
    )
    table(
        "incarnations",
        *numbers("number"),
        *texts("origin"),
        *numbers("seq"),
        *texts("cited_note"),
        *numbers("accepted_at"),
        key=("number",),
    )
    table(
        "cited_documents",
        *texts("digest", "name"),
        *binaries("body"),
        *numbers("published_at"),
        *numbers("replaced_at", nullable=True),
        key=("digest",),
    )
    table(
        "holds",
        *texts("hold_id", "object_type", "object_id", "reason", "placed_by"),
        *numbers("placed_at", "seq"),
        *texts("released_by", nullable=True),
        *numbers("released_at", nullable=True),
        key=("hold_id",),
    )
    table(
        "acknowledgements",
        *texts("source"),
        *numbers("revision", "seq", "acknowledged_at"),
        key=("source", "revision"),
    )
    table(
        "self_checks",
        *numbers("size"),
        *binaries("frontier", "last_leaf"),
        *numbers("started_at"),
        *numbers("finished_at", "finished_size", nullable=True),
        *texts("broken_at", "reason", nullable=True),
        *numbers("leased_until", "verified_at", nullable=True),
    )
    table(
        "count_checks",
        *numbers("checked_at", nullable=True),
        *texts("reason", nullable=True),
        *numbers("leased_until", nullable=True),
    )


def log_index() -> None:
    """Add an index of the entries that are neither decisions nor their lineage (changes, erasures,
    purges), and the column for rows of the log's index that name several entries."""
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
    """Add guardrails, impact runs, and candidates with the counts of their decisions."""
    table(
        "guardrails",
        *texts("name"),
        *binaries("body"),
        *texts("file", nullable=True),
        *numbers("created_at", "updated_at"),
        of_a_tenant("guardrails"),
        key=("name",),
    )
    table(
        "impact_runs",
        *texts("impact_id", "state"),
        *texts("reason", nullable=True),
        *texts("created_by"),
        *numbers("created_at"),
        *numbers("ended_at", nullable=True),
        *numbers("first_seq", "until_seq", "next_seq"),
        *binaries("last_leaf"),
        *texts("last_eid", nullable=True),
        *binaries("counts"),
        *numbers("checkpoint_size", nullable=True),
        *numbers("attempts"),
        *texts("lease", nullable=True),
        *numbers("leased_until", nullable=True),
        of_a_tenant("impact_runs"),
        key=("impact_id",),
    )
    index_where("ix_impact_runs_due", "impact_runs", ["leased_until"], "state = 'running'")
    table(
        "impact_policies",
        *texts("impact_id"),
        *binaries("body"),
        of_a_tenant("impact_policies"),
        key=("impact_id",),
    )
    for name in ("tenants", "log_heads"):
        op.add_column(name, sa.Column("candidates", sa.Text(), nullable=True))
    table(
        "candidate_counts",
        *texts("name"),
        *numbers("revision"),
        *binaries("group_digest"),
        *texts("outcome", "agent_role", "source_id", "policy_name_before", "policy_name_after"),
        *numbers("counted", "first_ts", "last_ts"),
        *texts("examples"),
        key=("name", "revision", "group_digest"),
    )


def console() -> None:
    """Add the console's sessions, and the one-time links that begin one."""
    table(
        "console_sessions",
        *binaries("digest"),
        *texts("session_id", "method", "person", "scope"),
        *binaries("key_digest", nullable=True),
        *texts("issuer", "subject", "granted_by", nullable=True),
        *numbers("created_at", "seen_at", "expires_at"),
        *texts("browser"),
        key=("digest",),
    )
    session = ["tenant_id", "session_id"]
    op.create_index("ux_console_sessions_session_id", "console_sessions", session, unique=True)
    index("console_sessions", "tenant_id", "created_at", "session_id")
    table(
        "sign_in_links",
        *binaries("digest"),
        *texts("person", "scope"),
        *binaries("key_digest"),
        *numbers("expires_at"),
        *numbers("used_at", nullable=True),
        key=("digest",),
    )
