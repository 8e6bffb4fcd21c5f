"""Checks of the login role itself: attributes, memberships, what it owns, its settings, and rights
in the database as a whole."""

from collections.abc import Iterable, Iterator

from deploy.commands.postgres.catalog_check import (
    GRANTEE,
    IN_REACH,
    REACH,
    CatalogCheck,
    CheckContext,
    Row,
    from_whom,
    to_whom,
)
from deploy.commands.postgres.plan import role_settings
from deploy.commands.postgres.sql_text import identifier, literal
from policies.ground.doctor_finding import DoctorFinding, Severity

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW

_ATTRIBUTES = (
    ("rolsuper", "SUPERUSER", HIGH, "no right is asked for: everything in the server can be read"),
    ("rolbypassrls", "BYPASSRLS", HIGH, "row policies don't hold for it"),
    ("rolreplication", "REPLICATION", HIGH, "it can copy the whole server as a replica"),
    ("rolcreaterole", "CREATEROLE", HIGH, "it can make roles, and members of roles"),
    ("rolcreatedb", "CREATEDB", LOW, "it can make databases, and fill the disk"),
)


def _attributes(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        for column, word, severity, why in _ATTRIBUTES:
            if row[column]:
                yield DoctorFinding(
                    severity,
                    f"the role `{row['name']}` has the attribute {word}",
                    why,
                    f"ALTER ROLE {identifier(row['name'])} NO{word};",
                )


ATTRIBUTES = CatalogCheck(
    "attributes",
    REACH + "SELECT r.rolname::text AS name, r.rolsuper, r.rolbypassrls, r.rolreplication, "
    "r.rolcreaterole, r.rolcreatedb FROM pg_roles AS r JOIN reach USING (oid) ORDER BY 1",
    _attributes,
)

_READERS = {
    "pg_read_all_data": "reads every table",
    "pg_write_all_data": "writes every table",
    "pg_read_server_files": "reads files of the server",
    "pg_write_server_files": "writes files of the server",
    "pg_execute_server_program": "runs programs on the server",
    "pg_database_owner": "owns the database",
    "pg_create_subscription": "copies data in from other servers",
}
"""Predefined roles that reach data past all grants."""


def _memberships(rows: Iterable[Row], context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        role = row["role"]
        kind = "predefined role" if role.startswith("pg_") else "role"
        does = _READERS.get(role, "may have further rights")
        options = [word for word in ("INHERIT", "SET", "ADMIN") if row[word.lower()]]
        how = f"with {', '.join(options) or 'no option'}"
        if role != row["direct"]:
            how = f"through `{row['direct']}`"
        yield DoctorFinding(
            HIGH if role in _READERS else MEDIUM,
            f"`{context.source.login}` is a member of the {kind} `{role}` ({how})",
            f"the role {does}; what it may, the login may, or can take by SET ROLE",
            f"REVOKE {identifier(row['direct'])} FROM {context.login};",
        )


MEMBERSHIPS = CatalogCheck(
    "memberships",
    # The options are of version 16; before it, each membership could be set, and was inherited if
    # the member inherits. What a predefined role is a member of, it has from the server.
    """\
WITH RECURSIVE member(direct, role) AS (
  SELECT m.roleid, m.roleid FROM pg_auth_members AS m WHERE m.member = $1
  UNION SELECT b.direct, m.roleid FROM member AS b JOIN pg_auth_members AS m ON m.member = b.role
  WHERE pg_get_userbyid(m.member) NOT LIKE 'pg\\_%')
SELECT pg_get_userbyid(b.direct)::text AS direct, pg_get_userbyid(b.role)::text AS role,
  bool_or(m.admin_option) AS admin,
  bool_or(coalesce((to_jsonb(m) ->> 'inherit_option')::bool, r.rolinherit)) AS inherit,
  bool_or(coalesce((to_jsonb(m) ->> 'set_option')::bool, true)) AS set
FROM member AS b JOIN pg_auth_members AS m ON m.member = $1 AND m.roleid = b.direct
JOIN pg_roles AS r ON r.oid = m.member GROUP BY 1, 2 ORDER BY 1, 2""",
    _memberships,
)


def _ownership(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        owner = identifier(row["owner"])
        yield DoctorFinding(
            HIGH,
            f"the role `{row['owner']}` owns {row['object']}",
            "an owner has every right on what it owns, gives itself those it lacks, and row "
            "policies don't hold for it",
            f"REASSIGN OWNED BY {owner} TO CURRENT_USER;  -- gives all of them to you",
        )


OWNERSHIP = CatalogCheck(
    "ownership",
    REACH + "SELECT pg_get_userbyid(d.refobjid)::text AS owner, "
    "pg_describe_object(d.classid, d.objid, 0) AS object FROM pg_shdepend AS d "
    "JOIN reach ON reach.oid = d.refobjid WHERE d.refclassid = 'pg_authid'::regclass "
    "AND d.deptype = 'o' AND (d.dbid = 0 OR d.dbid = "
    "(SELECT oid FROM pg_database WHERE datname = current_database())) ORDER BY 1, 2",
    _ownership,
)


def _creation(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        kind, name, right = row["kind"], row["name"], row["right"]
        temporary = right == "TEMPORARY"
        yield DoctorFinding(
            LOW if temporary else MEDIUM,
            f"{to_whom(row)} may create {'temporary tables' if temporary else 'objects'} in the "
            f"{kind} `{name}`",
            "temporary functions and tables can be made, and fill the disk"
            if temporary
            else "functions and operators can be made that stand in for others, and run as those "
            "who call them",
            f"REVOKE {right} ON {kind.upper()} {identifier(name)} FROM {from_whom(row)};"
            + ("  -- other users lose it too" if row["grantee"] is None else ""),
        )


CREATION = CatalogCheck(
    "creation",
    REACH
    + f"SELECT 'database' AS kind, d.datname::text AS name, {GRANTEE}, a.privilege_type AS right "
    "FROM pg_database AS d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) AS a "
    "WHERE d.datname = current_database() AND a.privilege_type IN ('CREATE', 'TEMPORARY') "
    f"AND a.grantee <> d.datdba AND {IN_REACH} UNION ALL "
    f"SELECT 'schema', n.nspname::text, {GRANTEE}, a.privilege_type FROM pg_namespace AS n, "
    "aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a "
    f"WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner AND {IN_REACH} "
    "ORDER BY 1, 2, 3, 4",
    _creation,
)


def _missing_entry(rows: Iterable[Row], context: CheckContext) -> Iterator[DoctorFinding]:
    [row] = rows
    if not row["login"]:
        yield DoctorFinding(
            LOW,
            f"the role `{context.source.login}` may not log in",
            "the sidecar can't connect",
            f"ALTER ROLE {context.login} LOGIN;",
        )
    if not row["connect"]:
        database = identifier(context.source.database)
        yield DoctorFinding(
            LOW,
            f"the role `{context.source.login}` may not connect to `{context.source.database}`",
            "the sidecar can't connect",
            f"GRANT CONNECT ON DATABASE {database} TO {context.login};",
        )
    if row["limit"] < 0:
        yield DoctorFinding(
            LOW,
            f"the role `{context.source.login}` has no limit of connections",
            "an agent can take every connection of the server",
            f"ALTER ROLE {context.login} CONNECTION LIMIT 20;",
        )


ENTRY = CatalogCheck(
    "entry",
    "SELECT rolcanlogin AS login, rolconnlimit AS limit, "
    "has_database_privilege(oid, current_database(), 'CONNECT') AS connect "
    "FROM pg_roles WHERE oid = $1",
    _missing_entry,
)


def _settings(rows: Iterable[Row], context: CheckContext) -> Iterator[DoctorFinding]:
    held = {name: value for row in rows for name, _, value in [row["setting"].partition("=")]}
    wanted = role_settings(context.source, context.access)
    del wanted["search_path"]  # names the schemas for convenience; the rights are elsewhere
    for name, value in wanted.items():
        if held.get(name) != value:
            yield DoctorFinding(
                LOW,
                f"`{name}` of the role `{context.source.login}` is "
                f"{'not set' if name not in held else f'`{held[name]}`'}, not `{value}`",
                "the sidecar sets it at login, but the role doesn't have it by itself",
                f"ALTER ROLE {context.login} SET {name} = {literal(value)};",
            )


SETTINGS = CatalogCheck(
    "settings",
    "SELECT unnest(setconfig) AS setting FROM pg_db_role_setting "
    "WHERE setrole = $1 AND setdatabase IN (0, (SELECT oid FROM pg_database "
    "WHERE datname = current_database())) ORDER BY setdatabase",
    _settings,
)


def _parameters(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        yield DoctorFinding(
            MEDIUM,
            f"{to_whom(row)} has {row['right']} on the parameter `{row['name']}`",
            "it is a superuser's to set, and may load libraries or change what is logged",
            f"REVOKE {row['right']} ON PARAMETER {identifier(row['name'])} FROM {from_whom(row)};",
        )


PARAMETERS = CatalogCheck(
    "parameters",
    REACH
    + f"SELECT p.parname AS name, a.privilege_type AS right, {GRANTEE} FROM pg_parameter_acl AS p, "
    f"aclexplode(p.paracl) AS a WHERE {IN_REACH} ORDER BY 1, 2, 3",
    _parameters,
)

_OBJECTS = {"r": "TABLES", "S": "SEQUENCES", "f": "FUNCTIONS", "n": "SCHEMAS", "L": "LARGE OBJECTS"}


def _default_rights(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        objects = _OBJECTS[row["kind"]]
        where = "" if row["schema"] is None else f" IN SCHEMA {identifier(row['schema'])}"
        yield DoctorFinding(
            MEDIUM,
            f"{to_whom(row)} gets {row['right']} on {objects.lower()} that `{row['owner']}` will "
            f"make{'' if row['schema'] is None else ' in the schema `' + row['schema'] + '`'}",
            "what is made tomorrow can be read without a policy",
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {identifier(row['owner'])}{where} REVOKE "
            f"{row['right']} ON {objects} FROM {from_whom(row)};",
        )


DEFAULT_RIGHTS = CatalogCheck(
    "default_rights",
    # PUBLIC's right to execute functions stands in every entry for functions: it is built in.
    REACH
    + "SELECT d.defaclobjtype::text AS kind, n.nspname::text AS schema, a.privilege_type AS right, "
    f"pg_get_userbyid(d.defaclrole)::text AS owner, {GRANTEE} FROM pg_default_acl AS d "
    "LEFT JOIN pg_namespace AS n ON n.oid = d.defaclnamespace, aclexplode(d.defaclacl) AS a "
    f"WHERE {IN_REACH} AND a.grantee <> d.defaclrole AND d.defaclobjtype <> 'T' "
    f"AND (d.defaclobjtype <> 'f' OR a.grantee <> 0) ORDER BY 1, 2, 3, 4, 5",
    _default_rights,
)


ROLE_CHECKS = (
    ATTRIBUTES, MEMBERSHIPS, OWNERSHIP, ENTRY, CREATION, SETTINGS, PARAMETERS, DEFAULT_RIGHTS,
)  # fmt: skip
