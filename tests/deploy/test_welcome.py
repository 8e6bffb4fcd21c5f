"""What `sluice up` prints at the end: keys on a terminal, and elsewhere only their files."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.local.provision import FirstStart, write_private
from deploy.local.settings import PORTS, UpSettings, read
from deploy.local.up import write
from deploy.local.welcome import console, hidden_keys, shown_keys, text
from policies.ground.keys import make_key
from sidecar.config.file import read as read_file
from sidecar.settings.model import SidecarSettings
from tests.support.ports import free_port

FIRST = FirstStart("default", "slc_admin", "slc_super")


CONSOLE = "http://0123.localhost:8700"


def block(
    tmp_path: Path,
    *,
    terminal: bool,
    first: FirstStart | None = FIRST,
    own: bool = False,
    **settled: str,
) -> str:
    settings = read({"data_dir": str(tmp_path)} | settled, {})
    keys = shown_keys("slc_agent", first) if terminal else hidden_keys(tmp_path, first)
    return text(settings, keys, "policies", console(settings, CONSOLE, None), own=own)


def test_a_terminal_shows_the_keys_and_commands_with_them(tmp_path: Path) -> None:
    shown = block(tmp_path, terminal=True)
    assert all(key in shown for key in ("slc_agent", "slc_admin", "slc_super"))
    assert '-H "X-API-Key: slc_agent"' in shown or 'KEY="slc_agent" ' in shown


def test_a_log_names_the_files_of_the_keys(tmp_path: Path) -> None:
    shown = block(tmp_path, terminal=False)
    assert "slc_" not in shown
    assert f"in {tmp_path / 'agent.key'}" in shown
    assert f"in {tmp_path / 'first-start.json'}" in shown
    # The guides have this line for the default port and folder.
    assert "export" not in block(tmp_path, terminal=False, data_dir=".sluice")
    moved = block(tmp_path, terminal=False, data_dir=".sluice", control_listen="127.0.0.1:8701")
    line = "export SLUICE_URL=http://127.0.0.1:8701 SLUICE_KEY_FILE=.sluice/first-start.json"
    assert f"\n{line}\n" in moved
    assert f"8700 SLUICE_KEY_FILE={tmp_path / 'first-start.json'}\n" in shown


def test_the_command_for_events_runs_as_printed(tmp_path: Path) -> None:
    """Nothing listens at the address, so it says that; what matters is that the shell finds it."""
    file = tmp_path / "first-start.json"
    file.write_text('{"admin_key": "slc_admin"}')
    file.chmod(0o600)
    command = re.search(r"^# EVENTS: .*\n(.+)$", block(tmp_path, terminal=False), re.MULTILINE)
    assert command
    unused = command[1].replace(":8700", f":{free_port()}")
    bare = {"PATH": "/usr/bin:/bin"}  # no virtual environment is activated
    ran = subprocess.run(
        ["sh", "-c", unused], capture_output=True, text=True, check=False, env=bare, cwd=Path.cwd()
    )
    assert "no response from `http://127.0.0.1:" in ran.stderr


def test_keys_that_the_operator_removed_are_not_needed(tmp_path: Path) -> None:
    assert "first-start.json" not in block(tmp_path, terminal=False, first=None)


@pytest.mark.parametrize("curl", [True, False])
def test_the_commands_of_a_log_read_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, curl: bool
) -> None:
    folder = tmp_path / "it's $HOME"
    folder.mkdir()
    (folder / "agent.key").write_text("slc_agent")
    (folder / "first-start.json").write_text('{"admin_key": "slc_admin", "superadmin_key": "x"}')
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/curl" if curl else None)
    keys = hidden_keys(folder, FIRST)
    for sent, key in ((keys.send_agent, "slc_agent"), (keys.send_admin, "slc_admin")):
        said = subprocess.run(
            ["sh", "-c", f'printf %s "{sent}"'], capture_output=True, text=True, check=True
        )
        assert said.stdout == key, said.stderr
    assert ("curl" in block(folder, terminal=False)) == curl


def test_the_console_is_shown_with_a_remedy_for_browsers_that_do_not_find_it(
    tmp_path: Path,
) -> None:
    for shown in (block(tmp_path, terminal=True), block(tmp_path, terminal=False)):
        assert f"{CONSOLE}/console " in shown
        assert "127.0.0.1 0123.localhost" in shown
        assert "Safari" in shown
    settings = read({"data_dir": str(tmp_path)}, {})
    assert "Safari" not in console(settings, None, None)
    assert console(settings, CONSOLE, f"{CONSOLE}/console/sign-in#code=x").startswith(CONSOLE)


def test_the_sample_milvus_is_shown_if_it_runs(tmp_path: Path) -> None:
    """And the sidecar's file leads to it, with the sources of the sample Chroma."""
    assert "Milvus" not in block(tmp_path, terminal=False)
    settings = read({"data_dir": str(tmp_path)}, {}, milvus=True)
    shown = text(settings, hidden_keys(tmp_path, FIRST), "policies", "")
    assert "http://127.0.0.1:29530   the sample Milvus, behind" in shown
    assert "http://127.0.0.1:19530   Milvus itself" in shown
    asked = re.findall(r"(?m)^# (?:ALLOW|DENY) by gRPC: .*\n(.+)$", shown)
    assert ["29530" in each for each in asked] == [True, True]
    chroma, milvus = written(settings).sources
    assert (milvus.kind, milvus.upstream) == ("milvus", "http://127.0.0.1:19530")
    assert milvus.listen is not None
    assert milvus.listen.port == 29530
    assert list(milvus.names.values()) == list(chroma.names.values())
    assert f"milvus://{milvus.alias}/default/payroll" in milvus.names


