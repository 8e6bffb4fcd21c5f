"""Counts of decisions, alert rules and retention.

Revision ID: 0002
Revises: 0001
"""

import orjson
import sqlalchemy as sa
from alembic import op

from control_api.store.counters.counters import BatchCounts
from policies.trail.entry import index_of

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STRETCH = 4096

# Migrations share no code: a released one must go on creating exactly what it created.


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable, autoincrement=False)


def binary(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def table(name: str, *columns: sa.schema.SchemaItem, key: tuple[str, ...], **options: bool) -> None:
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


def upgrade() -> None:
    for name, days in (("retention_days", "365"), ("session_retention_days", "90")):
        op.add_column(
            "tenants", sa.Column(name, sa.BigInteger(), nullable=False, server_default=days)
        )
    counts()
    alerts()
    table(
        "purges",
        number("seq"),
        number("tree_size"),
        binary("root_hash"),
        binary("frontier"),
        binary("last_hash"),
        number("purged_before"),
        number("purged_count"),
        number("purged_at"),
        text("anchor_note"),
        text("cover_note", nullable=True),
        number("finished_at", nullable=True),
        key=("seq",),
    )
    table(
        "ended_sessions",
        text("session_id"),
        number("ended_at"),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        key=("session_id",),
        sqlite_with_rowid=False,
    )


def counts() -> None:
    table(
        "tallies",
        sa.Column("facet", sa.SmallInteger(), nullable=False, autoincrement=False),
        sa.Column(
            "value",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
        ),
        number("bucket"),
        number("allowed"),
        number("denied"),
        number("last_ts"),
        key=("facet", "value", "bucket"),
        sqlite_with_rowid=False,
    )
    table(
        "first_accesses",
        text("agent_role"),
        text("source_id"),
        number("first_ts"),
        key=("agent_role", "source_id"),
        sqlite_with_rowid=False,
    )
    index("first_accesses", "tenant_id", "first_ts")
    count_what_is_there()


def count_what_is_there() -> None:
    """Counts the decisions of existing logs, a few thousand entries at a time."""
    connection = op.get_bind()
    entries = sa.table("log_entries", *map(sa.column, ("tenant_id", "seq", "kind", "entry")))
    tenants = sa.select(entries.c.tenant_id).distinct().order_by(entries.c.tenant_id)
    for tenant_id in connection.execute(tenants).scalars().all():
        after = -1
        while True:
            rows = connection.execute(
                sa.select(entries.c.seq, entries.c.kind, entries.c.entry)
                .where(entries.c.tenant_id == tenant_id, entries.c.seq > after)
                .order_by(entries.c.seq)
                .limit(STRETCH)
            ).all()
            if not rows:
                break
            after = rows[-1].seq
            tally = BatchCounts()
            for row in rows:
                if row.kind == "decision":
                    entry = orjson.loads(row.entry)
                    tally.add(index_of(entry), entry["pub"]["request"]["source_type"])
            tally.save(connection, tenant_id)


def alerts() -> None:
    table(
        "alert_rules",
        text("rule_id"),
        text("name"),
        text("rule_type"),
        number("threshold"),
        number("window_minutes"),
        number("cooldown_minutes"),
        number("min_events"),
        text("webhook_url", nullable=True),
        text("webhook_secret", nullable=True),
        text("email", nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        number("created_at"),
        number("updated_at"),
        number("last_fired_at", nullable=True),
        of_a_tenant("alert_rules"),
        key=("rule_id",),
    )
    index("alert_rules", "tenant_id", "created_at", "rule_id")
    table(
        "alert_deliveries",
        text("delivery_id"),
        text("rule_id"),
        text("rule_name"),
        text("rule_type"),
        number("fired_at"),
        binary("detail"),
        text("channel"),
        text("target", nullable=True),
        text("address", nullable=True),
        text("secret", nullable=True),
        text("status"),
        number("attempts"),
        text("last_error", nullable=True),
        number("next_attempt_at", nullable=True),
        of_a_tenant("alert_deliveries"),
        key=("delivery_id",),
    )
    index("alert_deliveries", "tenant_id", "fired_at", "delivery_id")
    due = sa.text("next_attempt_at IS NOT NULL")
    op.create_index(
        "ix_alert_deliveries_due",
        "alert_deliveries",
        ["next_attempt_at"],
        sqlite_where=due,
        postgresql_where=due,
    )
