"""Checks of code that the login can run or that runs for it: functions, operators, casts, event
triggers, and ways to other servers.

Names of functions are shown with their arguments (`regprocedure`), as `REVOKE` takes them.
"""

from collections.abc import Callable, Iterable, Iterator

from deploy.commands.postgres.catalog_check import (
    GRANTEE,
    IN_REACH,
    NOT_SYSTEM,
    REACH,
    CatalogCheck,
    CheckContext,
    Row,
    from_whom,
    not_of_extension,
    to_whom,
)
from deploy.commands.postgres.identity import BODIES
from deploy.commands.postgres.relations import OWN_SCHEMA
from deploy.commands.postgres.sql_text import identifier, literal
from policies.ground.doctor_finding import DoctorFinding, Severity

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW

_FIRST_OF_USERS = 16384
"""Objects with a smaller oid came with the server."""
_OURS = ", ".join(map(literal, BODIES))
_EXECUTABLE = f"""\
  SELECT p.oid, p.oid::regprocedure::text AS function, n.nspname::text AS schema,
    CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END AS kind,
    pg_get_userbyid(p.proowner)::text AS owner, l.lanname::text AS language, l.lanpltrusted,
    p.prosecdef, p.prosrc, {GRANTEE},
    EXISTS (SELECT FROM reach WHERE has_schema_privilege(reach.oid, n.oid, 'USAGE')) AS usage
  FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
  JOIN pg_language AS l ON l.oid = p.prolang,
  aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
  WHERE {NOT_SYSTEM} AND {IN_REACH} AND a.grantee <> p.proowner
    -- A trigger's function is called by its trigger alone.
    AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
    AND NOT (n.nspname = '{OWN_SCHEMA}' AND p.prosrc IN ({_OURS}))"""
"""Functions outside of `pg_catalog` that a role in reach, or PUBLIC, may execute. Without USAGE on
its schema, a function can't be named, but an operator, a view or a row policy may call it."""


