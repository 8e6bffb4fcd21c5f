"""The control API's metrics, grouped by subject. README.md lists them, and a test compares.

Knows nothing of how the numbers are fetched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from control_api.metrics.optional_gauge import OptionalGauge
from policies import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class HttpMetrics:
    """Requests, and callers that wait or are refused."""

    requests: Counter
    seconds: Histogram
    refusals: Counter
    crashes: Counter
    waiting: Gauge

    @classmethod
    def register(cls, registry: CollectorRegistry) -> "HttpMetrics":
        return cls(
            requests=Counter(
                "sluice_requests_total",
                "Requests answered, by operation and status.",
                ("operation", "status"),
                registry=registry,
            ),
            seconds=Histogram(
                "sluice_request_seconds",
                "From the request's head to its answer, by operation.",
                ("operation",),
                buckets=_SECONDS,
                registry=registry,
            ),
            refusals=Counter(
                "sluice_refusals_total",
                "Callers refused, by reason.",
                ("reason",),
                registry=registry,
            ),
            crashes=Counter(
                "sluice_internal_errors_total", "Requests answered with 500.", registry=registry
            ),
            waiting=Gauge(
                "sluice_policy_set_waiters",
                "Sidecars waiting for a change of their policy set.",
                registry=registry,
            ),
        )


@dataclass(frozen=True, slots=True)
class DecisionMetrics:
    """Decisions, sessions and records. `decided` finds the child of `decisions` without taking the
    parent's lock."""

    decisions: Counter
    decided: Callable[[str, str], Counter]
    sessions: Counter
    ingested: Counter

    @classmethod
    def register(cls, registry: CollectorRegistry) -> "DecisionMetrics":
        decisions = Counter(
            "sluice_decisions_total",
            "Evaluations, by outcome and the check that denied.",
            ("decision", "check"),
            registry=registry,
        )
        return cls(
            decisions=decisions,
            decided=cache(decisions.labels),
            sessions=Counter(
                "sluice_session_claims_total",
                "Session claims, by the state they found.",
                ("state",),
                registry=registry,
            ),
            ingested=Counter(
                "sluice_ingested_records_total",
                "Records delivered by sidecars, by outcome.",
                ("outcome",),
                registry=registry,
            ),
        )


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """What runs beside the requests."""

    reloads: Counter
    alerts: Counter
    deliveries: Counter
    purges: Counter
    key_expiry: Gauge
    unanswered: Counter

    @classmethod
    def register(cls, registry: CollectorRegistry) -> "JobMetrics":
        return cls(
            reloads=Counter(
                "sluice_policy_reloads_total",
                "Loads of a tenant's policy files, by outcome.",
                ("outcome",),
                registry=registry,
            ),
            alerts=Counter(
                "sluice_alerts_fired_total",
                "Alert rules that fired, by type.",
                ("rule_type",),
                registry=registry,
            ),
            deliveries=Counter(
                "sluice_alert_deliveries_total",
                "Attempts to deliver an alert, by channel and outcome.",
                ("channel", "outcome"),
                registry=registry,
            ),
            purges=Counter(
                "sluice_purges_total",
                "Hourly purges of a tenant, by outcome.",
                ("outcome",),
                registry=registry,
            ),
            key_expiry=OptionalGauge(
                "sluice_key_expiry_seconds",
                "Until the next live API key of any tenant expires.",
                registry=registry,
            ),
            unanswered=Counter(
                "sluice_workers_unanswered_total",
                "Workers that did not answer a scrape in time.",
                registry=registry,
            ),
        )


@dataclass(frozen=True, slots=True)
class RedisMetrics:
    """Policy sets, heartbeats and sessions in Redis."""

    pushes: Counter
    push_seconds: Histogram
    behind: Gauge
    behind_seconds: Gauge
    challenges: Counter
    sessions: Counter

    @classmethod
    def register(cls, registry: CollectorRegistry) -> "RedisMetrics":
        return cls(
            pushes=Counter(
                "sluice_redis_pushes_total",
                "Updates of a tenant's policy set in Redis, by outcome.",
                ("outcome",),
                registry=registry,
            ),
            push_seconds=Histogram(
                "sluice_redis_push_seconds",
                "From a commit, or a repair request, until the policy set in Redis is current.",
                buckets=_SECONDS,
                registry=registry,
            ),
            behind=Gauge(
                "sluice_redis_tenants_behind",
                "Tenants whose policy set in Redis may be out of date.",
                registry=registry,
            ),
            behind_seconds=Gauge(
                "sluice_redis_behind_seconds",
                "How long the oldest update of a policy set in Redis has been waiting.",
                registry=registry,
            ),
            challenges=Counter(
                "sluice_redis_challenges_total",
                "Requests for a heartbeat read from Redis, by outcome.",
                ("outcome",),
                registry=registry,
            ),
            sessions=Counter(
                "sluice_redis_sessions_total",
                "Session claims and revocations for Redis, by outcome.",
                ("outcome",),
                registry=registry,
            ),
        )


@dataclass(frozen=True, slots=True)
class Instruments:
    """All metrics of the service."""

    http: HttpMetrics
    decisions: DecisionMetrics
    jobs: JobMetrics
    redis: RedisMetrics

    @classmethod
    def register(cls, registry: CollectorRegistry) -> "Instruments":
        """Creates every metric on `registry`, with the process's own figures."""
        ProcessCollector(registry=registry)
        build = Gauge("sluice_build_info", "Always 1.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        return cls(
            HttpMetrics.register(registry),
            DecisionMetrics.register(registry),
            JobMetrics.register(registry),
            RedisMetrics.register(registry),
        )


def exposition(registry: CollectorRegistry) -> bytes:
    """The metrics in Prometheus' text format."""
    return generate_latest(registry)
