"""Checks of rights on relations: wider or narrower than the policies, views and row policies that
don't hold for the login, and data beside the relations."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from deploy.commands.postgres.catalog_check import (
    GRANTEE,
    IN_REACH,
    NOT_SYSTEM,
    REACH,
    CatalogCheck,
    CheckContext,
    Row,
    from_whom,
    to_whom,
)
from deploy.commands.postgres.identity import BODIES
from deploy.commands.postgres.relations import OWN_SCHEMA, SECRET_CATALOGS, Name, RelationAccess
from deploy.commands.postgres.sql_text import identifier, literal, qualified
from policies.ground.doctor_finding import DoctorFinding, Severity

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW

_READS = ("SELECT",)
_ACL = (
    "aclexplode(coalesce(c.relacl, acldefault("
    "CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", c.relowner))) AS a"
)
_RIGHTS = (
    REACH + "SELECT n.nspname::text AS schema, c.relname::text AS name, NULL::text AS column, "
    f"c.relkind::text AS kind, a.privilege_type AS right, {GRANTEE} FROM pg_class AS c "
    f"JOIN pg_namespace AS n ON n.oid = c.relnamespace, {_ACL} "
    f"WHERE {NOT_SYSTEM} AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND {IN_REACH} "
    "AND a.grantee <> c.relowner UNION ALL "
    "SELECT n.nspname::text, c.relname::text, t.attname::text, c.relkind::text, a.privilege_type, "
    f"{GRANTEE} FROM pg_attribute AS t JOIN pg_class AS c ON c.oid = t.attrelid "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace, aclexplode(t.attacl) AS a "
    f"WHERE {NOT_SYSTEM} AND NOT t.attisdropped AND {IN_REACH} AND a.grantee <> c.relowner "
    "ORDER BY 1, 2, 3 NULLS FIRST, 5, 6"
)


def _name(row: Row) -> Name:
    return row["schema"], row["name"]


def _told(row: Row) -> str:
    return f"`{row['schema']}.{row['name']}`"


def _wide(rows: Iterable[Row], context: CheckContext) -> Iterator[DoctorFinding]:
    """Find rights to read what the policies don't open. Several columns of a relation are one
    finding."""
    columns: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for row in rows:
        if row["right"] != "SELECT":
            continue
        access = context.access.get(_name(row))
        if access is None or not access.granted:
            key = (row["schema"], row["name"], row["grantee"])
            if key not in columns:
                yield _too_wide(row, access)
            columns[key].append("")
        elif access.columns is not None and row["column"] is None:
            yield DoctorFinding(
                HIGH,
                f"{to_whom(row)} may read every column of {_told(row)}",
                f"only {', '.join(access.columns)} were asked for (--columns)",
                f"REVOKE SELECT ON {qualified(*_name(row))} FROM {from_whom(row)};",
            )
        elif access.columns is not None and row["column"] not in access.columns:
            yield DoctorFinding(
                HIGH,
                f"{to_whom(row)} may read the column `{row['column']}` of {_told(row)}",
                f"only {', '.join(access.columns)} were asked for (--columns)",
                f"REVOKE SELECT ({identifier(row['column'])}) ON {qualified(*_name(row))} "
                f"FROM {from_whom(row)};",
            )


def _too_wide(row: Row, access: RelationAccess | None) -> DoctorFinding:
    if row["schema"] == OWN_SCHEMA:
        why = "it belongs to `sluice postgres identity`: who reads a key signs identities"
    elif access is not None and access.barred_by is not None:
        barred = ".".join(access.barred_by)
        why = f"`{barred}` is read through it, and no policy of the role allows that"
    else:
        source_id = "" if access is None else f" (`{access.source_id}` at {access.level})"
        why = f"no policy of the role allows it{source_id}"
    return DoctorFinding(
        HIGH,
        f"{to_whom(row)} may read {_told(row)}",
        why,
        f"REVOKE SELECT ON {qualified(*_name(row))} FROM {from_whom(row)};",
    )


WIDE_GRANTS = CatalogCheck("wide_grants", _RIGHTS, _wide)


def _writes(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    found: dict[tuple[Any, ...], tuple[Row, list[str]]] = {}
    for row in rows:
        if row["right"] not in _READS:
            column = "" if row["column"] is None else f" ({identifier(row['column'])})"
            rights = found.setdefault((*_name(row), row["grantee"]), (row, []))[1]
            rights.append(row["right"] + column)
    for row, rights in found.values():
        yield DoctorFinding(
            MEDIUM,
            f"{to_whom(row)} has more than SELECT on {_told(row)}: {', '.join(rights)}",
            "the login can change data, or learn by errors what it may not read",
            f"REVOKE {', '.join(rights)} ON {qualified(*_name(row))} FROM {from_whom(row)};",
        )


WRITE_GRANTS = CatalogCheck("write_grants", _RIGHTS, _writes)


def _missing(rows: Iterable[Row], context: CheckContext) -> Iterator[DoctorFinding]:
    able = {_name(row): row for row in rows}
    schemas = set()
    for name, access in context.access.items():
        row = able.get(name)
        if not access.granted or row is None:
            continue
        if not row["usage"] and name[0] not in schemas:
            schemas.add(name[0])
            yield DoctorFinding(
                LOW,
                f"the login has no USAGE on the schema `{name[0]}`",
                "statements that the policies allow fail",
                f"GRANT USAGE ON SCHEMA {identifier(name[0])} TO {context.login};",
            )
        lacking = not row["selects"] and set(access.columns or ("*",)) - set(row["columns"])
        if lacking:
            columns = ""
            if access.columns is not None:
                columns = f" ({', '.join(map(identifier, access.columns))})"
            yield DoctorFinding(
                LOW,
                f"the login may not read {_told(row)}",
                f"the policy `{access.policy}` allows it: statements fail",
                f"GRANT SELECT{columns} ON {qualified(*name)} TO {context.login};",
            )


MISSING_GRANTS = CatalogCheck(
    "missing_grants",
    "SELECT n.nspname::text AS schema, c.relname::text AS name, "
    "has_schema_privilege($1::oid, n.oid, 'USAGE') AS usage, "
    "has_table_privilege($1::oid, c.oid, 'SELECT') AS selects, "
    "ARRAY(SELECT t.attname::text FROM pg_attribute AS t WHERE t.attrelid = c.oid "
    "AND t.attnum > 0 AND NOT t.attisdropped "
    "AND has_column_privilege($1::oid, c.oid, t.attnum, 'SELECT')) AS columns "
    "FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    f"WHERE {NOT_SYSTEM} AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') ORDER BY 1, 2",
    _missing,
)


def _owner_views(rows: Iterable[Row], context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        if context.source.through(row["schema"], row["name"]):
            continue
        access = context.access.get(_name(row))
        # A view whose relations are all allowed opens nothing more, unless their rows are chosen.
        closed = access is None or not access.granted
        if not closed and not row["row_policies"]:
            continue
        what = "a materialized view" if row["kind"] == "m" else "a view with its owner's rights"
        view = qualified(*_name(row))
        yield DoctorFinding(
            HIGH,
            f"{_told(row)} is {what}, owned by `{row['owner']}`, and the login may read it",
            "it reads what the login may not"
            if closed
            else f"the row policies of {row['row_policies']} don't hold for the login through it",
            f"ALTER VIEW {view} SET (security_invoker = true);"
            if row["kind"] == "v"
            else f"REVOKE SELECT ON {view} FROM {context.login}, PUBLIC;"
            if closed
            else "deny its source in the policies, and run the plan again",
        )


OWNER_VIEWS = CatalogCheck(
    "owner_views",
    # Nested views are followed: what a view reads through another one, it reads too.
    REACH
    + """, reads(view, oid) AS (
  SELECT w.ev_class, d.refobjid FROM pg_rewrite AS w JOIN pg_depend AS d
    ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
    AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> w.ev_class
  UNION SELECT r.view, d.refobjid FROM reads AS r JOIN pg_rewrite AS w ON w.ev_class = r.oid
    JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
    AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> w.ev_class)
