"""Guardrails.

Revision ID: 0013
Revises: 0012
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

MINE = "tenant_id = current_setting('sluice.tenant', true)"


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable, autoincrement=False)


def binary(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=nullable)


# Only additions: the version before this one keeps working, but checks no guardrail. Columns
# without the tenant, then the rest of the primary key.
TABLES: dict[str, tuple[list[sa.Column[Any]], tuple[str, ...]]] = {
    "guardrails": (
        [
            text("name"),
            binary("body"),
            text("file", nullable=True),
            number("created_at"),
            number("updated_at"),
        ],
        ("name",),
    ),
}


def upgrade() -> None:
    for name, (columns, key) in TABLES.items():
        op.create_table(
            name,
            text("tenant_id"),
            *columns,
            sa.PrimaryKeyConstraint("tenant_id", *key, name=f"pk_{name}"),
            sa.ForeignKeyConstraint(
                ["tenant_id"], ["tenants.tenant_id"], name=f"fk_{name}_tenants"
            ),
        )
        if op.get_bind().dialect.name == "postgresql":
            # The rules of migration 0006, for the new tables.
            op.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")
            op.execute(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY")
            op.execute(f"CREATE POLICY of_tenant ON {name} USING ({MINE}) WITH CHECK ({MINE})")
