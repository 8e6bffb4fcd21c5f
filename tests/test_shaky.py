"""How `make shaky` throttles, and how often it runs what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shaky import HARD, USUAL, Group, main, parsed, place, schedule, throttled


def test_the_limits_are_written_in_microseconds() -> None:
    assert Group(Path("g"), unified=True).limits(USUAL) == {"cpu.max": "80000 250000"}
    # The period first: the kernel refuses a quota that is too large for the period before.
    assert list(Group(Path("g"), unified=False).limits(HARD).items()) == [
        ("cpu.cfs_period_us", "600000"),
        ("cpu.cfs_quota_us", "120000"),
    ]


def test_the_machine_s_version_of_control_groups_is_found(tmp_path: Path) -> None:
    assert place(tmp_path).folder.parent == tmp_path / "cpu"
    assert not place(tmp_path).unified
    (tmp_path / "cgroup.controllers").touch()
    assert place(tmp_path).folder.parent == tmp_path
    assert place(tmp_path).unified


def test_a_group_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError),
        throttled(Group(tmp_path / "missing" / "g", unified=True), USUAL),
    ):
        pass


@pytest.mark.parametrize(("times", "hard"), [(1, 0), (2, 1), (3, 1), (4, 2), (20, 2)])
def test_the_last_runs_are_the_hardest(times: int, hard: int) -> None:
    assert schedule(times) == [USUAL] * (times - hard) + [HARD] * hard


def test_arguments_of_pytest_are_passed_on() -> None:
    assert parsed(["tests/a.py", "-k", "b"]).tests == ["tests/a.py", "-k", "b"]


@pytest.mark.parametrize(
    "arguments", [[], ["--times", "2"], ["--times", "0", "tests/a.py"], ["--times", "x", "a"]]
)
def test_wrong_arguments_exit_before_a_run(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: python -m tests.shaky" in capsys.readouterr().err
