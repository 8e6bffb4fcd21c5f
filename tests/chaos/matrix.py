"""Makes one fault after the other, and collects a table row for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.chaos.faults import FAULTS, RESTORES
from tests.chaos.load import Load
from tests.chaos.promises import read_back
from tests.chaos.system import System, running_system

WARM_SECONDS = 4.0
RECOVERY_SECONDS = 10.0
BACK = 0.8
"""The system counts as recovered from this share of the earlier rate on."""
LAG = 200
"""Records that may wait for shipping in a healthy system."""
DRAIN_SECONDS = 30.0

HEADINGS = (
    "fault", "answered", "recorded", "duplicates", "wrong", "gaps", "longest stall s", "recovered s"
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """The results of a fault; counts are of its own time."""

    fault: str
    answered: int
    recorded: int
    duplicates: int
    wrong: int
    gaps: int
    stall: float
    recovered: float | None
    broken: tuple[str, ...]

    def cells(self) -> tuple[str, ...]:
        back = "never" if self.recovered is None else f"{self.recovered:.1f}"
        counts = (self.answered, self.recorded, self.duplicates, self.wrong, self.gaps)
        return (self.fault, *map(str, counts), f"{self.stall:.1f}", back)


@dataclass(frozen=True)
class Matrix:
    """`seconds` is how long each fault lasts. `patience` multiplies the time that a recovery may
    take."""

    seconds: float
    patience: float

    async def run(
        self, folder: Path, names: Iterable[str], tell: Callable[[str], None]
    ) -> list[Row]:
        """The rows, each as soon as it is complete."""
        rows = []
        async with running_system(folder) as system:
            load = Load(system)
            before, told = (0, 0), set[str]()
            tell(_line(HEADINGS))
            for name in names:
                row, before = await self._row(system, load, name, before, told)
                rows.append(row)
                tell(_line(row.cells()))
                for broken in row.broken[:8]:
                    tell(f"  BROKEN {broken}")
        return rows

    async def _row(
        self, system: System, load: Load, name: str, before: tuple[int, int], told: set[str]
    ) -> tuple[Row, tuple[int, int]]:
        history = load.history
        history.longest, began = 0.0, time.monotonic()
        async with load.working():
            await asyncio.sleep(WARM_SECONDS)
            usual = load.rate(2.0)
            await FAULTS[name](system, self.seconds)
            recovered = await self._recovered(system, load, usual)
            stall = max(history.longest, _longest_silence(load, began))
        drained = await self._drained(system)
        if name in RESTORES:
            await asyncio.to_thread(system.accept_loss)
        found = await read_back(system, history)
        # What one fault broke in the log stays broken; it is not the next one's.
        broken = [each for each in found.broken if each not in told]
        told.update(broken)
        if recovered is None:
            broken.append(f"recovery: not back within {RECOVERY_SECONDS * self.patience:.0f} s")
        if not drained:
            broken.append(f"recovery: {system.depth()} records are not shipped")
        row = Row(
            name,
            len(history.answered) - before[0],
            found.recorded - before[1],
            found.duplicates,
            found.wrong,
            found.gaps,
            stall,
            recovered,
            tuple(broken),
        )
        return row, (len(history.answered), found.recorded)

    async def _recovered(self, system: System, load: Load, usual: float) -> float | None:
        """Seconds until rate and lag are back to normal; None if that took too long."""
        since = time.monotonic()
        while time.monotonic() - since < RECOVERY_SECONDS * self.patience + 1:
            if load.rate(1.0) >= BACK * usual and await _depth(system) <= LAG:
                return max(0.0, time.monotonic() - since - 1.0)
            await asyncio.sleep(0.25)
        return None

    async def _drained(self, system: System) -> bool:
        deadline = time.monotonic() + DRAIN_SECONDS * self.patience
        while time.monotonic() < deadline:
            if await _depth(system) == 0:
                return True
            await asyncio.sleep(0.1)
        return False


async def _depth(system: System) -> int:
    try:
        return await asyncio.to_thread(system.depth)
    except OSError:
        return 1 << 30  # a sidecar is not back yet


def _longest_silence(load: Load, since: float) -> float:
    """The longest time without any response."""
    times = sorted(each.heard for each in load.history.answered.values())
    recent = [at for at in times if at > since + 1]
    return max((b - a for a, b in pairwise(recent)), default=0.0)


def _line(cells: Iterable[str]) -> str:
    first, *rest = cells
    return f"{first:<28}" + "".join(f"{cell:>16}" for cell in rest)
