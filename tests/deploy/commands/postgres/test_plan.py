"""`sluice postgres plan` on a real server: what the login can read is what the policies allow."""

from __future__ import annotations

import asyncpg
import pytest

from tests.deploy.commands.postgres.world import OPEN, POLICIES, World

pytestmark = pytest.mark.deep(
    stands_in="tests/deploy/commands/postgres/test_commands.py::test_the_plan_grants_what_is_allowed"
)


def test_the_login_reads_exactly_what_the_policies_allow(crm: World) -> None:
    crm.apply("--revoke-public")
    assert crm.readable() == OPEN
    assert crm.check() == []
    # Nothing but reading, whatever it is that somebody tries.
    for statement in (
        "INSERT INTO public.tickets VALUES (3)",
        "CREATE TABLE public.mine (id int)",
        "CREATE TEMP TABLE mine (id int)",
        "CREATE SCHEMA mine",
        "SET ROLE pg_read_all_data",
        "SELECT * FROM pg_catalog.pg_authid",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            crm.sql_of_login("SET default_transaction_read_only = off", statement)


def test_a_plan_that_runs_again_takes_back_what_is_no_longer_allowed(crm: World) -> None:
    crm.apply("--revoke-public")
    narrow = POLICIES.replace('tickets, "postgres://crm/*/public/*", ', "tickets, ")
    crm.apply("--revoke-public", policies=narrow)
    assert crm.readable() == {"api.headcount", "api.open_tickets", "public.tickets"}
    assert crm.check(policies=narrow) == []
    assert crm.check() != []  # the wider policies open more


def test_the_login_reads_only_the_columns_that_were_asked_for(crm: World) -> None:
    columns = "--columns=public.tickets=id,note"
    crm.apply("--revoke-public", columns)
    assert crm.rows("SELECT id, note FROM public.tickets ORDER BY id")[0] == (1, "printer")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        crm.rows("SELECT customer FROM public.tickets")
    assert crm.check(columns) == []
    crm.sql("GRANT SELECT (customer) ON public.tickets TO :login")
    [found] = crm.check(columns)
    assert (found["check"], found["severity"]) == ("wide_grants", "high")
    crm.sql(found["do"])
    assert crm.check(columns) == []


def test_the_role_has_the_settings_that_the_sidecar_relies_on(crm: World) -> None:
    crm.apply()
    held = {
        name: crm.rows(f"SHOW {name}")[0][0]
        for name in ("max_parallel_workers_per_gather", "statement_timeout", "search_path")
    }
    assert held == {
        "max_parallel_workers_per_gather": "0",
        "statement_timeout": "30s",
        "search_path": "api, public, pg_temp",
    }


def test_a_list_of_relations_makes_the_same_plan_as_the_server(crm: World) -> None:
    code, query, _ = crm.run("relations")
    assert code == 0
    listed = crm.folder / "relations.json"
    listed.write_text(crm.rows(query, "service")[0][0])
    assert crm.plan(f"--relations={listed}") == crm.plan()


def test_names_in_the_catalog_can_t_add_to_the_plan(crm: World) -> None:
    name = "x\n; GRANT SELECT ON hr.payroll TO PUBLIC; --\"'\\"
    quoted = name.replace('"', '""')
    crm.sql(f'CREATE SCHEMA "{quoted}"', f'CREATE TABLE "{quoted}"."{quoted}" (id int)')
    crm.sql(f'CREATE TABLE public."{quoted}" (id int)')
    crm.apply("--revoke-public")
    assert crm.readable() == {*OPEN, f"public.{name}"}
    assert crm.check() == []


def test_a_server_that_can_t_be_asked_is_exit_code_2_without_the_password(crm: World) -> None:
    options = crm.options()
    for dsn, told in (
        (crm.of("service").replace(f":{crm.server.port}/", ":1/"), "the server can't be asked"),
        (crm.of("no_such_role"), "the server can't be asked"),
        # Not by a name of loopback: without TLS, the password is not sent.
        (crm.of("service").replace("@127.0.0.1:", "@0.0.0.0:"), "rejected SSL upgrade"),
        (crm.of("service") + "?sslmode=perhaps", "`sslmode` parameter must be one of"),
        (crm.of("service").rpartition("/")[0] + "/postgres", "leads to the database `postgres`"),
        (f"postgres://a:{crm.server.password}/b@127.0.0.1/x", "can't be read"),
        (f"mysql://a:{crm.server.password}@127.0.0.1/x", "is not postgres://"),
        ("", "name the server"),
    ):
        (crm.folder / "dsn").write_text(dsn)
        code, out, err = crm.run("check", *options)
        assert (code, out) == (2, "")
        assert told in err
        assert crm.server.password not in err
    (crm.folder / "dsn").write_text(crm.of("service"))
    code, _, err = crm.run("check", *options)
    assert code == 2
    assert f"there is no role `{crm.login}`" in err
    (crm.folder / "dsn").chmod(0o644)
    assert "chmod 600" in crm.run("check", *options)[2]
