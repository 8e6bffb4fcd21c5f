"""When each log was last verified as a whole, and its counts compared with its entries.

Revision ID: 0018
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

TABLE = "count_checks"
MINE = "tenant_id = current_setting('sluice.tenant', true)"


def upgrade() -> None:
    # Only additions: the version before this one keeps working, and compares no counts.
    op.add_column("self_checks", sa.Column("verified_at", sa.BigInteger(), nullable=True))
    op.create_table(
        TABLE,
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("leased_until", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", name=f"pk_{TABLE}"),
    )
    if op.get_bind().dialect.name != "postgresql":
        return
    # The rules of migration 0006, for a new table.
    op.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {TABLE} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY of_tenant ON {TABLE} USING ({MINE}) WITH CHECK ({MINE})")
