"""The command in `control.env` that makes PostgreSQL's tables: it works as it is printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from control_api.store.schema.version import head
from control_api.store.url import parse_url
from deploy.init import systemd
from tests.deploy.launcher import ROOT, environ
from tests.support.postgres import owned, serving

PROGRAM = "/srv/own place/bin/sluice"


def printed() -> tuple[str, str]:
    """What `sluice init` writes to `control.env`: the setting of the database, and the command."""
    [file] = [each for each in systemd.files(Path(PROGRAM)) if each.path.endswith("control.env")]
    [setting] = re.findall(r"(?m)^#(SLUICE_DATABASE_URL=.*)$", file.content)
    [command] = re.findall(r"(?m)^#   SLUICE_MIGRATE_(?:.*\\\n)+.*$", file.content)
    return setting, re.sub(r"(?m)^#   ", "", command)


def test_the_printed_command_names_both_roles_and_the_installed_program() -> None:
    setting, command = printed()
    *settings, program, noun = shlex.split(
        # `shlex` keeps a line break that a shell drops.
        command.replace("\\\n", "").replace(PROGRAM, shlex.quote(PROGRAM))
    )
    assert (program, noun) == (PROGRAM, "migrate")
    given = dict(each.split("=", 1) for each in settings)
    assert [*given] == ["SLUICE_MIGRATE_DATABASE_URL", "SLUICE_DATABASE_URL"]
    owner, service = (parse_url(each) for each in given.values())
    assert (owner.username, service.username) == ("sluice_owner", "sluice")
    assert owner.set(username="sluice") == service
    # The command's database is the service's, as the setting above it has it.
    assert setting == f"SLUICE_DATABASE_URL={given['SLUICE_DATABASE_URL']}"


@pytest.mark.deep(stands_in="test_the_printed_command_names_both_roles_and_the_installed_program")
def test_the_printed_command_creates_the_tables_and_reports_it(
    postgres_url: str, tmp_path: Path
) -> None:
    _, command = printed()
    place = "db.internal:5432/sluice"
    script = command.replace(
        f"postgresql+asyncpg://sluice_owner:PASSWORD@{place}", owned(postgres_url)
    ).replace(f"postgresql+asyncpg://sluice:PASSWORD@{place}", serving(postgres_url))
    assert "PASSWORD" not in script
    script = script.replace(PROGRAM, f"{shlex.quote(sys.executable)} -m deploy.command")

    def run() -> str:
        given = environ(SLUICE_DATA_DIR=str(tmp_path))
        done = subprocess.run(
            ["bash", "-c", script], cwd=ROOT, env=given, check=True, capture_output=True, text=True
        )
        return done.stdout

    assert run() == f"the database had no schema, and has `{head()}` now\n"
    assert run() == f"nothing to do: the database has the schema `{head()}` of this version\n"
