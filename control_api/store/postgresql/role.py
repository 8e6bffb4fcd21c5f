"""The privileges of the service's role on PostgreSQL, and the check that it has no dangerous ones.

The owner of the tables creates them (`sluice migrate`). The service reads and writes rows, for one
tenant at a time. Row-level security enforces that, so the role must not be able to bypass it.
"""

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.url import UnusableDatabase

READ = "SELECT"
APPEND = "SELECT, INSERT"
CHANGE = "SELECT, INSERT, UPDATE"
REPLACE = "SELECT, INSERT, DELETE"
ALL = "SELECT, INSERT, UPDATE, DELETE"

GRANTS = {
    "acknowledgements": REPLACE,
    "agents": CHANGE,
    "alembic_version": READ,
    "alert_deliveries": ALL,
    "alert_rules": ALL,
    "api_keys": CHANGE,
    "candidate_counts": ALL,
    "checkpoints": ALL,
    "cited_documents": ALL,
    "console_sessions": ALL,
    "count_checks": CHANGE,
    "documents": ALL,
    "ended_sessions": APPEND,
    "enrolled_keys": REPLACE,
    "export_positions": CHANGE,
    "first_accesses": CHANGE,
    "guardrails": ALL,
    "holds": CHANGE,
    "impact_policies": REPLACE,
    "impact_runs": ALL,
    "incarnations": APPEND,
    "installation": CHANGE,
    "log_entries": REPLACE,
    "log_heads": CHANGE,
    "log_index": REPLACE,
    "log_keys": APPEND,
    "log_spans": REPLACE,
    "openings": REPLACE,
    "policies": CHANGE,
    "policy_versions": APPEND,
    "purges": ALL,
    "self_checks": CHANGE,
    "sessions": ALL,
    "set_nodes": REPLACE,
    "sidecar_owners": ALL,
    "sidecars": ALL,
    "sign_in_links": ALL,
    "sources": CHANGE,
    "tallies": ALL,
    "tenants": CHANGE,
    "tree_nodes": CHANGE,
}
"""The privileges that the service uses on each table; a test compares them with the statements that
it sends. On `installation`, `UPDATE` only permits `FOR UPDATE`: the row-level policy refuses every
change."""


async def require_row_security(connection: AsyncConnection) -> None:
    """Raises `UnusableDatabase` if this role, or one that it can become, bypasses row-level
    security."""
    exempt = (await connection.execute(_EXEMPT)).scalar()
    if exempt is not None:
        raise UnusableDatabase(
            f"its role is, or may become, `{exempt}`, which row-level "
            "security does not bind: create a role for the service (CREATE ROLE … LOGIN "
            "NOSUPERUSER NOBYPASSRLS), and run `sluice migrate` with the owner's URL in "
            "SLUICE_MIGRATE_DATABASE_URL, which grants it what it needs"
        )


async def require_grants(connection: AsyncConnection) -> None:
    """Raises `UnusableDatabase` if this role lacks a privilege on an existing table."""
    # Check at the start: a missing privilege would otherwise show up later, as a 500 on some route.
    # For a missing table the check yields NULL, not false; `require_head` then reports the schema.
    wanted = [(table, verb) for table, verbs in GRANTS.items() for verb in verbs.split(", ")]
    tables, verbs = zip(*wanted, strict=True)
    query = {"tables": list(tables), "verbs": list(verbs)}
    lacking = (await connection.execute(_LACKING, query)).first()
    if lacking is not None:
        raise UnusableDatabase(
            f"its role lacks {lacking.verb} on `{lacking.name}`: run "
            "`sluice migrate` with the owner's URL in SLUICE_MIGRATE_DATABASE_URL, which grants it"
        )


def grant_privileges(connection: Connection, role: str) -> None:
    """Grants `role` the privileges that the service needs, and revokes all others. Run it as the
    owner."""
    owner = connection.execute(text("SELECT current_user")).scalar_one()
    if role == owner:
        return
    if connection.execute(_KNOWN, {"role": role}).first() is None:
        raise UnusableDatabase(
            f"there is no role `{role}`, which SLUICE_DATABASE_URL names: create it first (CREATE "
            "ROLE … LOGIN PASSWORD … NOSUPERUSER NOBYPASSRLS)"
        )
    name = connection.dialect.identifier_preparer.quote_identifier(role)
    schema = connection.dialect.identifier_preparer.quote_identifier(
        connection.execute(text("SELECT current_schema()")).scalar_one()
    )
    # Revoke first, so that a privilege that a later version no longer needs goes away.
    connection.exec_driver_sql(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name}")
    connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
    for table, verbs in GRANTS.items():
        connection.exec_driver_sql(f"GRANT {verbs} ON {table} TO {name}")


_EXEMPT = text(
    "SELECT rolname FROM pg_roles WHERE (rolsuper OR rolbypassrls)"
    " AND pg_has_role(current_user, oid, 'MEMBER') ORDER BY rolname = current_user DESC LIMIT 1"
)
_LACKING = text(
    "SELECT name, verb"
    " FROM unnest(CAST(:tables AS text[]), CAST(:verbs AS text[])) AS w(name, verb)"
    " WHERE NOT has_table_privilege(current_user, to_regclass(name), verb) LIMIT 1"
)
_KNOWN = text("SELECT 1 FROM pg_roles WHERE rolname = :role")
