"""`sluice` and its arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.launcher import sluice


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
    ],
)
def test_unusable_arguments_exit_with_2_and_say_how(arguments: tuple[str, ...]) -> None:
    answer = sluice(*arguments)
    assert answer.returncode == 2
    assert "usage: sluice" in answer.stderr


def test_the_version_is_told() -> None:
    answer = sluice("--version")
    assert answer.returncode == 0
    assert answer.stdout.startswith("sluice ")


def test_lint_takes_over_the_process_and_its_exit_code(tmp_path: Path) -> None:
    assert sluice("policy", "lint", "policies/definitions").returncode == 0
    folder = tmp_path / "default" / "retail"
    folder.mkdir(parents=True)
    (folder / "support.yaml").write_text("policies:\n  - name: a\n")
    answer = sluice("policy", "lint", str(tmp_path))
    assert answer.returncode == 1
    assert "support.yaml" in answer.stdout + answer.stderr


def test_a_sidecar_without_its_file_exits_with_2(tmp_path: Path) -> None:
    assert sluice("sidecar", "--config", str(tmp_path / "absent.yaml")).returncode == 2


def test_the_doctor_takes_over_with_all_its_arguments(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.yaml")
    assert sluice("doctor", "--config", absent).returncode == 2
    answer = sluice("doctor", "--config", absent, "--json", "--agent-uid", "me")
    assert answer.returncode == 2
    assert "`me` is no user's number" in answer.stderr


def test_a_control_api_with_unusable_settings_exits_with_2_and_all_complaints(
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
    assert sluice("migrate", SLUICE_DATA_DIR=str(tmp_path)).returncode == 0
    assert (tmp_path / "sluice.db").exists()


def test_migrate_brings_a_postgresql_to_head_and_again(postgres_url: str, tmp_path: Path) -> None:
    for _ in range(2):
        answer = sluice("migrate", SLUICE_DATA_DIR=str(tmp_path), SLUICE_DATABASE_URL=postgres_url)
        assert answer.returncode == 0, answer.stderr
    assert not (tmp_path / "sluice.db").exists()


def test_rotating_a_key_that_is_not_there_exits_with_1_and_makes_none(tmp_path: Path) -> None:
    answer = sluice("rotate-key", SLUICE_DATA_DIR=str(tmp_path))
    assert answer.returncode == 1
    assert "log.key" in answer.stderr
    assert not any(tmp_path.iterdir())
