"""Which sidecars apply the tenant's levels of sources.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nullable and without a default: the version before this one keeps working.
    op.add_column("sidecars", sa.Column("source_levels", sa.Boolean(), nullable=True))