SELECT n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
  pg_get_userbyid(c.relowner)::text AS owner, (
    SELECT string_agg(DISTINCT quote_ident(tn.nspname) || '.' || quote_ident(t.relname), ', ')
    FROM reads AS r JOIN pg_class AS t ON t.oid = r.oid
    JOIN pg_namespace AS tn ON tn.oid = t.relnamespace
    WHERE r.view = c.oid AND t.relrowsecurity) AS row_policies
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE """
    + NOT_SYSTEM
    + f""" AND EXISTS (SELECT FROM (SELECT * FROM aclexplode(c.relacl) UNION ALL
    SELECT x.* FROM pg_attribute AS t, aclexplode(t.attacl) AS x WHERE t.attrelid = c.oid) AS a
    WHERE a.privilege_type = 'SELECT' AND a.grantee <> c.relowner AND {IN_REACH})
  AND (c.relkind = 'm' OR c.relkind = 'v' AND NOT coalesce((
    SELECT o.option_value::bool FROM pg_options_to_table(c.reloptions) AS o
    WHERE o.option_name = 'security_invoker'), false))
ORDER BY 1, 2""",
    _owner_views,
)


def _plain_settings(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        through = "" if row["through"] is None else f" through the function `{row['through']}`"
        yield DoctorFinding(
            MEDIUM,
            f"the row policy `{row['policy']}` of {_told(row)} reads a plain setting{through}",
            "every session can set it, so that who can run SET chooses the rows",
            f"ALTER POLICY {identifier(row['policy'])} ON {qualified(*_name(row))} USING (…);  "
            "-- by (SELECT sluice.user_id()), which verifies a signature: sluice postgres identity",
        )


_OURS = ", ".join(map(literal, BODIES))
_SETTING = "~* 'current_setting'"

PLAIN_SETTINGS = CatalogCheck(
    "plain_settings",
    REACH
    + f"""SELECT n.nspname::text AS schema, c.relname::text AS name, p.polname::text AS policy,
  f.through FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN LATERAL (
  SELECT min(g.oid::regprocedure::text) AS through FROM pg_depend AS d
  JOIN pg_proc AS g ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = g.oid
  WHERE d.classid = 'pg_policy'::regclass AND d.objid = p.oid
    AND coalesce(pg_get_function_sqlbody(g.oid), g.prosrc) {_SETTING}
    AND NOT (g.pronamespace = to_regnamespace('{OWN_SCHEMA}') AND g.prosrc IN ({_OURS}))
) AS f ON true
WHERE (p.polroles = '{{0}}' OR p.polroles && ARRAY(SELECT oid FROM reach))
  AND EXISTS (SELECT FROM reach WHERE has_any_column_privilege(reach.oid, c.oid, 'SELECT'))
  AND (f.through IS NOT NULL OR pg_get_expr(p.polqual, p.polrelid) {_SETTING})
