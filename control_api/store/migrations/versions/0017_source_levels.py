"""Which sidecars apply the tenant's levels of sources.

Revision ID: 0017
Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nullable and without a default: the version before this one keeps working.
    op.add_column("sidecars", sa.Column("source_levels", sa.Boolean(), nullable=True))