@pytest.mark.parametrize("psql", [True, False])
def test_the_sample_postgres_is_shown_if_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, psql: bool
) -> None:
    """And the sidecar's file leads to it, with its own login."""
    assert "PostgreSQL" not in block(tmp_path, terminal=False)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/psql" if psql else None)
    settings = read({"data_dir": str(tmp_path)}, {}, postgres=True)
    shown = text(settings, hidden_keys(tmp_path, FIRST), "policies", "")
    assert "postgres://127.0.0.1:15432   the sample PostgreSQL, behind" in shown
    assert "postgres://127.0.0.1:25432   PostgreSQL itself" in shown
    asked = re.findall(r"(?m)^# (?:ALLOW|DENY) by SQL: .*\n(.+)$", shown)
    assert ["15432" in each for each in asked] == [True, True]
    assert [each.startswith("psql ") for each in asked] == [psql, psql]
    (tmp_path / "postgres.password").write_text("secret")
    _, postgres = written(settings).sources
    assert (postgres.kind, postgres.upstream) == ("postgres", "postgres://127.0.0.1:25432/company")
    assert [each.source_id for each in postgres.relations] == ["tickets", "payroll"]


def test_addresses_of_ipv6_stand_in_the_sidecars_file(tmp_path: Path) -> None:
    listen = {name: f"[::1]:{port}" for name, port in PORTS.items()}
    made = written(read({"data_dir": str(tmp_path)} | listen, {}, milvus=True, postgres=True))
    found = [made.listen, *(each.listen for each in made.sources)]
    assert [each.host for each in found if each] == ["::1"] * 4


def written(settings: UpSettings) -> SidecarSettings:
    """What a sidecar reads in the file that is written for it."""
    for name in ("sidecar.key", "agent.key"):
        write_private(settings.data_dir / name, make_key(bytes(32)))
    write_private(settings.data_dir / "postgres.password", "a password")
    return read_file(write(settings), {}, "host")


def test_other_policies_come_with_a_note_that_the_answers_are_of_the_samples(
    tmp_path: Path,
) -> None:
    assert "SLUICE_POLICY_DIR" not in block(tmp_path, terminal=False)
    shown = block(tmp_path, terminal=False, own=True)
    assert "With yours (SLUICE_POLICY_DIR), a read is\ndenied" in shown
