"""Checkpoints, nodes of the tree, cited documents, holds, and what else the proofs need.

Revision ID: 0009
Revises: 0008
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

MINE = "tenant_id = current_setting('sluice.tenant', true)"


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable, autoincrement=False)


def small(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.SmallInteger(), nullable=False, autoincrement=False)


def binary(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


# Only additions: the version before this one keeps working.
TABLES: dict[str, tuple[list[sa.Column[Any]], tuple[str, ...]]] = {
    "checkpoints": (
        [
            number("number"),
            text("origin"),
            number("size"),
            binary("root_hash"),
            binary("frontier"),
            text("note"),
            number("signed_at"),
            small("witnesses"),
        ],
        ("number",),
    ),
    "tree_nodes": ([small("level"), number("place"), binary("hash")], ("level", "place")),
    "incarnations": (
        [
            number("number"),
            text("origin"),
            number("seq"),
            text("cited_note"),
            number("accepted_at"),
        ],
        ("number",),
    ),
    "cited_documents": (
        [
            text("digest"),
            text("name"),
            binary("body"),
            number("published_at"),
            number("replaced_at", nullable=True),
        ],
        ("digest",),
    ),
    "holds": (
        [
            text("hold_id"),
            text("object_type"),
            text("object_id"),
            text("reason"),
            text("placed_by"),
            number("placed_at"),
            number("seq"),
            text("released_by", nullable=True),
            number("released_at", nullable=True),
        ],
        ("hold_id",),
    ),
    "acknowledgements": (
        [text("source"), number("revision"), number("seq"), number("acknowledged_at")],
        ("source", "revision"),
    ),
    "self_checks": (
        [
            number("size"),
            binary("frontier"),
            binary("last_leaf"),
            number("started_at"),
            number("finished_at", nullable=True),
            number("finished_size", nullable=True),
            text("broken_at", nullable=True),
            text("reason", nullable=True),
            number("leased_until", nullable=True),
        ],
        (),
    ),
}
WITHOUT_ROWID = ("tree_nodes",)


def upgrade() -> None:
    for name, (columns, key) in TABLES.items():
        op.create_table(
            name,
            text("tenant_id"),
            *columns,
            sa.PrimaryKeyConstraint("tenant_id", *key, name=f"pk_{name}"),
            sqlite_with_rowid=name not in WITHOUT_ROWID,
        )
        if op.get_bind().dialect.name == "postgresql":
            # The rules of migration 0006, for the new tables.
            op.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")
            op.execute(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY")
            op.execute(f"CREATE POLICY of_tenant ON {name} USING ({MINE}) WITH CHECK ({MINE})")
    op.create_index(
        "ux_checkpoints_size", "checkpoints", ["tenant_id", "size", "origin"], unique=True
    )
