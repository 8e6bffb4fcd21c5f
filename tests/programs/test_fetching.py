"""A fetch for tests is tried again after a failure, and reported if it can't be had."""

from __future__ import annotations

import subprocess

import pytest

from tests.programs import fetching
from tests.programs.fetching import Item


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PAUSES", (0.0, 0.0))


def failing(times: int, error: OSError | subprocess.SubprocessError) -> tuple[Item, list[int]]:
    """Something whose first fetches fail, and the attempts so far."""
    attempts: list[int] = []

    def fetch() -> None:
        attempts.append(len(attempts))
        if len(attempts) <= times:
            raise error

    return Item("thing", 3, fetch), attempts


def test_a_failed_fetch_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    item, attempts = failing(2, subprocess.CalledProcessError(100, ["client"]))
    assert fetching.fetch_all([item]) == {}
    assert len(attempts) == 3
    assert "fetched thing, 3 MB" in capsys.readouterr().out


def test_a_fetch_that_fails_three_times_is_reported_and_the_others_succeed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = subprocess.CalledProcessError(1, ["client"], stderr=b"noise\nno route to host\n\n")
    item, attempts = failing(9, error)
    other, others = failing(0, error)
    assert fetching.fetch_all([item, other._replace(name="other")]) == {"thing": "no route to host"}
    assert (len(attempts), len(others)) == (3, 1)
    printed = capsys.readouterr().out
    assert "can't fetch thing: no route to host" in printed
    assert "fetched other" in printed


def test_a_fetch_without_its_client_is_not_tried_again() -> None:
    item, attempts = failing(9, FileNotFoundError("this system has no npm"))
    assert fetching.fetch_all([item]) == {"thing": "this system has no npm"}
    assert len(attempts) == 1
