"""Registers the metrics of parts that keep their own counts. They are read at each scrape."""

from collections.abc import Callable

from policies.ground.clock import Clock
from policies.ground.connection_budget import ConnectionBudget
from sidecar.control.enroller import Enroller
from sidecar.control.identity import EnrolledIdentity
from sidecar.control.log_client import PinnedCheckpoint
from sidecar.control.shipper import Shipper
from sidecar.http.http2.frame_limits import Cause
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
from sidecar.tracing import SpanExporter

Row = tuple[str, str, Callable[[], float]]
"""A metric's name, its description, and the function that reads its value."""

# A gauge's number is the position here, so the order is part of the metric (README, Metrics).
_SPOOL_STATES = tuple(State)


def _watch(metrics: Observations, gauges: tuple[Row, ...], counts: tuple[Row, ...] = ()) -> None:
    for row in gauges:
        metrics.gauge(*row)
    for row in counts:
        metrics.count(*row)


def watch_policy_set(metrics: Observations, policies: PolicyView, follower: Follower) -> None:
    policy_set, freshness = policies.policy_set, policies.freshness
    _watch(metrics, (
        ("sluice_policy_set_age_seconds", "Seconds since it was last confirmed", freshness.age),
        ("sluice_policy_set_max_age_seconds", "The age beyond which everything is denied",
            lambda: freshness.limit),
        ("sluice_policy_set_revision", "The revision in force", lambda: policy_set.revision),
        ("sluice_tenant_frozen", "1 if the tenant is frozen, so that everything is denied",
            lambda: float(frozen_since(policy_set) is not None)),
    ), (
        ("sluice_policy_set_polls_total", "Polls for the policy set", lambda: follower.polls),
        ("sluice_policy_set_poll_failures_total", "Polls without a usable answer",
            lambda: follower.failures),
        ("sluice_policy_set_forged_total", "Data in Redis that the log's key has not signed",
            lambda: follower.forged),
    ))  # fmt: skip
    metrics.gauges(
        "sluice_policy_feed",
        "Where the policy set comes from: 1 for the source in use",
        "feed",
        lambda: {feed: float(feed == follower.feed) for feed in FEEDS},
    )


def watch_readiness(metrics: Observations, readiness: Readiness) -> None:
    about = "Whether this keeps the sidecar from being ready: 1 or 0"
    metrics.gauges("sluice_not_ready", about, "reason", readiness.not_ready)


def watch_sessions(metrics: Observations, sessions: SessionRegistry) -> None:
    about = "Session claims, by the state they found."
    metrics.counts("sluice_session_claims_total", about, "state", lambda: sessions.claims)
    about = "Claims without a usable answer"
    metrics.count("sluice_session_claim_failures_total", about, lambda: sessions.failures)


def watch_proxy(metrics: Observations, proxy: Proxy) -> None:
    _watch(metrics, (
        ("sluice_proxy_agent_connections", "Open connections of agents",
            lambda: proxy.agent_connections),
        ("sluice_proxy_source_connections", "Open connections to data sources",
            lambda: proxy.source_connections),
    ), (
        ("sluice_proxy_received_bytes_total", "Bytes received from agents", lambda: proxy.received),
        ("sluice_proxy_sent_bytes_total", "Bytes sent to agents", lambda: proxy.sent),
    ))  # fmt: skip


def watch_redirect(metrics: Observations, check: RedirectCheck) -> None:
    about = "1 while the packet filter leads connections to this sidecar"
    metrics.gauge("sluice_redirect_working", about, lambda: float(check.problem is None))


def watch_budgets(metrics: Observations, bodies: BodyBudget, connections: ConnectionBudget) -> None:
    _watch(metrics, (
        ("sluice_body_bytes", "Bytes of request bodies held", lambda: bodies.held),
        ("sluice_connections", "Connections open to all ports", lambda: connections.open),
        ("sluice_max_connections", "The most there may be", lambda: connections.most),
        ("sluice_unfinished_head_bytes", "Bytes held of request heads without an end",
            lambda: connections.head_bytes),
    ), (
        ("sluice_bodies_refused_total", "Requests refused because too many body bytes were held",
            lambda: bodies.refused),
        ("sluice_connections_refused_total",
            "Connections ended at once because there were too many", lambda: connections.refused),
        ("sluice_unfinished_heads_refused_total",
            "Connections ended because too many bytes of unfinished heads were held",
            lambda: connections.heads_refused),
    ))  # fmt: skip
    metrics.counts(
        "sluice_http2_cut_off_total",
        "Connections of HTTP/2 ended because of what their client did, by cause",
        "cause",
        lambda: {each.value: connections.cut_off.get(each.value, 0) for each in Cause},
    )


