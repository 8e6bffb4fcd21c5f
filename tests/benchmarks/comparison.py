"""The table of `two_cores`: its rows, its targets, and how results of contenders become rows.

Knows no contender but the floor and `fdatasync`.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.benchmarks.turns import Rounds


class Target(NamedTuple):
    """What must be reached: by the pure form, by the compiled one."""

    pure: float
    compiled: float

    def of(self, form: str) -> float:
        return self.compiled if form == "compiled" else self.pure


RATIOS = {
    ("evaluate, durable", 16): Target(0.42, 0.55),
    ("evaluate, durable", 64): Target(0.48, 0.65),
    ("reverse proxy, 2 KB", 16): Target(1.2, 1.5),
    ("reverse proxy, 2 KB", 64): Target(1.4, 1.8),
}
"""By measure and connections: of the floor's rate."""
RATES = {("control API evaluate, SQLite", 64): Target(6000, 9000)}
COSTS = {("evaluate, durable", 64): Target(55, 40)}
"""Microseconds of CPU a request."""
ABOVE_SYNC_P50 = {"evaluate, durable": Target(120, 90)}
"""Microseconds above one `fdatasync`."""
ABOVE_SYNC_P99 = Target(0.5, 0.5)
"""Milliseconds above the p99 of `fdatasync`."""

_COLUMNS = (
    *("measure", "ours", "floor", "ratio", "p50", "p99", "CPU a request"),
    *("rivals, of the floor", "target", "reached"),
)
HEAD = (f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|")


@dataclass
class Row:
    """One row of the table. Cells that do not apply stay empty."""

    measure: str
    ours: str = ""
    floor: str = ""
    ratio: str = ""
    p50: str = ""
    p99: str = ""
    cpu: str = ""
    rivals: str = ""
    targets: list[tuple[str, bool]] = field(default_factory=list)

    def text(self) -> str:
        cells = [self.measure, self.ours, self.floor, self.ratio, self.p50, self.p99, self.cpu]
        target = ", ".join(name for name, _ in self.targets)
        reached = ", ".join("yes" if reached else "no" for _, reached in self.targets)
        return f"| {' | '.join([*cells, self.rivals, target, reached])} |"


@dataclass
class Comparison:
    """The results of all contenders with one number of connections."""

    found: Rounds
    forms: list[str]
    connections: int

    def of(self, name: str, what: str) -> float:
        return float(statistics.median(each[name][what] for each in self.found))

    def between(self, a: str, b: str, of: Callable[[Any, Any], float]) -> float:
        """The median over the rounds of what `of` makes of both results of a round."""
        return float(statistics.median(of(each[a], each[b]) for each in self.found))

    def ratio(self, name: str) -> float:
        return self.between(name, "floor", lambda a, b: a["rate"] / b["rate"])

    def rows(self, measure: str, others: Mapping[str, bool]) -> Iterator[Row]:
        """A row for each form. `others`: the rivals, and whether each is available."""
        rivals = ", ".join(
            f"{name} {self.ratio(name):.2f} ({self.of(name, 'cpu'):.0f} µs)"
            if available
            else f"{name} not available"
            for name, available in others.items()
        )
        many = f"{self.connections} connection{'s' if self.connections > 1 else ''}"
        for form in self.forms:
            row = Row(f"{measure}, {many}, {form}", f"{self.of(form, 'rate'):,.0f}/s")
            row.floor = f"{self.of('floor', 'rate'):,.0f}/s ({self.of('floor', 'cpu'):.0f} µs)"
            row.ratio = f"{self.ratio(form):.2f}"
            row.p50, row.p99 = f"{self.of(form, 'p50'):.2f} ms", f"{self.of(form, 'p99'):.2f} ms"
            row.cpu, row.rivals = f"{self.of(form, 'cpu'):.0f} µs", rivals
            row.targets = list(self._targets(measure, form))
            yield row
        if "fdatasync" in self.found[0]:
            yield from self._above_sync(measure)

    def _targets(self, measure: str, form: str) -> Iterator[tuple[str, bool]]:
        at = measure, self.connections
        if at in RATIOS:
            least = RATIOS[at].of(form)
            yield f"≥ {least}", self.ratio(form) >= least
        if at in RATES:
            least = RATES[at].of(form)
            yield f"≥ {least:,}/s", self.of(form, "rate") >= least
        if at in COSTS:
            most = COSTS[at].of(form)
            yield f"≤ {most} µs", self.of(form, "cpu") <= most

    def _above_sync(self, measure: str) -> Iterator[Row]:
        """What one connection waits for, above one sync of the same disk."""
        for form in self.forms:
            p50 = 1e3 * self.between(form, "fdatasync", lambda a, b: a["p50"] - b["p50"])
            p99 = self.between(form, "fdatasync", lambda a, b: a["p99"] - b["p99"])
            row = Row(f"the same above one `fdatasync`, {form}")
            alone = self.of("fdatasync", "p50"), self.of("fdatasync", "p99")
            row.floor = f"p50 {alone[0]:.2f}, p99 {alone[1]:.2f} ms"
            row.p50, row.p99 = f"{p50:+.0f} µs", f"{p99:+.2f} ms"
            if measure in ABOVE_SYNC_P50:
                most = ABOVE_SYNC_P50[measure].of(form)
                row.targets.append((f"p50 +{most} µs", p50 <= most))
            most = ABOVE_SYNC_P99.of(form)
            row.targets.append((f"p99 +{most} ms", p99 <= most))
            yield row
