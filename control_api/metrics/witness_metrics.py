"""Metrics of the cosignatures that witnesses give. The label `witness` is a name of the operator's
setting, and `outcome` comes from a closed set."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

COSIGNED, FAILED = "cosigned", "failed"


class WitnessingMetrics:
    """Remembers the last outcome of each witness and log, so that a change is logged once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "sluice_witness_requests_total",
            "Checkpoints offered to a witness, by what became of them.",
            ("witness", "outcome"),
            registry=registry,
        )
        self._behind = Gauge(
            "sluice_witness_behind_seconds",
            "Since when a log's checkpoint has waited for this witness; 0 if none waits.",
            ("witness",),
            registry=registry,
        )
        self._last: dict[tuple[str, str], str] = {}

    def watch(self, witness: str, outcomes: Iterable[str], waits: Callable[[], float]) -> None:
        """`waits` returns the seconds that the witness is behind."""
        # Each at 0 from the start: an alert does not see the increase of a counter that is new.
        for outcome in outcomes:
            self._requests.labels(witness, outcome)
        self._behind.labels(witness).set_function(waits)

    def answered(self, witness: str, origin: str, outcome: str) -> bool:
        """Counts an outcome. Returns whether it is another one than the last for this log."""
        self._requests.labels(witness, outcome).inc()
        before = self._last.get((witness, origin))
        self._last[witness, origin] = outcome
        return before != outcome