ORDER BY 1, 2, 3""",
    _plain_settings,
)


def _secret_catalogs(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        yield DoctorFinding(
            HIGH,
            f"{to_whom(row)} may read `pg_catalog.{row['name']}`",
            "it holds passwords' digests, samples of tables' data, or files of the server",
            f"REVOKE SELECT ON pg_catalog.{identifier(row['name'])} FROM {from_whom(row)};",
        )


_SECRET = ", ".join(map(literal, SECRET_CATALOGS))
SECRETS = CatalogCheck(
    "secret_catalogs",
    REACH + f"SELECT DISTINCT c.relname::text AS name, {GRANTEE} FROM pg_class AS c "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace, LATERAL ("
    "SELECT * FROM aclexplode(c.relacl) UNION ALL SELECT x.* FROM pg_attribute AS t, "
    "aclexplode(t.attacl) AS x WHERE t.attrelid = c.oid) AS a "
    f"WHERE n.nspname = 'pg_catalog' AND c.relname IN ({_SECRET}) "
    # Some columns of `pg_subscription` are open to all from the start.
    "AND a.privilege_type = 'SELECT' AND NOT (c.relname = 'pg_subscription' AND a.grantee = 0) "
    f"AND {IN_REACH} ORDER BY 1, 2",
    _secret_catalogs,
)


def _large_objects(rows: Iterable[Row], _context: CheckContext) -> Iterator[DoctorFinding]:
    for row in rows:
        if row["compatible"]:
            yield DoctorFinding(
                HIGH,
                "the setting `lo_compat_privileges` is on",
                "every role reads and writes every large object",
                "ALTER SYSTEM SET lo_compat_privileges = off; SELECT pg_reload_conf();",
            )
        if row["count"]:
            yield DoctorFinding(
                HIGH,
                f"{to_whom(row)} may read {row['count']:,} large objects, such as {row['oid']}",
                "no policy is about large objects",
                f"REVOKE ALL ON LARGE OBJECT {row['oid']} FROM {from_whom(row)};",
            )


LARGE_OBJECTS = CatalogCheck(
    "large_objects",
    REACH + f"SELECT {GRANTEE}, count(*) AS count, min(l.oid::int8) AS oid, false AS compatible "
    "FROM pg_largeobject_metadata AS l, aclexplode(l.lomacl) AS a "
    f"WHERE {IN_REACH} AND a.privilege_type = 'SELECT' AND a.grantee <> l.lomowner "
    "GROUP BY a.grantee UNION ALL "
    "SELECT NULL, 0, NULL, true WHERE current_setting('lo_compat_privileges')::bool ORDER BY 1, 4",
    _large_objects,
)

RELATION_CHECKS = (
    WIDE_GRANTS, WRITE_GRANTS, MISSING_GRANTS, OWNER_VIEWS, PLAIN_SETTINGS, SECRETS, LARGE_OBJECTS,
)  # fmt: skip
