"""The agents that a key was bound to before.

Revision ID: 0019
Revises: 0018
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nullable and without a default: the version before this one keeps working.
    op.add_column("api_keys", sa.Column("former_agents", sa.LargeBinary(), nullable=True))
