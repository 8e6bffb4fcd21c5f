"""Metrics of the parts that keep their own counts. Knows the names and what they mean."""

from policies.ground.clock import Clock
from policies.ground.connection_budget import ConnectionBudget
from sidecar.control.enroller import Enroller
from sidecar.control.identity import EnrolledIdentity
from sidecar.control.log_client import PinnedCheckpoint
from sidecar.control.shipper import Shipper
from sidecar.http.request_body import BodyBudget
from sidecar.http.tls_contexts import certificate_seconds_left, presented_certificates
from sidecar.metrics.metrics import Observations
from sidecar.metrics.readiness import Readiness
from sidecar.policy_cache.policy_view import PolicyView
from sidecar.policy_cache.replica import FEEDS, Follower
from sidecar.proxy.assembly import Proxy
from sidecar.proxy.tunnel.redirect_check import RedirectCheck
from sidecar.sessions import SessionRegistry
from sidecar.settings.model import SidecarSettings
from sidecar.spool import Spool, State
from sidecar.telemetry.standing_denials import frozen_since
from sidecar.telemetry.status import StatusReporter
from sidecar.tracing.exporter import SpanExporter

# A gauge's number is the position here, so the order is part of the metric (README, Metrics).
_SPOOL_STATES = tuple(State)


def watch_policy_set(metrics: Observations, policies: PolicyView, follower: Follower) -> None:
    policy_set = policies.policy_set
    metrics.gauge(
        "sluice_policy_set_age_seconds",
        "Seconds since it was last confirmed",
        policies.freshness.age,
    )
    metrics.gauge(
        "sluice_policy_set_max_age_seconds",
        "The age beyond which everything is denied",
        lambda: policies.freshness.limit,
    )
    metrics.gauge(
        "sluice_policy_set_revision", "The revision in force", lambda: policy_set.revision
    )
    metrics.gauge(
        "sluice_tenant_frozen",
        "1 if the tenant is frozen, so that everything is denied",
        lambda: float(frozen_since(policy_set) is not None),
    )
    metrics.gauges(
        "sluice_policy_feed",
        "Where the policy set comes from: 1 for the source in use",
        "feed",
        lambda: {feed: float(feed == follower.feed) for feed in FEEDS},
    )
    metrics.count(
        "sluice_policy_set_polls_total", "Polls for the policy set", lambda: follower.polls
    )
    metrics.count(
        "sluice_policy_set_poll_failures_total",
        "Polls without a usable answer",
        lambda: follower.failures,
    )
    metrics.count(
        "sluice_policy_set_forged_total",
        "Data in Redis that the log's key has not signed",
        lambda: follower.forged,
    )


def watch_readiness(metrics: Observations, readiness: Readiness) -> None:
    metrics.gauges(
        "sluice_not_ready",
        "Whether this keeps the sidecar from being ready: 1 or 0",
        "reason",
        readiness.not_ready,
    )


def watch_sessions(metrics: Observations, sessions: SessionRegistry) -> None:
    metrics.counts(
        "sluice_session_claims_total",
        "Session claims, by the state they found.",
        "state",
        lambda: sessions.claims,
    )
    metrics.count(
        "sluice_session_claim_failures_total",
        "Claims without a usable answer",
        lambda: sessions.failures,
    )


def watch_proxy(metrics: Observations, proxy: Proxy) -> None:
    metrics.gauge(
        "sluice_proxy_agent_connections",
        "Open connections of agents",
        lambda: proxy.agent_connections,
    )
    metrics.gauge(
        "sluice_proxy_source_connections",
        "Open connections to data sources",
        lambda: proxy.source_connections,
    )
    metrics.count(
        "sluice_proxy_received_bytes_total", "Bytes received from agents", lambda: proxy.received
    )
    metrics.count("sluice_proxy_sent_bytes_total", "Bytes sent to agents", lambda: proxy.sent)


def watch_redirect(metrics: Observations, check: RedirectCheck) -> None:
    metrics.gauge(
        "sluice_redirect_working",
        "1 while the packet filter leads connections to this sidecar",
        lambda: float(check.problem is None),
    )


