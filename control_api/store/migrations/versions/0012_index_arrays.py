"""A row of the log's index may name several entries.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nullable and without a default: the version before this one keeps working. It must not run
    # beside one that fills the column; `control_api.store.log.index` says when that is.
    offsets = postgresql.ARRAY(sa.SmallInteger()).with_variant(sa.LargeBinary(), "sqlite")
    op.add_column("log_index", sa.Column("more", offsets, nullable=True))
