"""What the service's role on PostgreSQL may do, and what it must not be able to do.

The owner of the tables makes them (`sluice migrate`); the service reads and writes rows, as one
tenant at a time. A role that row-level security does not bind would make that wall one of paper.
"""

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.url import UnusableDatabase

READ, GROW, CHANGE, TURN = (
    "SELECT",
    "SELECT, INSERT",
    "SELECT, INSERT, UPDATE",
    "SELECT, INSERT, DELETE",
)
ALL = "SELECT, INSERT, UPDATE, DELETE"

GRANTS = {
    "agents": CHANGE,
    "alembic_version": READ,
    "alert_deliveries": ALL,
    "alert_rules": ALL,
    "api_keys": CHANGE,
    "documents": TURN,
    "ended_sessions": GROW,
    "first_accesses": CHANGE,
    "installation": CHANGE,
    "log_entries": TURN,
    "log_heads": CHANGE,
    "log_index": TURN,
    "log_keys": GROW,
    "log_spans": TURN,
    "openings": TURN,
    "policies": CHANGE,
    "policy_versions": GROW,
    "purges": ALL,
    "sessions": ALL,
    "set_nodes": TURN,
    "sidecars": ALL,
    "sources": CHANGE,
    "tallies": ALL,
    "tenants": CHANGE,
}
"""What is used of each table; a test holds it against the statements that are sent. `UPDATE` of
`installation` only lets its row be locked: its policy lets nothing be changed."""


async def bound(connection: AsyncConnection) -> None:
    """`UnusableDatabase` where row-level security does not bind this role, or one that it can
    become."""
    free = (await connection.execute(_FREE)).scalar()
    if free is not None:
        raise UnusableDatabase(
            f"its role is, or may become, `{free}`, which row-level "
            "security does not bind: make one for the service alone (CREATE ROLE … LOGIN "
            "NOSUPERUSER NOBYPASSRLS), and run `sluice migrate` with the owner's URL in "
            "SLUICE_MIGRATE_DATABASE_URL, which grants it what it needs"
        )


async def granted(connection: AsyncConnection) -> None:
    """`UnusableDatabase` where this role lacks what a table that is there is used for."""
    wanted = [(table, verb) for table, verbs in GRANTS.items() for verb in verbs.split(", ")]
    tables, verbs = zip(*wanted, strict=True)
    query = {"tables": list(tables), "verbs": list(verbs)}
    lacking = (await connection.execute(_LACKING, query)).first()
    if lacking is not None:
        raise UnusableDatabase(
            f"its role may not {lacking.verb} `{lacking.name}`: run "
            "`sluice migrate` with the owner's URL in SLUICE_MIGRATE_DATABASE_URL, which grants it"
        )


def grant_privileges(connection: Connection, role: str) -> None:
    """Just what the service needs, and nothing else, to `role`; by the owner of the tables."""
    mine = connection.execute(text("SELECT current_user")).scalar_one()
    if role == mine:
        return
    if connection.execute(_KNOWN, {"role": role}).first() is None:
        raise UnusableDatabase(
            f"there is no role `{role}`, which SLUICE_DATABASE_URL names: CREATE ROLE … LOGIN "
            "PASSWORD … NOSUPERUSER NOBYPASSRLS first"
        )
    name = connection.dialect.identifier_preparer.quote_identifier(role)
    schema = connection.dialect.identifier_preparer.quote_identifier(
        connection.execute(text("SELECT current_schema()")).scalar_one()
    )
    connection.exec_driver_sql(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name}")
    connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
    for table, verbs in GRANTS.items():
        connection.exec_driver_sql(f"GRANT {verbs} ON {table} TO {name}")


_FREE = text(
    "SELECT rolname FROM pg_roles WHERE (rolsuper OR rolbypassrls)"
    " AND pg_has_role(current_user, oid, 'MEMBER') ORDER BY rolname = current_user DESC LIMIT 1"
)
_LACKING = text(
    "SELECT name, verb"
    " FROM unnest(CAST(:tables AS text[]), CAST(:verbs AS text[])) AS w(name, verb)"
    " WHERE NOT has_table_privilege(current_user, to_regclass(name), verb) LIMIT 1"
)
_KNOWN = text("SELECT 1 FROM pg_roles WHERE rolname = :role")
