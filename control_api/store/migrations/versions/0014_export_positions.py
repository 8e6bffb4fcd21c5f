"""How far each export target has got each tenant's decisions.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

TABLE = "export_positions"
MINE = "tenant_id = current_setting('sluice.tenant', true)"
EVERYONE = "current_setting('sluice.tenant', true) = '*'"


# Only an addition: the version before this one keeps working, and pushes nothing.
def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("next_seq", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("lease", sa.Text(), nullable=False),
        sa.Column("leased_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "target", name=f"pk_{TABLE}"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=f"fk_{TABLE}_tenants"),
    )
    if op.get_bind().dialect.name != "postgresql":
        return
    # The rules of migration 0006, for a new table.
    op.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {TABLE} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY of_tenant ON {TABLE} USING ({MINE}) WITH CHECK ({MINE})")
    # The tenants whose logs have grown are found first.
    op.execute(f"CREATE POLICY across ON {TABLE} FOR SELECT USING ({EVERYONE})")
