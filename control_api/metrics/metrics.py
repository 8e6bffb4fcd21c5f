"""Defines the control API's metrics, grouped by subject. README.md lists them, and a test compares
both. The label `target` is the position of an export target in the setting, from 1; `witness` is a
witness's name in the operator's setting."""

import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from control_api.metrics.labels import Enrolling, KeySetFetch, Signing
from policies import __version__
from policies.ground.connection_budget import ConnectionBudget


class ExportMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, target = partial(Counter, registry=registry), ("target",)
        lag = "Entries of all logs that this target has not acknowledged."
        self._lag = Gauge("sluice_export_lag_entries", lag, target, registry=registry)
        decisions, labels = "Decisions pushed, by what became of them.", ("target", "outcome")
        self._decisions = counter("sluice_export_decisions_total", decisions, labels)
        failures = "Attempts to push that failed and are repeated."
        self._failures = counter("sluice_export_failures_total", failures, target)
        lost = "Entries that retention removed before this target got them."
        self._lost = counter("sluice_export_lost_entries_total", lost, target)

    def of(self, place: int) -> "TargetMetrics":
        """Return the metrics of one export target. Each starts at 0, because an alert does not see
        the increase of a counter that is new."""
        target = str(place)
        return TargetMetrics(
            self._lag.labels(target),
            self._decisions.labels(target, "acknowledged"),
            self._decisions.labels(target, "refused"),
            self._failures.labels(target),
            self._lost.labels(target),
        )


class TargetMetrics(NamedTuple):
    """The metrics of one export target. A decision counts as `refused` if the target will never
    take it."""

    lag: Gauge
    acknowledged: Counter
    refused: Counter
    failures: Counter
    lost: Counter


COSIGNED, FAILED = "cosigned", "failed"


class WitnessingMetrics:
    """The metrics of requests to witnesses. It remembers the last outcome for each witness and log,
    so that a change is logged once."""

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
        """Create the metrics of a witness. `waits` returns for how many seconds the witness has
        been behind."""
        # Each at 0 from the start: an alert does not see the increase of a counter that is new.
        for outcome in outcomes:
            self._requests.labels(witness, outcome)
        self._behind.labels(witness).set_function(waits)

    def answered(self, witness: str, origin: str, outcome: str) -> bool:
        """Count an outcome. Return whether it differs from the last outcome for this witness and
        log."""
        self._requests.labels(witness, outcome).inc()
        before = self._last.get((witness, origin))
        self._last[witness, origin] = outcome
        return before != outcome


CONTENT_TYPE = CONTENT_TYPE_LATEST

# From a decision made from memory, about a millisecond, to a long poll, which waits up to 25 s.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


class HttpMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.requests = counter(
            "sluice_requests_total",
            "Requests answered, by operation and status.",
            ("operation", "status"),
        )
        self.seconds = Histogram(
            "sluice_request_seconds",
            "From the request's head to its answer, by operation.",
            ("operation",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.refusals = counter("sluice_refusals_total", "Callers refused, by reason.", ("reason",))
        self.isolation_violations = counter(
            "sluice_isolation_violations_total",
            "Requests refused because a sidecar's key named an agent or a sidecar that is not its "
            "own, and batches with a record of another entry's id, or of an unknown event.",
            ("what",),
        )
        self.crashes = counter("sluice_internal_errors_total", "Requests answered with 500.")
        self.waiting = Gauge(
            "sluice_policy_set_waiters",
            "Sidecars waiting for a change of their policy set.",
            registry=registry,
        )


class DecisionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.decisions = counter(
            "sluice_decisions_total",
            "Evaluations, by outcome and the check that denied.",
            ("decision", "check"),
        )
        # `labels` takes the parent's lock each time. Both labels come from closed sets, so every
        # child is looked up there once, and the cache stays small.
        self.decided = cache(self.decisions.labels)
        self.sessions = counter(
            "sluice_session_claims_total", "Session claims, by the state they found.", ("state",)
        )
        self.ingested = counter(
            "sluice_ingested_records_total",
            "Records delivered by sidecars, by outcome.",
            ("outcome",),
        )


class JobMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.reloads = counter(
            "sluice_policy_reloads_total",
            "Loads of a tenant's policy files, by outcome.",
            ("outcome",),
        )
        self.refused_files = gauge(
            "sluice_policy_files_refused", "Tenants whose files were refused when last read."
        )
        self.alerts = counter(
            "sluice_alerts_fired_total", "Alert rules that fired, by type.", ("rule_type",)
        )
        self.deliveries = counter(
            "sluice_alert_deliveries_total",
            "Attempts to deliver an alert, by channel and outcome.",
            ("channel", "outcome"),
        )
        self.purges = counter(
            "sluice_purges_total", "Hourly purges of a tenant, by outcome.", ("outcome",)
        )
        self.self_verification_age = _OptionalGauge(
            "sluice_self_verification_age_seconds",
            "Since the scheduled verification last reached the end of every log.",
            registry=registry,
        )
        self.self_verification_findings = gauge(
            "sluice_self_verification_findings",
            "Logs that the scheduled verification found damaged.",
        )
        self.derived_decisions = counter(
            "sluice_self_verification_decisions_total",
            "Decisions that the scheduled verification derived again, by result.",
            ("result",),
        )
        self.key_expiry = _OptionalGauge(
            "sluice_key_expiry_seconds",
            "Until the next live API key of any tenant expires.",
            registry=registry,
        )
        self.certificate_expiry = _OptionalGauge(
            "sluice_tls_certificate_expiry_seconds",
            "Until the first certificate that this service presents expires.",
            registry=registry,
        )
        self.certificate_expiry.set(math.nan)
        self.unanswered = counter(
            "sluice_workers_unanswered_total", "Workers that did not answer a scrape in time."
        )
        self.listening = _OptionalGauge(
            "sluice_change_notices",
            "1 while notices of other processes' changes arrive, 0 while they do not.",
            registry=registry,
        )
        self.listening.set(math.nan)


class CheckpointMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._checkpoints = Counter(
            "sluice_checkpoints_total",
            "Attempts to sign a log that has changed, by outcome.",
            ("outcome",),
            registry=registry,
        )
        self.diverged = Gauge(
            "sluice_log_diverged",
            "Logs that contradict their checkpoints and are not signed.",
            registry=registry,
        )
        self.stores_differ = Gauge(
            "sluice_checkpoint_stores_differ",
            "1 if another replica does not use this checkpoint store, 0 otherwise.",
            registry=registry,
        )

    def outcome(self, outcome: Signing) -> None:
        self._checkpoints.labels(outcome).inc()


class EnrolmentMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._enrolments = counter(
            "sluice_enrolments_total", "Enrolments of sidecars, by outcome.", ("outcome",)
        )
        self._fetches = counter(
            "sluice_enrolment_key_sets_total",
            "Reads of an issuer's keys, by outcome.",
            ("outcome",),
        )

    def outcome(self, outcome: Enrolling) -> None:
        self._enrolments.labels(outcome).inc()

    def fetched(self, outcome: KeySetFetch) -> None:
        self._fetches.labels(outcome).inc()


class RedisMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.pushes = counter(
            "sluice_redis_pushes_total",
            "Updates of a tenant's policy set in Redis, by outcome.",
            ("outcome",),
        )
        self.push_seconds = Histogram(
            "sluice_redis_push_seconds",
            "From a commit, or a repair request, until the policy set in Redis is current.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.behind = gauge(
            "sluice_redis_tenants_behind", "Tenants whose policy set in Redis may be out of date."
        )
        self.behind_seconds = gauge(
            "sluice_redis_behind_seconds",
            "How long the oldest update of a policy set in Redis has been waiting.",
        )
        self.challenges = counter(
            "sluice_redis_challenges_total",
            "Requests for a heartbeat read from Redis, by outcome.",
            ("outcome",),
        )
        self.sessions = counter(
            "sluice_redis_sessions_total",
            "Session claims and revocations for Redis, by outcome.",
            ("outcome",),
        )


class Instruments:
    """All metrics of the service. They are created on `registry`, together with the metrics of the
    process itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        self.build = Gauge("sluice_build_info", "Always 1.", ["version"], registry=registry)
        self.build.labels(__version__).set(1)
        self.http = HttpMetrics(registry)
        self.decisions = DecisionMetrics(registry)
        self.jobs = JobMetrics(registry)
        self.enrolment = EnrolmentMetrics(registry)
        self.redis = RedisMetrics(registry)
        self.witnesses = WitnessingMetrics(registry)
        self.checkpoints = CheckpointMetrics(registry)
        self.exports = ExportMetrics(registry)


class _OptionalGauge(Gauge):
    """A gauge that has no sample while its value is NaN. A made-up number would set off alerts, and
    a NaN breaks `min` over replicas."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            family.samples = [each for each in family.samples if not math.isnan(each.value)]
            yield family


def exposition(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)


class ConnectionMetrics(Collector):
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
