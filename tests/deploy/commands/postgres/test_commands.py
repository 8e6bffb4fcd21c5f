"""The commands of `sluice postgres` without a server: what is printed, how relations are named, and
which arguments are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy import command as sluice_command
from deploy.commands.postgres import server
from deploy.commands.postgres.__main__ import main
from deploy.commands.postgres.catalog_check import CheckContext
from deploy.commands.postgres.check import CHECKS, MOST, examine
from deploy.commands.postgres.relations import Relation, RelationAccess
from deploy.commands.postgres.source import LITERAL, PostgresSource
from policies.ground.distribution import how_to_install
from policies.ground.doctor_finding import Severity
from policies.ground.postgres_identity import parse_key
from sidecar.http.request_target import encode_segment
from tests.deploy.commands.postgres.world import POLICIES, SETTINGS
from tests.support.control_api import running_control_api

RELATIONS: list[dict[str, Any]] = [
    {"schema": schema, "name": name, "kind": kind, "columns": ["id", "note"], "reaches": reaches}
    for schema, name, kind, reaches in (
        ("public", "tickets", "r", []),
        ("public", "plans", "r", []),
        ("public", "salaries", "r", []),
        ("public", "events", "p", [["public", "events_2020"]]),
        ("public", "events_2020", "r", []),
        ("api", "open_tickets", "v", [["public", "tickets"]]),
        ("api", "headcount", "v", [["public", "salaries"]]),
        ("api", "pay", "v", [["public", "salaries"]]),
        ("api", "pay_again", "v", [["api", "pay"]]),
        ("sluice", "identity_keys", "r", []),
        ("hr", "payroll", "r", []),
    )
]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command beside the files `sidecar.yaml`, `relations.json` and those of a policy."""
    for name in ("SLUICE_URL", "SLUICE_KEY_FILE", "SLUICE_API_KEY", server.DSN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("sidecar.yaml").write_text(SETTINGS.format(database="crm", login="agent"))
    Path("retail").mkdir()
    Path("retail/support.yaml").write_text(POLICIES)
    Path("relations.json").write_text(json.dumps(RELATIONS))

    def command(*words: str) -> tuple[int, str, str]:
        try:
            code = main([*words])
        except SystemExit as ended:
            code = int(str(ended.code))
        return (code, *capsys.readouterr())

    return command


FILES = ("--settings=sidecar.yaml", "--policies=retail/support.yaml", "--relations=relations.json")
SUPPORT = ("--alias=crm", "--role=support")


def granted(sql: str) -> list[str]:
    lines = (line for line in sql.splitlines() if line.startswith("GRANT SELECT"))
    return sorted(line.removeprefix("GRANT SELECT ").partition(" TO ")[0] for line in lines)


def test_the_plan_grants_what_is_allowed(run: Run) -> None:
    code, sql, err = run("plan", *SUPPORT, *FILES)
    assert (code, err) == (0, "")
    assert granted(sql) == [
        'ON "api"."headcount"', 'ON "api"."open_tickets"', 'ON "public"."tickets"',
    ]  # fmt: skip
    for view, barred in (("api.pay_again", "api.pay"), ("public.events", "public.events_2020")):
        assert f"-- Not granted: `{view}`, through which" in sql
        assert barred in sql
    assert '\n  CREATE ROLE "agent" WITH NOSUPERUSER NOREPLICATION NOBYPASSRLS;\n' in sql
    assert "NOINHERIT CONNECTION LIMIT 20;\n" in sql
    assert "-- REVOKE TEMPORARY ON DATABASE" in sql
    _, sql, _ = run("plan", *SUPPORT, *FILES, "--columns=public.tickets=id", "--revoke-public")
    assert '("id") ON "public"."tickets"' in granted(sql)
    assert "\nREVOKE TEMPORARY ON DATABASE" in sql
    rows = json.loads(run("plan", *SUPPORT, *FILES, "--json")[1])["relations"]
    [tickets] = [row for row in rows if row["relation"] == "tickets"]
    assert (tickets["source_id"], tickets["level"]) == ("tickets", "high")
    assert tickets["policy"] == "support-reads"


def test_agent_and_task_narrow_the_plan(run: Run) -> None:
    of_one = POLICIES.replace(
        "max_", "permitted_agent_ids: [agt_1]\n    allowed_tasks: [a]\n    max_"
    )
    Path("retail/support.yaml").write_text(of_one)
    assert granted(run("plan", *SUPPORT, *FILES)[1])
    assert granted(run("plan", *SUPPORT, *FILES, "--agent=agt_1", "--task=a")[1])
    assert not granted(run("plan", *SUPPORT, *FILES, "--agent=agt_2")[1])
    assert not granted(run("plan", *SUPPORT, *FILES, "--task=b")[1])


@pytest.mark.deep(stands_in="test_without_the_library_the_server_s_commands_say_what_to_install")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--settings=absent.yaml",), "`absent.yaml` can't be read"),
        (("--settings=relations.json",), "has no source with the alias `crm`"),
        (("--alias=none",), "has no source with the alias `none`"),
        (("--role=none",), "the role `none` has no policy"),
        (("--columns=public.tickets=nothing",), "has no column `nothing`"),
        (("--columns=hr.payroll=id",), "don't open a relation `hr.payroll`"),
        (("--columns=tickets",), "is not SCHEMA.RELATION=COLUMN"),
        (("--relations=sidecar.yaml",), "make it with `sluice postgres relations`"),
        (("--url=http://127.0.0.1:1",), "give one of the two"),
        (("--connections=0",), "is not a number of at least 1"),
    ],
)
def test_unusable_arguments_are_exit_code_2(run: Run, words: tuple[str, ...], told: str) -> None:
    code, out, err = run("plan", *SUPPORT, *FILES, *words)
    assert (code, out) == (2, "")
    assert told in err


