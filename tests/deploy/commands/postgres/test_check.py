"""`sluice postgres check` on a real server: each weakness that is planted after a clean plan is
found, and its repair, run as it is printed, ends it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.deploy.commands.postgres.world import World

pytestmark = pytest.mark.deep(
    stands_in="tests/deploy/commands/postgres/test_commands.py::"
    "test_rights_beyond_the_policies_are_findings_with_their_repair"
)


class Weakness(NamedTuple):
    """What is planted, and the findings it makes, each a check, a severity and words of `seen`.
    `repair` stands for a repair that is not SQL."""

    planted: str
    found: tuple[tuple[str, str, str], ...]
    repair: str | None = None


def one(planted: str, check: str, severity: str, seen: str, repair: str | None = None) -> Weakness:
    return Weakness(planted, ((check, severity, seen),), repair)


GROUP = "CREATE ROLE :login_group; GRANT :login_group TO :login WITH INHERIT FALSE, SET TRUE;"
HANDLING = "BEGIN RETURN 1; EXCEPTION WHEN others THEN RETURN 0; END"
POLICY = "ALTER TABLE public.tickets ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON public.tickets"
WEAKNESSES = {
    # The role.
    "bypassrls": one("ALTER ROLE :login BYPASSRLS", "attributes", "high", "BYPASSRLS"),
    "replication": one("ALTER ROLE :login REPLICATION", "attributes", "high", "REPLICATION"),
    "createrole": one("ALTER ROLE :login CREATEROLE", "attributes", "high", "CREATEROLE"),
    "createdb": one("ALTER ROLE :login CREATEDB", "attributes", "low", "CREATEDB"),
    "superuser": one("ALTER ROLE :login SUPERUSER", "attributes", "high", "SUPERUSER"),
    "predefined role": one(
        "GRANT pg_read_all_data TO :login", "memberships", "high", "role `pg_read_all_data`"
    ),
    "predefined role with others in it": one(
        "GRANT pg_monitor TO :login", "memberships", "medium", "role `pg_monitor`"
    ),
    "transitive membership that only SET gives": Weakness(
        f"{GROUP} GRANT pg_read_server_files TO :login_group",
        (
            ("memberships", "medium", "_group` (with SET)"),
            ("memberships", "high", "role `pg_read_server_files`"),
        ),
    ),
    "ownership": one(
        "ALTER TABLE hr.payroll OWNER TO :login", "ownership", "high", "owns table hr.payroll"
    ),
    "no login": one("ALTER ROLE :login NOLOGIN", "entry", "low", "may not log in"),
    "no limit": one("ALTER ROLE :login CONNECTION LIMIT -1", "entry", "low", "no limit"),
    "temporary tables": one(
        "DO $$ BEGIN EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO PUBLIC', "
        "current_database()); END $$",
        "creation", "low", "PUBLIC may create temporary tables",
    ),
    "create in the database": one(
        "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO :login', "
        "current_database()); END $$",
        "creation", "medium", "may create objects in the database",
    ),
    "create in public": one(
        "GRANT CREATE ON SCHEMA public TO PUBLIC", "creation", "medium", "PUBLIC may create"
    ),
    "parallel workers": one(
        "ALTER ROLE :login SET max_parallel_workers_per_gather = 4",
        "settings", "low", "`4`, not `0`",
    ),
    "no timeout": one(
        "ALTER ROLE :login RESET statement_timeout", "settings", "low", "is not set, not `30s`"
    ),
    "parameter": one(
        "GRANT SET ON PARAMETER log_statement TO :login", "parameters", "medium", "`log_statement`"
    ),
    "default privileges": one(
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
        "default_rights", "medium", "PUBLIC gets SELECT on tables",
    ),
    "default privileges of a schema": one(
        "ALTER DEFAULT PRIVILEGES IN SCHEMA hr GRANT EXECUTE ON FUNCTIONS TO :login",
        "default_rights", "medium", "gets EXECUTE on functions",
    ),
    # Relations.
    "a grant": one(
        "GRANT SELECT ON hr.payroll TO :login", "wide_grants", "high", "may read `hr.payroll`"
    ),
    "a grant to PUBLIC": one(
        "GRANT SELECT ON hr.payroll TO PUBLIC", "wide_grants", "high", "PUBLIC may read `hr."
    ),
    "a grant of a column": one(
        "GRANT SELECT (name) ON hr.payroll TO :login", "wide_grants", "high", "`hr.payroll`"
    ),
    "a grant above the role's level": one(
        "GRANT SELECT ON public.plans TO :login", "wide_grants", "high", "`public.plans`"
    ),
    "a grant of a table with a partition that is denied": one(
        "GRANT SELECT ON public.events TO :login", "wide_grants", "high", "`public.events`"
    ),
    "a grant to a group": Weakness(
        f"{GROUP} GRANT SELECT ON hr.payroll TO :login_group",
        (
            ("memberships", "medium", "_group` (with SET)"),
            ("wide_grants", "high", "_group` may read `hr.payroll`"),
        ),
    ),
    "writes": one(
        "GRANT INSERT, UPDATE (note) ON public.tickets TO :login",
        "write_grants", "medium", 'INSERT, UPDATE ("note")',
    ),
    "a sequence that can be advanced": one(
        "GRANT USAGE ON SEQUENCE public.numbers TO :login", "write_grants", "medium", ": USAGE"
    ),
    "a missing grant": one(
        "REVOKE SELECT ON public.tickets FROM :login",
        "missing_grants", "low", "may not read `public.tickets`",
    ),
    "a missing right on a schema": one(
        "REVOKE USAGE ON SCHEMA api FROM :login", "missing_grants", "low", "the schema `api`"
    ),
    "a view with its owner's rights": Weakness(
        "GRANT SELECT ON api.pay TO :login",
        (("owner_views", "high", "`api.pay`"), ("wide_grants", "high", "`api.pay`")),
    ),
    "a view of such a view": Weakness(
        "ALTER VIEW api.pay_again SET (security_invoker = true);"
        "GRANT SELECT ON api.pay_again TO :login",
        (("wide_grants", "high", "`api.pay_again`"),),
    ),
    "a view of passwords' digests": Weakness(
        "CREATE VIEW api.roles AS SELECT * FROM pg_authid; GRANT SELECT ON api.roles TO :login",
        (("owner_views", "high", "`api.roles`"), ("wide_grants", "high", "`api.roles`")),
    ),
    "a view past row policies": one(
        f"{POLICY} USING (true); CREATE VIEW api.every AS SELECT * FROM public.tickets;"
        "GRANT SELECT ON api.every TO :login",
        "owner_views", "high", "`api.every`",
    ),
    "a copy past row policies": one(
        f"{POLICY} USING (true); CREATE MATERIALIZED VIEW api.copy AS SELECT * FROM "
        "public.tickets; GRANT SELECT ON api.copy TO :login",
        "owner_views", "high", "a materialized view",
        "DROP MATERIALIZED VIEW api.copy",
    ),
    "a row policy on a plain setting": one(
        f"{POLICY} USING (customer = current_setting('app.customer'))",
        "plain_settings", "medium", "`own` of `public.tickets`",
        "DROP POLICY own ON public.tickets",
    ),
    "a row policy on one through a function": one(
        "CREATE FUNCTION api.who() RETURNS text LANGUAGE sql STABLE "
        f"RETURN current_setting('app.customer', true); {POLICY} USING (customer = api.who())",
        "plain_settings", "medium", "through the function `api.who()`",
        "DROP POLICY own ON public.tickets",
    ),
    "passwords' digests": one(
        "GRANT SELECT ON pg_catalog.pg_authid TO :login", "secret_catalogs", "high", "pg_authid"
    ),
    "samples of columns": one(
        "GRANT SELECT (stavalues1) ON pg_catalog.pg_statistic TO PUBLIC",
        "secret_catalogs", "high", "PUBLIC may read `pg_catalog.pg_statistic`",
    ),
    "a large object": one(
        "SELECT lo_create(424242); GRANT SELECT ON LARGE OBJECT 424242 TO PUBLIC",
        "large_objects", "high", "1 large objects, such as 424242",
    ),
    "all large objects": one(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lo_compat_privileges = on', "
        "current_database()); END $$",
        "large_objects", "high", "`lo_compat_privileges` is on",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET lo_compat_privileges', "
        "current_database()); END $$",
    ),
    # Code.
    "security definer": one(
        "CREATE FUNCTION api.pay() RETURNS SETOF hr.payroll LANGUAGE sql SECURITY DEFINER "
        "AS 'SELECT * FROM hr.payroll'",
        "definer_functions", "high", "PUBLIC may execute `api.pay()`",
    ),
    "a procedure that is one": one(
        "CREATE PROCEDURE api.change(int) LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
        "definer_functions", "high", "`api.change(",
    ),
    "security definer in a closed schema": one(
        "CREATE FUNCTION hr.pay() RETURNS SETOF hr.payroll LANGUAGE sql SECURITY DEFINER "
        "AS 'SELECT * FROM hr.payroll'",
        "definer_functions", "medium", "`hr.pay()`",
    ),
    "errors that are handled": one(
        f"CREATE FUNCTION api.tries() RETURNS int LANGUAGE plpgsql AS '{HANDLING}'",
        "swallowed_errors", "medium", "`api.tries()`",
    ),
    "an untrusted language": one(
        "CREATE LANGUAGE plbad HANDLER plpgsql_call_handler;"
        "CREATE FUNCTION api.bad() RETURNS int LANGUAGE plbad AS 'x'",
        "untrusted_code", "high", "language `plbad`",
    ),
    "a built-in function under another name": one(
        "CREATE FUNCTION api.file(text) RETURNS text STRICT LANGUAGE internal AS "
        "'pg_read_file_all'",
        "untrusted_code", "high", "language `internal`",
    ),
    "a function that reads files": one(
        "GRANT EXECUTE ON FUNCTION pg_read_file(text) TO :login",
        "server_functions", "high", "`pg_read_file(text)`",
    ),
    "a function with a built-in name": one(
        "CREATE FUNCTION api.upper(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "foreign_code", "low", "the function `api.upper(integer)`",
    ),
    "an operator": one(
        "CREATE OPERATOR api.### (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq)",
        "foreign_code", "low", "the operator `api.###(text,text)`",
    ),
    "an implicit cast": one(
        "CREATE FUNCTION hr.as_text(hr.payroll) RETURNS int LANGUAGE sql AS 'SELECT 1';"
        "CREATE CAST (hr.payroll AS int) WITH FUNCTION hr.as_text(hr.payroll) AS IMPLICIT",
        "foreign_code", "medium", "(hr.payroll AS integer)` is not",
    ),
    "an event trigger": one(
        "CREATE FUNCTION hr.on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';"
        "CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION hr.on_ddl()",
        "event_triggers", "low", "`watch`",
    ),
    "a foreign server": one(
        "CREATE FOREIGN DATA WRAPPER wrapper; CREATE SERVER far FOREIGN DATA WRAPPER wrapper;"
        "GRANT USAGE ON FOREIGN SERVER far TO :login",
        "foreign_servers", "high", "has USAGE on the foreign server `far`",
    ),
    "a foreign data wrapper": one(
        "CREATE FOREIGN DATA WRAPPER wrapper;"
        "GRANT USAGE ON FOREIGN DATA WRAPPER wrapper TO :login",
        "foreign_servers", "high", "has USAGE on the foreign data wrapper `wrapper`",
    ),
    "a user mapping": one(
        "CREATE FOREIGN DATA WRAPPER wrapper; CREATE SERVER far FOREIGN DATA WRAPPER wrapper;"
        "CREATE USER MAPPING FOR PUBLIC SERVER far",
        "foreign_servers", "medium", "user mapping of PUBLIC",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WEAKNESSES)
def test_a_planted_weakness_is_found_and_its_repair_ends_it(crm: World, name: str) -> None:
    weakness = WEAKNESSES[name]
    crm.apply("--revoke-public")
    assert crm.check() == []
    crm.sql(weakness.planted)
    findings = crm.check()
    found = sorted((each["check"], each["severity"]) for each in findings)
    assert found == sorted((check, severity) for check, severity, _ in weakness.found)
    for check, _, words in weakness.found:
        assert any(each["check"] == check and words in each["seen"] for each in findings), findings
    crm.sql(*([weakness.repair] if weakness.repair else [each["do"] for each in findings]))
    assert crm.check() == []


def test_what_only_looks_like_a_weakness_is_not_found(crm: World) -> None:
    crm.apply("--revoke-public")
    crm.sql(
        # It raises errors, and handles none.
        "CREATE FUNCTION api.strict() RETURNS int LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no'; END $$",
        # Only a trigger calls it, and the login may not write.
        "CREATE FUNCTION api.stamp() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS "
        "$$ BEGIN RETURN NEW; END $$",
        # pgvector's functions in C are those of an extension.
        "CREATE EXTENSION vector SCHEMA api",
        "CREATE FUNCTION api.closed() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
        "REVOKE EXECUTE ON FUNCTION api.closed() FROM PUBLIC",
        "CREATE ROLE :login_group",
        "GRANT SELECT ON hr.payroll TO :login_group",
    )
    assert crm.check() == []


def test_a_missing_right_to_connect_is_found(crm: World) -> None:
    crm.apply("--revoke-public")
    crm.sql(
        f'REVOKE CONNECT ON DATABASE "{crm.database}" FROM PUBLIC, :login',
        f'GRANT CONNECT ON DATABASE "{crm.database}" TO service',
    )
    [found] = crm.check()
    assert (found["check"], found["severity"]) == ("entry", "low")
    crm.sql(found["do"])
    assert crm.check() == []
