"""The sessions of the console, and the one-time links that begin one.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

MINE = "tenant_id = current_setting('sluice.tenant', true)"


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def binary(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=nullable)


# Only additions: the version before this one keeps working, and has no console.
def upgrade() -> None:
    op.create_table(
        "console_sessions",
        text("tenant_id"),
        binary("digest"),
        text("session_id"),
        text("method"),
        text("person"),
        text("scope"),
        binary("key_digest", nullable=True),
        text("issuer", nullable=True),
        text("subject", nullable=True),
        text("granted_by", nullable=True),
        number("created_at"),
        number("seen_at"),
        number("expires_at"),
        text("browser"),
        sa.PrimaryKeyConstraint("tenant_id", "digest", name="pk_console_sessions"),
    )
    op.create_index(
        "ux_console_sessions_session_id",
        "console_sessions",
        ["tenant_id", "session_id"],
        unique=True,
    )
    op.create_index(
        "ix_console_sessions_tenant_id_created_at_session_id",
        "console_sessions",
        ["tenant_id", "created_at", "session_id"],
    )
    op.create_table(
        "sign_in_links",
        text("tenant_id"),
        binary("digest"),
        text("person"),
        text("scope"),
        binary("key_digest"),
        number("expires_at"),
        number("used_at", nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "digest", name="pk_sign_in_links"),
    )
    if op.get_bind().dialect.name != "postgresql":
        return
    # The rules of migration 0006, for the new tables. Neither is ever read across tenants.
    for table in ("console_sessions", "sign_in_links"):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY of_tenant ON {table} USING ({MINE}) WITH CHECK ({MINE})")