def test_without_the_library_the_server_s_commands_say_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda _name: None)
    monkeypatch.setenv(server.DSN, "postgres://127.0.0.1/crm")
    code, _, err = run("plan", *SUPPORT, *FILES[:2])
    assert code == 2
    assert err.endswith(f"; {how_to_install('server')}\n")


def test_the_doctor_runs_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr("os.execv", lambda *command: taken.append(command[1]))
    sluice_command.main(["doctor", "--postgres", "--alias", "crm"])
    assert taken[0][-4:] == ["deploy.commands.postgres", "check", "--alias", "crm"]


def test_relations_are_named_as_the_sidecar_names_them() -> None:
    for text in ("a b", "ü", "a/b", "%", "x;y", "+?#[]", LITERAL, "-._~"):
        source = PostgresSource("crm", text, "agent", "low")
        name = f"postgres://crm/{encode_segment(text)}/{encode_segment(text)}/x"
        assert source.named(text, "x").source_id == name


CONTEXT = CheckContext(
    PostgresSource("crm", "crm", "agent", "low"),
    {
        ("public", name): RelationAccess(
            Relation(("public", name), "r", ("id",), ()), f"id-{name}", "low", policy
        )
        for name, policy in (("open", "reads"), ("closed", None))
    },
)
ROLE = dict.fromkeys(("rolbypassrls", "rolreplication", "rolcreaterole", "rolcreatedb"), False)


def rows(superuser: bool, *names: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of all checks: a role without weaknesses, which may read these relations."""
    right = {"schema": "public", "column": None, "kind": "r", "right": "SELECT", "grantee": "agent"}
    able = {"schema": "public", "name": "open", "usage": True, "selects": True, "columns": []}
    settings = ["max_parallel_workers_per_gather=0", "statement_timeout=30s"]
    settings += ["idle_in_transaction_session_timeout=60s"]
    settings += ["default_transaction_read_only=on", "row_security=on"]
    return {check.name: [] for check in CHECKS} | {
        "attributes": [{"name": "agent", "rolsuper": superuser, **ROLE}],
        "entry": [{"login": True, "connect": True, "limit": 20}],
        "settings": [{"setting": each} for each in settings],
        "wide_grants": [{**right, "name": name} for name in names],
        "missing_grants": [able],
    }


def test_rights_beyond_the_policies_are_findings_with_their_repair() -> None:
    assert examine(rows(False, "open"), CONTEXT) == []
    [found] = examine(rows(False, "open", "closed"), CONTEXT)
    assert (found.check, found.severity) == ("wide_grants", Severity.HIGH)
    assert found.seen == "the role `agent` may read `public.closed`"
    assert found.do == 'REVOKE SELECT ON "public"."closed" FROM "agent";'
    # What a superuser may is everything, which one finding says.
    assert [each.check for each in examine(rows(True, "closed"), CONTEXT)] == ["attributes"]
    many = examine(rows(False, *map(str, range(MOST + 7))), CONTEXT)
    assert len(many) == MOST + 1
    assert many[-1].seen == "7 more like these"


def test_the_identity_s_sql_holds_no_key_and_a_new_key_is_written_to_a_file(run: Run) -> None:
    code, sql, _ = run("identity", "--login", 'a"b')
    assert code == 0
    assert "INSERT" not in sql
    assert 'sluice.verified_user_id() TO "a""b";' in sql
    code, sql, _ = run("identity", "--key-file", "key", "--key-id", "2027")
    assert code == 0
    assert sql.splitlines()[2].startswith("VALUES ('2027', decode('")
    key = Path("key")
    assert key.stat().st_mode & 0o777 == 0o600
    assert parse_key(key.read_text()).hex() not in sql
    key.chmod(0o644)
    for words in (["--key-file", "key"], ["--key-file", "new", "--key-id", "A"], []):
        code, out, err = run("identity", *words)
        assert (code, out) == (2, ""), words
        assert err.startswith("sluice postgres: ")


@pytest.mark.deep(stands_in="test_the_plan_grants_what_is_allowed")
def test_policies_and_levels_come_from_a_service(run: Run, tmp_path: Path) -> None:
    with running_control_api(tmp_path / "api", policies=POLICIES) as api:
        key = Path("key")
        key.write_text(api.new_key("read"))
        key.chmod(0o600)
        service = [f"--url=http://127.0.0.1:{api.port}", "--key-file=key"]
        words = ("plan", *SUPPORT, FILES[0], FILES[2], *service)
        assert 'ON "public"."tickets"' in granted(run(*words)[1])
        api.admin("PUT", "/v1/sources/tickets", {"sensitivity_level": "critical"})
        assert 'ON "public"."tickets"' not in granted(run(*words)[1])
