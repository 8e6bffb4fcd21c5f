"""When and why a tenant was frozen.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nullable without a default: no row is rewritten, and existing tenants are not frozen.
    op.add_column("tenants", sa.Column("frozen_at", sa.BigInteger(), nullable=True))
    op.add_column("tenants", sa.Column("freeze_reason", sa.Text(), nullable=True))
