"""Sidecars that were shown two checkpoints of the log that contradict each other.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nullable and without a default: the version before this one keeps working.
    op.add_column("sidecars", sa.Column("forked", sa.Text(), nullable=True))
