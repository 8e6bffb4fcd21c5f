"""Metrics of the connections to the API's port, and of what they hold before a request begins."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from policies.ground.connection_budget import ConnectionBudget


class ConnectionMetrics(Collector):
    """Reads the counts of `budget` at each scrape."""

    def __init__(self, registry: CollectorRegistry, budget: ConnectionBudget) -> None:
        self._budget = budget
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        budget = self._budget
        yield GaugeMetricFamily("sluice_connections", "Connections open.", budget.open)
        yield GaugeMetricFamily("sluice_max_connections", "The most there may be.", budget.most)
        yield CounterMetricFamily(
            "sluice_connections_refused_total",
            "Connections ended at once: too many.",
            budget.refused,
        )
        yield GaugeMetricFamily(
            "sluice_unfinished_head_bytes",
            "Bytes that arrived of request heads without an end.",
            budget.head_bytes,
        )
        yield CounterMetricFamily(
            "sluice_unfinished_heads_refused_total",
            "Connections ended because of too many bytes of unfinished heads.",
            budget.heads_refused,
        )