def watch_enrolment(metrics: Observations, enroller: Enroller, identity: EnrolledIdentity) -> None:
    _watch(metrics, (
        ("sluice_enrolment_expiry_seconds", "Until the enrolled keys expire; 0 without keys",
            lambda: max(0.0, identity.seconds_left) if identity.problem is None else 0.0),
    ), (
        ("sluice_own_enrolments_total", "Enrolments and renewals", lambda: enroller.enrolments),
        ("sluice_enrolment_failures_total", "Attempts to enrol that brought no keys",
            lambda: enroller.failures),
    ))  # fmt: skip


def watch_reports(metrics: Observations, reporter: StatusReporter) -> None:
    about = "Status reports that the control API did not take"
    metrics.count("sluice_report_failures_total", about, lambda: reporter.failures)


def watch_log(metrics: Observations, pinned: PinnedCheckpoint) -> None:
    _watch(metrics, (
        ("sluice_log_forked",
            "1 if the log contradicts the checkpoint that this sidecar has pinned",
            lambda: float(pinned.fork is not None)),
        ("sluice_log_origin_changed",
            "1 if the log's checkpoints have another origin than the pinned one",
            lambda: float(pinned.other_origin is not None)),
    ))  # fmt: skip


def watch_certificates(metrics: Observations, settings: SidecarSettings, clock: Clock) -> None:
    files = presented_certificates(settings)
    metrics.optional_gauge(
        "sluice_tls_certificate_expiry_seconds",
        "Until the first certificate that this service presents expires.",
        lambda: certificate_seconds_left(files, clock.now()),
    )


def watch_traces(metrics: Observations, exporter: SpanExporter) -> None:
    _watch(metrics, (), (
        ("sluice_spans_exported_total", "Spans that the trace collector took",
            lambda: exporter.exported),
        ("sluice_spans_dropped_total", "Spans that the trace collector did not take in time",
            lambda: exporter.failed + exporter.tracer.dropped),
    ))  # fmt: skip


def watch_spool(metrics: Observations, spool: Spool, shipper: Shipper, max_bytes: int) -> None:
    states = ", ".join(f"{i} {state}" for i, state in enumerate(_SPOOL_STATES))
    _watch(metrics, (
        ("sluice_spool_records", "Records on disk, not yet shipped", lambda: spool.depth),
        ("sluice_spool_bytes", "Bytes of all segment files", lambda: spool.bytes_held),
        ("sluice_spool_max_bytes", "The most bytes that the segment files may take",
            lambda: max_bytes),
        ("sluice_spool_waiting_bytes", "Bytes in memory, not yet on disk",
            lambda: spool.bytes_waiting),
        ("sluice_spool_oldest_seconds", "Age of the oldest record", spool.oldest_age),
        ("sluice_spool_state", f"What it takes: {states}",
            lambda: _SPOOL_STATES.index(spool.state)),
    ), (
        ("sluice_spool_gaps_total", "Gaps declared", lambda: spool.gaps),
        ("sluice_spool_lost_records_total", "Records lost", lambda: spool.lost),
        ("sluice_spool_sync_failures_total", "Failed writes", lambda: spool.sync_failures),
        ("sluice_shipped_records_total", "Records in the log", lambda: shipper.shipped),
        ("sluice_shipping_failures_total", "Failed batches", lambda: shipper.failures),
        ("sluice_shipping_rewinds_total", "Times the control API had lost records",
            lambda: shipper.rewinds),
        ("sluice_shipping_conflicts_total", "Instances set aside", lambda: shipper.conflicts),
        ("sluice_shipping_rejected_records_total", "Records that the control API refused",
            lambda: shipper.rejected),
    ))  # fmt: skip
