"""What the control API counts. Labels come from closed sets alone: never a tenant's, a user's or an
agent's text. Knows nothing of how the numbers are fetched."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from control_api.metrics.optional_gauge import OptionalGauge
from policies import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


class RefusalReason(StrEnum):
    """Why a caller was not let in."""

    missing = "missing"
    differ = "differ"
    unknown = "unknown"
    expired = "expired"
    deactivated = "deactivated"
    scope = "scope"
    rate = "rate"


class Reload(StrEnum):
    """What reading a tenant's policy files came to."""

    changed = "changed"
    unchanged = "unchanged"
    refused = "refused"


class Ingest(StrEnum):
    """What became of a record that a sidecar delivered."""

    held = "held"
    refused = "refused"


class DeliveryOutcome(StrEnum):
    """What an attempt to deliver an alert came to."""

    delivered = "delivered"
    retried = "retried"
    failed = "failed"


class Purging(StrEnum):
    """What became of a tenant's hourly purge."""

    purged = "purged"
    nothing = "nothing"
    refused = "refused"
    failed = "failed"


class Pushing(StrEnum):
    """What bringing a tenant's set in Redis to where the store is came to."""

    pushed = "pushed"
    mended = "mended"
    rebuilt = "rebuilt"
    current = "current"
    failed = "failed"


class Challenge(StrEnum):
    """What became of a sidecar's challenge."""

    answered = "answered"
    foreign = "foreign"
    unreadable = "unreadable"
    unanswered = "unanswered"


class SessionPush(StrEnum):
    """What became of a session's claim or revocation on its way to Redis."""

    written = "written"
    older = "older"
    dropped = "dropped"


@dataclass(frozen=True, slots=True)
class Instruments:
    """Every instrument of the service; README.md lists them, and a test compares. `decided` finds
    the child of `decisions` without the parent's lock."""

    requests: Counter
    request_seconds: Histogram
    decisions: Counter
    decided: Callable[[str, str], Counter]
    refusals: Counter
    reloads: Counter
    sessions: Counter
    ingested: Counter
    alerts: Counter
    deliveries: Counter
    purges: Counter
    waiting: Gauge
    pushes: Counter
    push_seconds: Histogram
    behind: Gauge
    behind_seconds: Gauge
    challenges: Counter
    session_pushes: Counter
    unanswered: Counter
    crashes: Counter
    key_expiry: Gauge

    @classmethod
    def on(cls, registry: CollectorRegistry) -> "Instruments":
        """Every instrument, registered on `registry`, and the process's own figures."""
        ProcessCollector(registry=registry)
        build = Gauge("sluice_build_info", "Always 1.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        decisions = Counter(
            "sluice_decisions_total",
            "Evaluations, by outcome and the check that denied.",
            ("decision", "check"),
            registry=registry,
        )
        return cls(
            requests=Counter(
                "sluice_requests_total",
                "Requests answered, by operation and status.",
                ("operation", "status"),
                registry=registry,
            ),
            request_seconds=Histogram(
                "sluice_request_seconds",
                "From the request's head to its answer, by operation.",
                ("operation",),
                buckets=_SECONDS,
                registry=registry,
            ),
            decisions=decisions,
            decided=cache(decisions.labels),
            refusals=Counter(
                "sluice_refusals_total",
                "Callers not let in, by reason.",
                ("reason",),
                registry=registry,
            ),
            reloads=Counter(
                "sluice_policy_reloads_total",
                "Readings of a tenant's policy files, by outcome.",
                ("outcome",),
                registry=registry,
            ),
            sessions=Counter(
                "sluice_session_claims_total",
                "Session claims, by the state they found.",
                ("state",),
                registry=registry,
            ),
            ingested=Counter(
                "sluice_ingested_records_total",
                "Records that sidecars delivered, by outcome.",
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
            waiting=Gauge(
                "sluice_policy_set_waiters",
                "Sidecars that wait for a change of their policy set.",
                registry=registry,
            ),
            pushes=Counter(
                "sluice_redis_pushes_total",
                "Times that a tenant's policy set in Redis was brought to the store's, by outcome.",
                ("outcome",),
                registry=registry,
            ),
            push_seconds=Histogram(
                "sluice_redis_push_seconds",
                "From the commit, or from the doubt, to a policy set in Redis that is the store's.",
                buckets=_SECONDS,
                registry=registry,
            ),
            behind=Gauge(
                "sluice_redis_tenants_behind",
                "Tenants whose policy set in Redis is not known to be the store's.",
                registry=registry,
            ),
            behind_seconds=Gauge(
                "sluice_redis_behind_seconds",
                "For how long a policy set has been waiting to be pushed to Redis.",
                registry=registry,
            ),
            challenges=Counter(
                "sluice_redis_challenges_total",
                "Challenges of sidecars read from Redis, by outcome.",
                ("outcome",),
                registry=registry,
            ),
            session_pushes=Counter(
                "sluice_redis_sessions_total",
                "Claims and revocations of sessions on their way to Redis, by outcome.",
                ("outcome",),
                registry=registry,
            ),
            unanswered=Counter(
                "sluice_workers_unanswered_total",
                "Workers that did not answer in time for their part of a scrape.",
                registry=registry,
            ),
            crashes=Counter(
                "sluice_internal_errors_total",
                "Requests answered with 500.",
                registry=registry,
            ),
            key_expiry=OptionalGauge(
                "sluice_key_expiry_seconds",
                "Until the next live API key of any tenant expires.",
                registry=registry,
            ),
        )


def exposition(registry: CollectorRegistry) -> bytes:
    """Prometheus text."""
    return generate_latest(registry)
