"""The public halves of the keys that signed the logs.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "log_keys",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "place", name="pk_log_keys"),
    )
