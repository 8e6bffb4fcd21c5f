"""An index of the entries that are neither decisions nor their lineage: changes, erasures, purges.

On PostgreSQL, `control_api.store.postgresql.large_indexes` builds it after the migrations, because
an index on a growing table must not be built in their transaction: it would stop all appends.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.create_index(
            "ix_log_entries_rare_kinds",
            "log_entries",
            ["tenant_id", "kind", "seq"],
            sqlite_where=sa.text("kind NOT IN ('decision', 'lineage')"),
        )
