"""The Merkle map over a policy set's documents.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

from policies.sets.merkle_map import updated_nodes

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "set_nodes",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "node", name="pk_set_nodes"),
    )
    op.add_column(
        "tenants", sa.Column("reset_below", sa.BigInteger(), nullable=False, server_default="0")
    )
    plant()


def plant() -> None:
    """Builds the map over the existing documents."""
    connection = op.get_bind()
    tenants = connection.execute(sa.text("SELECT tenant_id FROM tenants")).scalars().all()
    digests = sa.text(
        "SELECT name, digest FROM documents WHERE tenant_id = :tenant AND body IS NOT NULL"
    )
    nodes = sa.table("set_nodes", sa.column("tenant_id"), sa.column("node"), sa.column("body"))
    for tenant in tenants:
        held = connection.execute(digests, {"tenant": tenant}).all()
        if not held:
            continue
        rows = [
            {"tenant_id": tenant, "node": node, "body": body}
            for node, body in updated_nodes({}, {row.name: row.digest for row in held}).items()
            if body is not None
        ]
        connection.execute(sa.insert(nodes), rows)
