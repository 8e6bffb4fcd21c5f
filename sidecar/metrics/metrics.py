"""Declares the sidecar's counters and histograms, once.

Label values come from closed sets, never from a request: a tenant's, user's or agent's text as a
label would leak it, and would let an agent make memory grow.

`Counter` and `Durations` are our own, since every decision uses them; they know no metric's name.
Those of the Prometheus library take a lock and check label names on every call, for threads that a
sidecar does not have. Here an increment is a dictionary update; the library renders the result when
it is scraped.

A registry accepts any object with a method `collect`. These classes have no base class from the
library: they are compiled, and compiled code must not depend on what is installed
(`deploy/compile`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from policies import __version__
from policies.checks.order import NAMES
from policies.evaluate import Decision

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
        """Show the series with these labels from now on, at 0 until something is counted. An alert
        doesn't see the increase of a series that appears only with its first event."""
        self._counts.setdefault(labels, 0)

    def add(self, *labels: str) -> None:
        """Add one to the series with these labels."""
        self._counts[labels] = self._counts.get(labels, 0) + 1

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(*self._about, labels=self._labels)
        # Without labels there is one series, and it starts at 0.
        counts = self._counts if self._counts or self._labels else {(): 0}
        for labels, count in counts.items():
            family.add_metric(labels, count)
        yield family


class Durations:
    """A histogram of durations in seconds. `bounds` are the upper bounds of its buckets,
    ascending."""

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
        """Return the number of observations so far."""
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
    """Metrics whose values other parts keep. They are read at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._read: list[Callable[[], Metric]] = []
        registry.register(self)

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._read.append(lambda: GaugeMetricFamily(name, documentation, value=read()))

    def optional_gauge(
        self, name: str, documentation: str, read: Callable[[], float | None]
    ) -> None:
        """Add a gauge that has no sample while `read` returns None: a made-up number would set off
        alerts."""
        self._read.append(lambda: _present(GaugeMetricFamily(name, documentation), read()))

    def count(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._read.append(lambda: CounterMetricFamily(name, documentation, value=read()))

    def gauges(self, name: str, documentation: str, label: str, read: _Labelled) -> None:
        """Add a gauge with one label. `read` returns a value for each label value, from a closed
        set."""
        self._read.append(
            lambda: _filled(GaugeMetricFamily(name, documentation, labels=(label,)), read())
        )

    def counts(self, name: str, documentation: str, label: str, read: _Labelled) -> None:
        """Add a counter with one label, like `gauges`."""
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


# Finest where decisions are: most take tens of microseconds.
EVALUATE_BUCKET_BOUNDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1)
REFUSALS = (
    "tenant_frozen",
    "policy_set_stale",
    "evaluation_error",
    "audit_unavailable",
    "key_not_valid",
    "not_enrolled",
    "agent_not_approved",
    "unreadable_request",
    "unmapped_request",
    "unclassified_route",
    "unresolved_source",
    "route_denied",
    "write_denied",
    "unknown_destination",
    "foreign_origin",
    "name_mismatch",
    "no_server_name",
    "encrypted_hello",
)
"""The policy names of denials that none of the ten checks made."""

DENIED_BY = frozenset((*NAMES, *REFUSALS))


class Metrics:
    """All counters and histograms of a sidecar. `/metrics` shows `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        build = Gauge("sluice_build_info", "Always 1", ["version"], registry=registry)
        build.labels(__version__).set(1)
        counter = partial(Counter, registry=registry)
        # The label `check` is `none` for an ALLOW, otherwise the check or refusal that denied.
        self.decisions = counter(
            "sluice_decisions_total",
            "Evaluations, by outcome and the check that denied.",
            ("decision", "check"),
        )
        # The entry point is an operation of the sidecar's own port, a check door's protocol, or
        # `proxy`.
        self.decisions_by_entry_point = counter(
            "sluice_decisions_by_way_total",
            "Evaluations, by the way in which the request came and by outcome",
            ("way", "decision"),
        )
        self.refused_keys = counter(
            "sluice_refused_keys_total",
            "Calls refused for the key that they carry or lack, by the way in and the reason",
            ("way", "reason"),
        )
        self.reported = counter(
            "sluice_reported_total",
            "Denials by sources in mode `report`, which forwarded the request, by check",
            ("check",),
        )
        self.evaluate_seconds = Durations(
            "sluice_evaluate_seconds",
            "From a parsed request until the spool has its record",
            EVALUATE_BUCKET_BOUNDS,
            registry=registry,
        )
        self.lineage_lost = counter(
            "sluice_lineage_lost_total", "Retrieval lineage that did not fit in the spool"
        )
        # Requests on the sidecar's own ports; `requests` below counts those of the proxy.
        self.responses = counter(
            "sluice_requests_total",
            "Requests answered, by operation and status.",
            ("operation", "status"),
        )
        self.foreign_requests = counter(
            "sluice_foreign_requests_total",
            "Requests refused at ports without a key: for another host, or of another site's page",
            ("cause",),
        )
        self.grpc_checks = counter(
            "sluice_grpc_checks_total",
            "Answers of gRPC check doors, by the code of their status",
            ("code",),
        )
        self.egress_refused = counter(
            "sluice_egress_refused_total",
            "Addresses that a data source's name resolved to and that are not allowed",
            ("reason",),
        )
        self.requests = counter(
            "sluice_proxy_requests_total",
            "Requests through the proxy, by kind of source, decision and class of status",
            ("kind", "decision", "status"),
        )
        self.upstream_failures = counter(
            "sluice_upstream_failures_total",
            "Failures of data sources, by kind and cause",
            ("kind", "cause"),
        )

    def decided(self, decision: Decision, *, report_only: bool = False) -> None:
        """Count one decision. `report_only` marks a denial by a source in mode `report`."""
        if decision.decision == "ALLOW":
            self.decisions.add("ALLOW", "none")
            return
        check = denied_by(decision)
        self.decisions.add("DENY", check)
        if report_only:
            self.reported.add(check)


def denied_by(decision: Decision) -> str:
    """Return the label for the cause of a denial: the check that denied, or the name of a refusal
    outside the checks. Any other name becomes `other`."""
    # Outside the ten checks, the refusal's name is where a policy's would be. That may be a
    # tenant's text, which must not become a label.
    check = decision.check or decision.policy_name
    return check if check in DENIED_BY else "other"
