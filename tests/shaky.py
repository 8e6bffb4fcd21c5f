"""`python -m tests.shaky [--times N] TEST…` runs tests again and again on a machine that stalls.

pytest and every process that it starts get so few milliseconds of CPU in each period, and stand
still for the rest of it. A test that waits for time instead of for an event fails here sooner or
later. Stops at the first failure. The last two runs stall harder.

The kernel does it with a control group, which takes root. Otherwise busy processes take the CPU
away, which is less regular: a failure counts, but that none comes means less.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
GROUPS = Path("/sys/fs/cgroup")
TIMES = 20
HARD_RUNS = 2


class Throttle(NamedTuple):
    """Milliseconds of CPU, of all cores together, in each period."""

    quota: int
    period: int

    def __str__(self) -> str:
        return f"{self.quota} of {self.period} ms"


USUAL, HARD = Throttle(80, 250), Throttle(120, 600)
"""The hard one stands still three times as long, for half a second. The product itself allows a
minute for a start of all services, so with a tenth of a core it would fail without a fault."""


class Group(NamedTuple):
    """A control group, and whether it is of version 2."""

    folder: Path
    unified: bool

    def limits(self, throttle: Throttle) -> dict[str, str]:
        """What to write into which file. The kernel counts in microseconds, up to a second."""
        quota, period = throttle.quota * 1000, throttle.period * 1000
        if self.unified:
            return {"cpu.max": f"{quota} {period}"}
        return {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota)}


def place(groups: Path = GROUPS) -> Group:
    """Where this machine's group for us is made."""
    name = f"sluice-shaky-{os.getpid()}"
    if (groups / "cgroup.controllers").exists():
        return Group(groups / name, unified=True)
    return Group(groups / "cpu" / name, unified=False)


@contextmanager
def throttled(group: Group, throttle: Throttle) -> Iterator[Callable[[], None]]:
    """Make the group. A child process calls what this yields, to enter it. Raises `OSError` if this
    user may not."""
    group.folder.mkdir()
    try:
        for file, text in group.limits(throttle).items():
            (group.folder / file).write_text(text)
        yield lambda: _enter(group)
    finally:
        _end_all(group)
        group.folder.rmdir()


def _enter(group: Group) -> None:
    (group.folder / "cgroup.procs").write_text(str(os.getpid()))


def _end_all(group: Group) -> None:
    """End what a test run left behind: a group with processes can't be removed."""
    end = time.monotonic() + 30
    while found := (group.folder / "cgroup.procs").read_text().split():
        if time.monotonic() > end:
            raise TimeoutError(f"processes {', '.join(found)} do not leave `{group.folder}`")
        for each in found:
            try:
                os.kill(int(each), signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)


@contextmanager
def crowded() -> Iterator[Callable[[], None]]:
    """Four busy processes a core, and what is tested behind them. Needs no rights."""
    count = 4 * (os.cpu_count() or 1)
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield _step_back
    finally:
        for each in burners:
            each.kill()
            each.wait()


def _step_back() -> None:
    os.nice(5)


def schedule(times: int) -> list[Throttle]:
    """How hard each run is: the last ones are the hardest."""
    hard = min(HARD_RUNS, times // 2)
    return [USUAL] * (times - hard) + [HARD] * hard


def run(tests: Sequence[str], throttle: Throttle) -> int:
    """Run the tests once. Returns pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    with ExitStack() as stack:
        try:
            enter = stack.enter_context(throttled(place(), throttle))
        except OSError as error:
            print(f"no control group ({error}): busy processes crowd the CPU instead", flush=True)
            enter = stack.enter_context(crowded())
        return subprocess.run(command, cwd=ROOT, preexec_fn=enter, check=False).returncode


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.shaky")
    parser.add_argument("--times", type=int, default=TIMES, help=f"runs, by default {TIMES}")
    parser.add_argument("tests", nargs=argparse.REMAINDER, metavar="TEST", help="as pytest's")
    asked = parser.parse_args(arguments)
    if asked.times < 1:
        parser.error(f"`--times {asked.times}`: expected 1 or more")
    if not asked.tests:
        parser.error("no tests: expected paths, as pytest takes them")
    return asked


def main(arguments: Sequence[str]) -> int:
    asked = parsed(arguments)
    # So that a run that is ended removes its group.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    for number, throttle in enumerate(schedule(asked.times), 1):
        print(f"run {number} of {asked.times}, with {throttle}", flush=True)
        status = run(asked.tests, throttle)
        if status != 0:
            print(f"run {number} failed, after {time.monotonic() - began:.0f} s", flush=True)
            return status
    print(f"{asked.times} runs passed, in {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
