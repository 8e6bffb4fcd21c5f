"""A person sees of a run: a line every ten seconds, and the test that all wait for."""

from __future__ import annotations

import pytest

from tests.runner import progress
from tests.runner.progress import Progress


class Clock:
    """Stands still until it is moved."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    monkeypatch.setattr(progress, "time", moved)
    return moved


def test_a_line_every_ten_seconds_counts_by_cost(clock: Clock) -> None:
    lines: list[str] = []
    shown = Progress(lines.append, tests=4, cost=10.0)
    for seconds in range(21):
        clock.now = 1000.0 + seconds
        if seconds in (5, 15):
            shown.finished(f"test_{seconds}", 0.1, 2.5, failed=seconds == 15)
        shown.turn({})
    assert lines == [
        " 25%  0:10  1 of 4 tests, 0 failed",
        " 50%  0:20  2 of 4 tests, 1 failed",
    ]


def test_after_half_a_minute_of_silence_the_slowest_running_test_is_named(clock: Clock) -> None:
    lines: list[str] = []
    shown = Progress(lines.append, tests=4, cost=0.0)
    for seconds in range(41):
        clock.now = 1000.0 + seconds
        shown.turn({"test_a": seconds, "test_b": seconds / 2})
    assert [line.partition("failed")[2] for line in lines] == [
        "",
        "",
        "; running for 30 s: test_a",
        "; running for 40 s: test_a",
    ]


def test_the_ten_slowest_are_listed(clock: Clock) -> None:
    shown = Progress(lambda line: None, tests=12, cost=0.0)
    for number in range(12):
        shown.finished(f"test_{number}", number, 0.0, failed=False)
    assert [line.split()[-1] for line in shown.slowest()] == [f"test_{n}" for n in range(11, 1, -1)]
