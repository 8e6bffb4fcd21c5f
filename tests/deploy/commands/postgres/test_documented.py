"""The commands of `deploy/commands/postgres/README.md`, as they are written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.deploy.commands.postgres.world import World
from tests.support.documents import commands, paste, put
from tests.support.postgres import SUPERUSER

README = "deploy/commands/postgres/README.md"
ROOT = Path(__file__).parents[4]


@pytest.mark.deep(
    stands_in="tests/deploy/commands/postgres/test_commands.py::"
    "test_the_plan_grants_what_is_allowed"
)
def test_the_readme_s_commands_make_a_login_that_has_no_findings(crm: World) -> None:
    crm.options()
    (crm.folder / "policies").mkdir()
    (crm.folder / "policies.yaml").rename(crm.folder / "policies" / "support.yaml")
    (crm.folder / "dsn").rename(crm.folder / "admin.dsn")
    put(
        crm.folder / "bin",
        "sluice",
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m deploy.command "$@"\n',
    )
    environ = os.environ | {
        "PATH": f"{crm.folder / 'bin'}:{crm.server.binaries}:{os.environ['PATH']}",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(crm.server.port),
        "PGUSER": SUPERUSER,
        "PGPASSWORD": crm.server.password,
        "PGDATABASE": crm.database,
    }

    def run(title: str) -> tuple[int, str, str]:
        script = commands(README, title).replace("agent_support", crm.login)
        answer = paste(script, crm.folder, environ)
        return answer.returncode, answer.stdout, answer.stderr

    assert run("make the login")[0] == 0
    code, out, err = run("install the identity")
    assert (code, err) == (0, ""), err
    assert "INSERT 0 1" in out
    code, out, err = run("check the login")
    # Of what PUBLIC has, the plan only tells.
    assert (code, err) == (1, "")
    assert out.splitlines()[0].startswith("low: creation: PUBLIC may create temporary tables")
    assert out.endswith("findings: 1 low\n")
    crm.sql(f'REVOKE TEMPORARY ON DATABASE "{crm.database}" FROM PUBLIC')
    assert run("check the login") == (0, "found nothing that the policies don't allow\n", "")
