"""Guardrails, impact runs and candidates.

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

EVERYONE = "current_setting('sluice.tenant', true) = '*'"


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
    "impact_runs": (
        [
            text("impact_id"),
            text("state"),
            text("reason", nullable=True),
            text("created_by"),
            number("created_at"),
            number("ended_at", nullable=True),
            number("first_seq"),
            number("until_seq"),
            number("next_seq"),
            binary("last_leaf"),
            text("last_eid", nullable=True),
            binary("counts"),
            number("checkpoint_size", nullable=True),
            number("attempts"),
            text("lease", nullable=True),
            number("leased_until", nullable=True),
        ],
        ("impact_id",),
    ),
    "impact_policies": ([text("impact_id"), binary("body")], ("impact_id",)),
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
            _secure_rows(name)
    running = sa.text("state = 'running'")
    op.create_index(
        "ix_impact_runs_due",
        "impact_runs",
        ["leased_until"],
        sqlite_where=running,
        postgresql_where=running,
    )
    if op.get_bind().dialect.name == "postgresql":
        # Runs are found first, and then their tenants.
        op.execute(f"CREATE POLICY across ON impact_runs FOR SELECT USING ({EVERYONE})")
    _add_candidates()


def _add_candidates() -> None:
    """What a tenant's candidates are, and what the log says of them."""
    op.add_column("tenants", text("candidates", nullable=True))
    op.add_column("log_heads", text("candidates", nullable=True))
    op.create_table(
        "candidate_counts",
        text("tenant_id"),
        text("name"),
        number("revision"),
        binary("group_digest"),
        text("outcome"),
        text("agent_role"),
        text("source_id"),
        text("policy_name_before"),
        text("policy_name_after"),
        number("counted"),
        number("first_ts"),
        number("last_ts"),
        text("examples"),
        sa.PrimaryKeyConstraint(
            "tenant_id", "name", "revision", "group_digest", name="pk_candidate_counts"
        ),
    )
    if op.get_bind().dialect.name == "postgresql":
        _secure_rows("candidate_counts")


def _secure_rows(name: str) -> None:
    """The rules of migration 0006, for a new table."""
    op.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY of_tenant ON {name} USING ({MINE}) WITH CHECK ({MINE})")
