"""For which agents and as which sidecars the keys of sidecars may speak.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

TABLE = "sidecar_owners"
MINE = "tenant_id = current_setting('sluice.tenant', true)"


def upgrade() -> None:
    # Only additions: the version before this one keeps working, and holds no key to its binding. A
    # key that it makes has none, like every key from before.
    op.add_column("api_keys", sa.Column("agent_ids", sa.LargeBinary(), nullable=True))
    op.add_column("api_keys", sa.Column("sidecar_ids", sa.LargeBinary(), nullable=True))
    op.create_table(
        TABLE,
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("sidecar_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "sidecar_id", name=f"pk_{TABLE}"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=f"fk_{TABLE}_tenants"),
    )
    op.create_index(f"ix_{TABLE}_tenant_id_owner", TABLE, ["tenant_id", "owner"])
    if op.get_bind().dialect.name != "postgresql":
        return
    # The rules of migration 0006, for a new table.
    op.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {TABLE} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY of_tenant ON {TABLE} USING ({MINE}) WITH CHECK ({MINE})")
