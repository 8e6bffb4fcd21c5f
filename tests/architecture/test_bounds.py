"""No test gives up before two seconds unless it is meant to: a busy machine may stand still."""

from __future__ import annotations

import pytest

from tests.architecture.time_bounds import Bound, short_bounds
from tests.architecture.tree import ROOT


def test_no_test_gives_up_before_two_seconds() -> None:
    """Wait for the event itself, with the patience of `support/waiting.py`; or move a clock
    (`support/loop_clock.py`). Where the bound has to run out for the test to pass, say
    `# expires on purpose`."""
    found = {
        f"{path.relative_to(ROOT)}:{bound.line}: {bound.text}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if "benchmarks" not in path.parts
        for bound in short_bounds(path.read_text())
    }
    assert found == set()


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.timeout(0.5)",
        "asyncio.timeout(1)",
        "asyncio.wait_for(done, 0.1)",
        "asyncio.wait_for(done, timeout=1.5)",
        "thread.join(1)",
        "event.wait(0.2)",
        "get(url, timeout=0.5)",
        "replace(LIMITS, connections=3, idle_seconds=0.3)",
        "LIMITS._replace(idle_seconds=0.3)",
        "assert time.monotonic() - began < 1",
        "assert loop.time() - began <= 1.5",
        "assert time.process_time() - began < 0.005",
    ],
)
def test_a_short_bound_is_found(code: str) -> None:
    assert [bound.line for bound in short_bounds(f"import asyncio\n{code}\n")] == [2]
    assert short_bounds(f"{code}  # expires on purpose\n") == []
    assert short_bounds(f"# expires on purpose: nothing answers\n{code}\n") == []
    assert short_bounds(f"from tests.support.loop_clock import moving_clock\n{code}\n") == []


def test_a_bound_inside_a_call_of_several_lines_may_be_excused_on_its_own_line() -> None:
    code = "replace(\n    LIMITS,\n    idle_seconds=0.3,{}\n)\n"
    assert short_bounds(code.format("")) == [Bound(1, "replace(LIMITS, idle_seconds=0.3)")]
    assert short_bounds(code.format("  # expires on purpose")) == []


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.timeout(2)",
        "asyncio.timeout(limit)",
        "event.wait(0)",
        "', '.join(names)",
        "replace(LIMITS, connections=1)",
        "assert time.monotonic() - began > 1",
        "assert len(found) < 1",
        "asyncio.sleep(0.1)",
    ],
)
def test_code_that_limits_no_wait_is_not_reported(code: str) -> None:
    assert short_bounds(f"{code}\n") == []
