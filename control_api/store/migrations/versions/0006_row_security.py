"""Row-level security on PostgreSQL: a transaction sees and writes only the rows of its tenant.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Work that has to find the tenants first may read these tables across tenants: tenants, log heads,
# alert rules, due deliveries, sidecars. Never log entries or their openings.
ACROSS = ("tenants", "log_heads", "alert_rules", "alert_deliveries", "sidecars")
# The rows of these tables belong to no tenant, and everyone can read them.
OF_NO_TENANT = ("installation", "log_keys")
MINE = "tenant_id = current_setting('sluice.tenant', true)"
EVERYONE = "current_setting('sluice.tenant', true) = '*'"
# `nullif`: a setting made with SET LOCAL is empty, not null, after its transaction.
THIS_KEY = "digest = decode(nullif(current_setting('sluice.key_digest', true), ''), 'hex')"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    tables = sa.inspect(op.get_bind()).get_table_names()
    for table in tables:
        if table == "alembic_version":
            continue
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        # FORCE binds the owner too, for a service that runs as the owner.
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        if table not in OF_NO_TENANT:
            policy("of_tenant", table, f"USING ({MINE}) WITH CHECK ({MINE})")
        if table in ACROSS:
            policy("across", table, f"FOR SELECT USING ({EVERYONE})")
    policy("of_digest", "api_keys", f"FOR SELECT USING ({THIS_KEY})")
    # Rows are inserted and never changed. Locking the installation's row needs an UPDATE policy.
    for table in OF_NO_TENANT:
        policy("reading", table, "FOR SELECT USING (true)")
        policy("making", table, "FOR INSERT WITH CHECK (tenant_id = '')")
    policy("locking", "installation", "FOR UPDATE USING (true) WITH CHECK (false)")


def policy(name: str, table: str, rule: str) -> None:
    op.execute(f"DROP POLICY IF EXISTS {name} ON {table}")
    op.execute(f"CREATE POLICY {name} ON {table} {rule}")
