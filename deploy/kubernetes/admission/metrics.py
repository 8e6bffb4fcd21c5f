"""The webhook's metrics. README.md lists them, and a test compares the two. The values of labels
come from closed sets, never from a pod."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily

from policies import __version__

# From a typical review, a fifth of a millisecond, to the 5 s after which the API server goes on
# without us.
_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)


class ControllerFault(StrEnum):
    """The reason why a round of the certificate controller did not finish."""

    unreachable = "unreachable"
    """The API server does not respond, or responds with 5xx."""
    denied = "denied"
    """The API server responds with 401 or 403: the role of the service account lacks a right."""
    conflict = "conflict"
    """Another replica changed the same object first. The next round sees the result."""
    clock = "clock"
    """This machine's clock differs too much from the API server's to create certificates."""
    unusable = "unusable"
    """The certificate can't be read or served."""


class EventOutcome(StrEnum):
    """The outcome of sending a Kubernetes Event."""

    sent = "sent"
    repeated = "repeated"
    """Not sent, since the same Event was sent for this owner a short time ago."""
    dropped = "dropped"
    """Not sent, since the queue was full: the API server is slow, or very many pods start."""
    failed = "failed"


class WebhookMetrics:
    """All metrics of the process, registered with `registry`. `expires` returns the seconds until
    the served certificate expires, or None if there is no certificate."""

    def __init__(self, registry: CollectorRegistry, expires: Callable[[], float | None]) -> None:
        ProcessCollector(registry=registry)
        registry.register(_Expiry(expires))
        build = Gauge("sluice_build_info", "Always 1.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        responses = Counter(
            "sluice_injection_responses_total",
            "Reviews answered, by outcome and the reason why a pod was left as it is.",
            ("outcome", "skip_reason"),
            registry=registry,
        )
        # `labels` takes the parent's lock each time. Both labels come from enums.
        self.responses = cache(responses.labels)
        self.seconds = Histogram(
            "sluice_injection_seconds",
            "From a review's head to its answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.connections = Gauge(
            "sluice_webhook_connections", "Open connections of the HTTPS port.", registry=registry
        )
        self.controller_faults = Counter(
            "sluice_webhook_certificate_failures_total",
            "Rounds of the certificate controller that failed, by reason.",
            ("reason",),
            registry=registry,
        )
        self.events = Counter(
            "sluice_webhook_events_total",
            "Kubernetes Events, by what became of them.",
            ("outcome",),
            registry=registry,
        )
        # A counter without a sample looks like a metric that does not exist, to alerting rules.
        for fault in ControllerFault:
            self.controller_faults.labels(fault)
        for outcome in EventOutcome:
            self.events.labels(outcome)


class _Expiry:
    """The metric of the seconds until the certificate expires. It has no sample while there is no
    certificate: an invented number would set off alerts, or hide them."""

    def __init__(self, expires: Callable[[], float | None]) -> None:
        self._expires = expires

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found = GaugeMetricFamily(
            "sluice_webhook_certificate_expiry_seconds",
            "Until the certificate that the webhook serves expires.",
        )
        if (seconds := self._expires()) is not None:
            found.add_metric((), seconds)
        yield found