def _functions(
    name: str, condition: str, finding: Callable[[Row], tuple[Severity, str, str]]
) -> CatalogCheck:
    """Make a check of functions that can be executed and meet a condition. `finding` returns the
    severity, what such a function is, and why that matters."""

    def findings(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
        for row in rows:
            severity, what, why = finding(row)
            others = "  -- other users lose it too" if row["grantee"] is None else ""
            yield DoctorFinding(
                severity,
                f"{to_whom(row)} may execute `{row['function']}`, {what}",
                why,
                f"REVOKE EXECUTE ON {row['kind']} {row['function']} FROM {from_whom(row)};{others}",
            )

    query = (
        f"{REACH}SELECT * FROM (\n{_EXECUTABLE}) AS f WHERE {condition} ORDER BY function, grantee"
    )
    return CatalogCheck(name, query, findings)


DEFINER_FUNCTIONS = _functions(
    "definer_functions",
    "prosecdef",
    lambda row: (
        HIGH if row["usage"] else MEDIUM,
        f"which runs with the rights of `{row['owner']}` (SECURITY DEFINER)",
        "it reads what its owner may, and the caller chooses its arguments"
        if row["usage"]
        else "it reads what its owner may; the login can't name it, but other code may call it",
    ),
)
SWALLOWED_ERRORS = _functions(
    "swallowed_errors",
    r"language = 'plpgsql' AND prosrc ~* '\mexception\s+when\M'",
    lambda _row: (
        MEDIUM,
        "which handles errors (EXCEPTION WHEN)",
        "the locks of what it read before the error are gone, by which the sidecar sees reads",
    ),
)
UNTRUSTED_CODE = _functions(
    "untrusted_code",
    "NOT lanpltrusted AND (language NOT IN ('c', 'internal', 'sql') OR language IN ('c', "
    f"'internal') AND {not_of_extension('pg_proc', 'f.oid')})",
    lambda row: (
        HIGH,
        f"in the language `{row['language']}`, which is not trusted",
        "such code does what the server's process can: it reads files, and asks for no right",
    ),
)


def _server_functions(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        yield DoctorFinding(
            HIGH,
            f"{to_whom(row)} may execute `{row['function']}`, which PostgreSQL opens to no one",
            "such functions read files, or control the server",
            f"REVOKE EXECUTE ON FUNCTION {row['function']} FROM {from_whom(row)};",
        )


SERVER_FUNCTIONS = CatalogCheck(
    "server_functions",
    # What `initdb` took from PUBLIC, and somebody gave again.
    REACH
    + f"""SELECT p.oid::regprocedure::text AS function, {GRANTEE} FROM pg_proc AS p
JOIN pg_namespace AS n ON n.oid = p.pronamespace AND n.nspname = 'pg_catalog'
JOIN pg_init_privs AS i ON i.classoid = 'pg_proc'::regclass AND i.objoid = p.oid
  AND i.objsubid = 0,
aclexplode(p.proacl) AS a WHERE {IN_REACH} AND NOT EXISTS (
  SELECT FROM aclexplode(i.initprivs) AS b WHERE b.grantee IN (0, a.grantee)) ORDER BY 1, 2""",
    _server_functions,
)


def _foreign_code(rows: Iterable[Row], context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        yield DoctorFinding(
            MEDIUM if row["implicit"] else LOW,
            f"the {row['kind']} `{row['name']}` is not PostgreSQL's own"
            + (", and is applied without being written" if row["implicit"] else ""),
            f"it runs `{row['function']}`, whatever a statement's text shows",
            f"REVOKE EXECUTE ON FUNCTION {row['function']} FROM PUBLIC, {context.login};"
            "  -- other users lose it too"
            if row["kind"] == "function"
            else f"DROP {row['kind'].upper()} {row['name']};  -- if nothing else uses it",
        )


FOREIGN_CODE = CatalogCheck(
    "foreign_code",
    # An operator or function can be written without its schema, so it is looked for where the login
    # has USAGE. A cast has no schema. Functions count if they have the name of a built-in one.
    f"""{REACH}, near(oid) AS (SELECT n.oid FROM pg_namespace AS n
  WHERE {NOT_SYSTEM} AND n.nspname <> '{OWN_SCHEMA}'
    AND EXISTS (SELECT FROM reach WHERE has_schema_privilege(reach.oid, n.oid, 'USAGE')))
SELECT 'operator' AS kind, o.oid::regoperator::text AS name, o.oprcode::regprocedure::text
  AS function, false AS implicit FROM pg_operator AS o JOIN near ON near.oid = o.oprnamespace
WHERE o.oprcode <> 0 AND {not_of_extension("pg_operator", "o.oid")}
UNION ALL
SELECT 'cast', format('(%s AS %s)', format_type(c.castsource, NULL),
  format_type(c.casttarget, NULL)), c.castfunc::regprocedure::text, c.castcontext = 'i'
FROM pg_cast AS c WHERE c.castfunc <> 0 AND c.oid >= {_FIRST_OF_USERS}
  AND {not_of_extension("pg_cast", "c.oid")}
UNION ALL
SELECT 'function', p.oid::regprocedure::text, p.oid::regprocedure::text, false FROM pg_proc AS p
JOIN near ON near.oid = p.pronamespace WHERE {not_of_extension("pg_proc", "p.oid")}
  AND EXISTS (SELECT FROM pg_proc AS b WHERE b.proname = p.proname
    AND b.pronamespace = 'pg_catalog'::regnamespace)
  AND EXISTS (SELECT FROM reach WHERE has_function_privilege(reach.oid, p.oid, 'EXECUTE'))
ORDER BY 1, 2""",
    _foreign_code,
)


def _event_triggers(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        login = row["event"] == "login"
        yield DoctorFinding(
            MEDIUM if login else LOW,
            f"the event trigger `{row['name']}` runs `{row['function']}` at {row['event']}",
            "it runs at each login, before the sidecar's first statement"
            if login
            else "it runs for statements that change the schema, which the login's rights forbid",
            f"ALTER EVENT TRIGGER {identifier(row['name'])} DISABLE;  -- if it is not yours",
        )


EVENT_TRIGGERS = CatalogCheck(
    "event_triggers",
    "SELECT e.evtname::text AS name, e.evtevent::text AS event, "
    "e.evtfoid::regprocedure::text AS function FROM pg_event_trigger AS e "
    "WHERE e.evtenabled <> 'D' AND $1::oid IS NOT NULL ORDER BY 1",
    _event_triggers,
)


def _foreign_servers(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        name = identifier(row["name"])
        if row["kind"] == "user mapping":
            user = "PUBLIC" if row["grantee"] is None else identifier(row["grantee"])
            yield DoctorFinding(
                MEDIUM,
                f"there is a user mapping of {to_whom(row)} at the foreign server `{row['name']}`",
                "the login reads foreign tables there with the password in it; what is read on the "
                "far side, no one sees here",
                f"DROP USER MAPPING FOR {user} SERVER {name};",
            )
        else:
            yield DoctorFinding(
                HIGH,
                f"{to_whom(row)} has USAGE on the {row['kind']} `{row['name']}`",
                "the login can make mappings and connections of its own to another server",
                f"REVOKE USAGE ON {row['kind'].upper()} {name} FROM {from_whom(row)};",
            )


FOREIGN_SERVERS = CatalogCheck(
    "foreign_servers",
    REACH
    + f"""SELECT 'foreign server' AS kind, s.srvname::text AS name, {GRANTEE}
FROM pg_foreign_server AS s, aclexplode(s.srvacl) AS a WHERE {IN_REACH} AND a.grantee <> s.srvowner
UNION ALL SELECT 'foreign data wrapper', w.fdwname::text, {GRANTEE}
FROM pg_foreign_data_wrapper AS w, aclexplode(w.fdwacl) AS a
WHERE {IN_REACH} AND a.grantee <> w.fdwowner
UNION ALL SELECT 'user mapping', m.srvname::text,
  CASE m.umuser WHEN 0 THEN NULL ELSE m.usename::text END FROM pg_user_mappings AS m
WHERE m.umuser = 0 OR m.umuser IN (SELECT oid FROM reach) ORDER BY 1, 2, 3""",
    _foreign_servers,
)

CODE_CHECKS = (
    DEFINER_FUNCTIONS, SWALLOWED_ERRORS, UNTRUSTED_CODE, SERVER_FUNCTIONS, FOREIGN_CODE,
    EVENT_TRIGGERS, FOREIGN_SERVERS,
)  # fmt: skip
