"""Workloads of agents, and the keys of enrolled pods.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

MINE = "tenant_id = current_setting('sluice.tenant', true)"
THIS_KEY = "digest = decode(nullif(current_setting('sluice.key_digest', true), ''), 'hex')"


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False)


def upgrade() -> None:
    # Only additions, nullable and without defaults: the version before this one keeps working.
    op.add_column("agents", text("workload", nullable=True))
    op.add_column("agents", text("enrolment", nullable=True))
    op.add_column("sidecars", text("workload", nullable=True))
    op.add_column("sidecars", text("enrolled_until", nullable=True))
    present = sa.text("workload IS NOT NULL")
    op.create_index(
        "ux_agents_workload",
        "agents",
        ["tenant_id", "workload"],
        unique=True,
        sqlite_where=present,
        postgresql_where=present,
    )
    op.create_table(
        "enrolled_keys",
        text("tenant_id"),
        text("key_id"),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        text("scope"),
        text("agent_id"),
        text("generation"),
        text("pod"),
        text("pod_uid"),
        number("created_at"),
        number("expires_at"),
        sa.PrimaryKeyConstraint("tenant_id", "key_id", name="pk_enrolled_keys"),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.tenant_id"], name="fk_enrolled_keys_tenants"
        ),
    )
    op.create_index("ix_enrolled_keys_digest", "enrolled_keys", ["digest"])
    for columns in (["tenant_id", "created_at", "key_id"], ["tenant_id", "expires_at"]):
        op.create_index(f"ix_enrolled_keys_{'_'.join(columns)}", "enrolled_keys", columns)
    if op.get_bind().dialect.name == "postgresql":
        _secure_rows()


def _secure_rows() -> None:
    """The rules of migration 0006, for the new table."""
    op.execute("ALTER TABLE enrolled_keys ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE enrolled_keys FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY of_tenant ON enrolled_keys USING ({MINE}) WITH CHECK ({MINE})")
    op.execute(f"CREATE POLICY of_digest ON enrolled_keys FOR SELECT USING ({THIS_KEY})")
