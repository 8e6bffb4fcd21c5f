"""The sidecars, as they last reported.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable, autoincrement=False)


def upgrade() -> None:
    op.create_table(
        "sidecars",
        text("tenant_id"),
        text("sidecar_id"),
        text("run_id"),
        text("former_run_id", nullable=True),
        number("duplicate_at", nullable=True),
        text("version"),
        text("agent_id", nullable=True),
        text("agent_role", nullable=True),
        text("epoch"),
        number("revision"),
        number("policy_set_age_ms", nullable=True),
        number("spool_depth"),
        number("oldest_unshipped_ms", nullable=True),
        text("refusing", nullable=True),
        number("first_seen"),
        number("last_seen"),
        sa.PrimaryKeyConstraint("tenant_id", "sidecar_id", name="pk_sidecars"),
    )
