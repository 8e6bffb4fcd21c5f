"""A counter and a histogram for the path of every decision. They know no metric's name.

Those of the Prometheus library take a lock and check label names on every call, for threads that a
sidecar does not have. Here an increment is a dictionary update; the library renders the result when
it is scraped.

A registry takes any object with a method `collect`. These have no base class of the library: they
are compiled, and what is compiled must not depend on what is installed (`deploy/compile`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

_Labelled = Callable[[], Mapping[str, float]]


class Counter:
    """A counter with labels. The caller takes label values from a closed set."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        *,
        registry: CollectorRegistry,
    ) -> None:
        self._about = name, documentation
        self._labels = labels
        self._counts: dict[tuple[str, ...], int] = {}
        registry.register(self)

    def start(self, *labels: str) -> None:
        """Show the series of these labels from now on, at 0 until something is added. An alert
        doesn't see the increase of a series that appears with its first event."""
        self._counts.setdefault(labels, 0)

    def add(self, *labels: str) -> None:
        """Add one."""
        self._counts[labels] = self._counts.get(labels, 0) + 1

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(*self._about, labels=self._labels)
        # Without labels there is one series, and it starts at 0.
        counts = self._counts if self._counts or self._labels else {(): 0}
        for labels, count in counts.items():
            family.add_metric(labels, count)
        yield family


class Durations:
    """A histogram of seconds. `bounds` are the upper bounds of its buckets, ascending."""

    def __init__(
        self,
        name: str,
        documentation: str,
        bounds: Sequence[float],
        *,
        registry: CollectorRegistry,
    ) -> None:
        self._about = name, documentation
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def count(self) -> int:
        """Return the number of observations."""
        return sum(self._counts)

    def observe(self, seconds: float) -> None:
        # `bisect_left`, because a Prometheus bucket includes its upper bound (`le`).
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(*self._about)
        # Prometheus buckets are cumulative. Ours are not, so that `observe` changes only one.
        buckets, total = [], 0
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric([], buckets, self._sum)
        yield family


class Observations:
    """Values that other parts keep, read at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._read: list[Callable[[], Metric]] = []
        registry.register(self)

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._read.append(lambda: GaugeMetricFamily(name, documentation, value=read()))

    def optional_gauge(
        self, name: str, documentation: str, read: Callable[[], float | None]
    ) -> None:
        """A gauge without a sample while `read` returns None: a made-up number would set off
        alerts."""
        self._read.append(lambda: _present(GaugeMetricFamily(name, documentation), read()))

    def count(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._read.append(lambda: CounterMetricFamily(name, documentation, value=read()))

    def gauges(self, name: str, documentation: str, label: str, read: _Labelled) -> None:
        """A gauge with one label; `read` returns a value for each label value, from a closed
        set."""
        self._read.append(
            lambda: _filled(GaugeMetricFamily(name, documentation, labels=(label,)), read())
        )

    def counts(self, name: str, documentation: str, label: str, read: _Labelled) -> None:
        """Like `gauges`, for a counter."""
        self._read.append(
            lambda: _filled(CounterMetricFamily(name, documentation, labels=(label,)), read())
        )

    def collect(self) -> Iterator[Metric]:
        return (read() for read in self._read)


def _present(family: GaugeMetricFamily, value: float | None) -> Metric:
    if value is not None:
        family.add_metric((), value)
    return family


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in values.items():
        family.add_metric((label,), value)
    return family