def watch_budgets(metrics: Observations, bodies: BodyBudget, connections: ConnectionBudget) -> None:
    metrics.gauge("sluice_body_bytes", "Bytes of request bodies held", lambda: bodies.held)
    metrics.count(
        "sluice_bodies_refused_total",
        "Requests refused because too many body bytes were held",
        lambda: bodies.refused,
    )
    metrics.gauge("sluice_connections", "Connections open to all ports", lambda: connections.open)
    metrics.gauge("sluice_max_connections", "The most there may be", lambda: connections.most)
    metrics.count(
        "sluice_connections_refused_total",
        "Connections ended at once because there were too many",
        lambda: connections.refused,
    )
    metrics.gauge(
        "sluice_unfinished_head_bytes",
        "Bytes held of request heads without an end",
        lambda: connections.head_bytes,
    )
    metrics.count(
        "sluice_unfinished_heads_refused_total",
        "Connections ended because too many bytes of unfinished heads were held",
        lambda: connections.heads_refused,
    )


def watch_enrolment(metrics: Observations, enroller: Enroller, identity: EnrolledIdentity) -> None:
    metrics.gauge(
        "sluice_enrolment_expiry_seconds",
        "Until the enrolled keys expire; 0 without keys",
        lambda: max(0.0, identity.seconds_left) if identity.problem is None else 0.0,
    )
    metrics.count(
        "sluice_own_enrolments_total", "Enrolments and renewals", lambda: enroller.enrolments
    )
    metrics.count(
        "sluice_enrolment_failures_total",
        "Attempts to enrol that brought no keys",
        lambda: enroller.failures,
    )


def watch_reports(metrics: Observations, reporter: StatusReporter) -> None:
    metrics.count(
        "sluice_report_failures_total",
        "Status reports that the control API did not take",
        lambda: reporter.failures,
    )


def watch_log(metrics: Observations, pinned: PinnedCheckpoint) -> None:
    metrics.gauge(
        "sluice_log_forked",
        "1 if the log contradicts the checkpoint that this sidecar has pinned",
        lambda: float(pinned.fork is not None),
    )
    metrics.gauge(
        "sluice_log_origin_changed",
        "1 if the log's checkpoints have another origin than the pinned one",
        lambda: float(pinned.other_origin is not None),
    )


def watch_certificates(metrics: Observations, settings: SidecarSettings, clock: Clock) -> None:
    files = presented_certificates(settings)
    metrics.optional_gauge(
        "sluice_tls_certificate_expiry_seconds",
        "Until the first certificate that this service presents expires.",
        lambda: certificate_seconds_left(files, clock.now()),
    )


def watch_traces(metrics: Observations, exporter: SpanExporter) -> None:
    metrics.count(
        "sluice_spans_exported_total",
        "Spans that the trace collector took",
        lambda: exporter.exported,
    )
    metrics.count(
        "sluice_spans_dropped_total",
        "Spans that the trace collector did not take in time",
        lambda: exporter.failed + exporter.tracer.dropped,
    )


def watch_spool(metrics: Observations, spool: Spool, shipper: Shipper, max_bytes: int) -> None:
    metrics.gauge("sluice_spool_records", "Records on disk, not yet shipped", lambda: spool.depth)
    metrics.gauge("sluice_spool_bytes", "Bytes of all segment files", lambda: spool.bytes_held)
    metrics.gauge(
        "sluice_spool_max_bytes",
        "The most bytes that the segment files may take",
        lambda: max_bytes,
    )
    metrics.gauge(
        "sluice_spool_waiting_bytes",
        "Bytes in memory, not yet on disk",
        lambda: spool.bytes_waiting,
    )
    metrics.gauge("sluice_spool_oldest_seconds", "Age of the oldest record", spool.oldest_age)
    metrics.gauge(
        "sluice_spool_state",
        f"What it takes: {', '.join(f'{i} {state}' for i, state in enumerate(_SPOOL_STATES))}",
        lambda: _SPOOL_STATES.index(spool.state),
    )
    metrics.count("sluice_spool_gaps_total", "Gaps declared", lambda: spool.gaps)
    metrics.count("sluice_spool_lost_records_total", "Records lost", lambda: spool.lost)
    metrics.count("sluice_spool_sync_failures_total", "Failed writes", lambda: spool.sync_failures)
    metrics.count("sluice_shipped_records_total", "Records in the log", lambda: shipper.shipped)
    metrics.count("sluice_shipping_failures_total", "Failed batches", lambda: shipper.failures)
    metrics.count(
        "sluice_shipping_rewinds_total",
        "Times the control API had lost records",
        lambda: shipper.rewinds,
    )
    metrics.count(
        "sluice_shipping_conflicts_total", "Instances set aside", lambda: shipper.conflicts
    )
    metrics.count(
        "sluice_shipping_rejected_records_total",
        "Records that the control API refused",
        lambda: shipper.rejected,
    )
