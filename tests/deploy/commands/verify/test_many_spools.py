"""A log of more spools than a verification can follow is not called broken, nor complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.commands.verify import check, source
from tests.deploy.commands.verify.world import KEY, export, note, put, run
from tests.policies.world import Log, decided

Capture = pytest.CaptureFixture[str]


def of_spools(count: int) -> Log:
    """Two records of each spool, in ranges of their own."""
    log = Log()
    for turn in range(2):
        for spool in range(count):
            log.shipped(decided(seed=turn * count + spool), f"sidecar-{spool}", "i1")
    return log


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MOST_SOURCES", 10)


@pytest.mark.parametrize("size", [100, 10_000_000], ids=["many ranges", "one range"])
def test_a_true_log_of_more_spools_than_are_followed_is_incomplete(
    size: int, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "CHUNK", size)
    rows = of_spools(30).rows
    path = put(tmp_path, export(rows, notes={len(rows): note(len(rows), rows)}))
    answer = run(capsys, path, "--key", KEY)
    assert (answer.code, answer.out.partition(": ")[0]) == (2, "INCOMPLETE"), answer.out
    assert "only 10 spools were followed" in answer.out
    shown = run(capsys, path, "--key", KEY, "--json")
    assert (shown.code, shown.reasons, shown.json["spools_followed"]) == (2, [], False)


def test_a_log_with_as_many_spools_as_are_followed_is_valid(
    tmp_path: Path, capsys: Capture
) -> None:
    rows = of_spools(10).rows
    path = put(tmp_path, export(rows, notes={len(rows): note(len(rows), rows)}))
    shown = run(capsys, path, "--key", KEY, "--json")
    assert (shown.code, shown.json["spools_followed"]) == (0, True)


def test_followed_spools_are_still_checked_beside_too_many(tmp_path: Path, capsys: Capture) -> None:
    log = of_spools(30)
    log.ends["sidecar-3", "i1"] = (5, log.ends["sidecar-3", "i1"][1])
    log.shipped(decided(seed=99), "sidecar-3", "i1")
    path = put(tmp_path, export(log.rows, notes={len(log.rows): note(len(log.rows), log.rows)}))
    assert run(capsys, path, "--key", KEY, "--json").reasons == ["source_gap"]
