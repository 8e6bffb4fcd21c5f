"""What a sidecar counts and measures: its instruments, declared once. Knows nothing of who counts.

Labels come from closed sets, never from a request: a tenant's, user's or agent's text as a label
would be a leak, and memory that an agent could make grow.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from policies import __version__
from policies.checks import NAMES
from policies.evaluate import Decision

SECONDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1, 1.0, 2.5)
REFUSALS = (
    "policy_set_stale",
    "evaluation_error",
    "audit_unavailable",
    "key_not_valid",
    "unreadable_request",
    "unclassified_route",
)
"""What denies outside the ten checks."""

DENIED_BY = frozenset((*NAMES, *REFUSALS))


Family = GaugeMetricFamily | CounterMetricFamily


class Bound(dict[tuple[str, ...], Callable[[], None]]):
    """A counter's `inc` by its labels, looked up in the library once: the hot path counts with one
    dictionary look-up."""

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self._counter = counter

    def __missing__(self, labels: tuple[str, ...]) -> Callable[[], None]:
        bound = self[labels] = self._counter.labels(*labels).inc
        return bound


@dataclass(frozen=True, slots=True)
class Metrics:
    """The instruments. `registry` is what `/metrics` shows."""

    registry: CollectorRegistry
    decisions: Bound
    """Decisions by answer and by what decided: `policy` for an ALLOW, else the check or refusal."""
    evaluate_seconds: Histogram
    """From a parsed request to its record being in the spool's hands, a claim included."""
    lineage_lost: Counter
    """Retrieval lineage that the spool had no room for."""
    responses: Bound
    """Answers on `listen`, by route and status."""

    def decided(self, decision: Decision) -> None:
        """Count one decision."""
        if decision.decision == "ALLOW":
            self.decisions["ALLOW", "policy"]()
        else:
            by = decision.check or decision.policy_name
            self.decisions["DENY", by if by in DENIED_BY else "other"]()


class Watches(Collector):
    """What others count or measure for themselves, read when `/metrics` is asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._families: list[tuple[type[Family], str, str, Callable[[], float]]] = []
        registry.register(self)

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._families.append((GaugeMetricFamily, name, documentation, read))

    def count(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._families.append((CounterMetricFamily, name, documentation, read))

    def collect(self) -> Iterator[Family]:
        for family, name, documentation, read in self._families:
            yield family(name, documentation, value=read())


def make_metrics(registry: CollectorRegistry) -> Metrics:
    """All instruments, registered."""

    def counter(name: str, documentation: str, *labels: str) -> Bound:
        return Bound(Counter(name, documentation, labels, registry=registry))

    build = Gauge("sluice_build_info", "Always 1", ["version"], registry=registry)
    build.labels(__version__).set(1)
    return Metrics(
        registry=registry,
        decisions=counter(
            "sluice_decisions_total", "Decisions, by answer and by what decided", "decision", "by"
        ),
        evaluate_seconds=Histogram(
            "sluice_evaluate_seconds",
            "From a parsed request to its record being in the spool's hands",
            buckets=SECONDS,
            registry=registry,
        ),
        lineage_lost=Counter(
            "sluice_lineage_lost_total", "Lineage that the spool had no room for", registry=registry
        ),
        responses=counter(
            "sluice_http_responses_total", "Answers, by route and status", "route", "code"
        ),
    )
