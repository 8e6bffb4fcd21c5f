"""Metrics of the targets that decisions are pushed to. The label `target` is the target's place in
the setting, from 1."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class ExportMetrics:
    """What was pushed, and what waits."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Gauge(
            "sluice_export_lag_entries",
            "Entries of all logs that this target has not acknowledged.",
            ("target",),
            registry=registry,
        )
        self._decisions = Counter(
            "sluice_export_decisions_total",
            "Decisions pushed, by what became of them.",
            ("target", "outcome"),
            registry=registry,
        )
        self._failures = Counter(
            "sluice_export_failures_total",
            "Attempts to push that failed and are repeated.",
            ("target",),
            registry=registry,
        )
        self._lost = Counter(
            "sluice_export_lost_entries_total",
            "Entries that retention removed before this target got them.",
            ("target",),
            registry=registry,
        )

    def of(self, place: int) -> "TargetMetrics":
        """Those of one target, each at 0 from the start: an alert does not see the increase of a
        counter that is new."""
        target = str(place)
        return TargetMetrics(
            self._lag.labels(target),
            self._decisions.labels(target, "acknowledged"),
            self._decisions.labels(target, "refused"),
            self._failures.labels(target),
            self._lost.labels(target),
        )


class TargetMetrics:
    """The metrics of one target. A decision is `refused` if the target would not take it."""

    def __init__(
        self, lag: Gauge, acknowledged: Counter, refused: Counter, failures: Counter, lost: Counter
    ) -> None:
        self.lag = lag
        self.acknowledged = acknowledged
        self.refused = refused
        self.failures = failures
        self.lost = lost
