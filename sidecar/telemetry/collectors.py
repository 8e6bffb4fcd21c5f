"""What `/metrics` shows of the parts that count for themselves. Knows their names and meaning."""

from policies.sets.policy_set import PolicySet
from sidecar.control.shipper import Shipper
from sidecar.http.body_budget import BodyBudget
from sidecar.metrics.counters import Observations
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.replica import FEEDS, Following
from sidecar.proxy.assembly import Proxy
from sidecar.sessions import SessionRegistry
from sidecar.spool import Spool, State
from sidecar.telemetry.status_reporter import StatusReporter

_STATES = tuple(State)


def watch_policy_set(
    watches: Observations, policy_set: PolicySet, freshness: Freshness, follower: Following
) -> None:
    watches.gauge("sluice_policy_set_age_seconds", "Since it was known current", freshness.age)
    watches.gauge(
        "sluice_policy_set_revision", "The revision in force", lambda: policy_set.revision
    )
    watches.gauges(
        "sluice_policy_feed",
        "Where the policy set comes from: 1 for the way in use",
        "feed",
        lambda: {feed: float(feed == follower.feed) for feed in FEEDS},
    )
    watches.count("sluice_policy_set_polls_total", "Polls for it", lambda: follower.polls)
    watches.count(
        "sluice_policy_set_poll_failures_total",
        "Polls without a usable answer",
        lambda: follower.failures,
    )
    watches.count(
        "sluice_policy_set_forged_total",
        "Found in Redis and not signed by the log's key",
        lambda: follower.forged,
    )


def watch_sessions(watches: Observations, sessions: SessionRegistry) -> None:
    watches.counts(
        "sluice_session_claims_total",
        "Session claims, by the state they found.",
        "state",
        lambda: sessions.claims,
    )
    watches.count(
        "sluice_session_claim_failures_total",
        "Claims without a usable answer",
        lambda: sessions.failures,
    )


def watch_proxy(watches: Observations, ways: Proxy) -> None:
    watches.gauge(
        "sluice_proxy_agent_connections",
        "Open connections of agents",
        lambda: ways.agent_connections,
    )
    watches.gauge(
        "sluice_proxy_source_connections",
        "Open connections to data sources",
        lambda: ways.source_connections,
    )
    watches.count(
        "sluice_proxy_received_bytes_total", "Bytes that came from agents", lambda: ways.received
    )
    watches.count("sluice_proxy_sent_bytes_total", "Bytes that went to agents", lambda: ways.sent)


def watch_bodies(watches: Observations, bodies: BodyBudget) -> None:
    watches.gauge("sluice_body_bytes", "Held of request bodies", lambda: bodies.held)
    watches.count(
        "sluice_bodies_refused_total",
        "Requests turned away since too many bodies were held",
        lambda: bodies.refused,
    )


def watch_reports(watches: Observations, reporter: StatusReporter) -> None:
    watches.count(
        "sluice_report_failures_total",
        "Reports to the centre that were not taken",
        lambda: reporter.failures,
    )


def watch_spool(watches: Observations, spool: Spool, shipper: Shipper) -> None:
    watches.gauge("sluice_spool_records", "On disk, not yet shipped", lambda: spool.depth)
    watches.gauge("sluice_spool_bytes", "Of all segment files", lambda: spool.bytes_held)
    watches.gauge(
        "sluice_spool_waiting_bytes", "In memory, not yet on disk", lambda: spool.bytes_waiting
    )
    watches.gauge("sluice_spool_oldest_seconds", "Age of the oldest record", spool.oldest_age)
    watches.gauge(
        "sluice_spool_state",
        f"What it takes: {', '.join(f'{i} {state}' for i, state in enumerate(_STATES))}",
        lambda: _STATES.index(spool.state),
    )
    watches.count("sluice_spool_gaps_total", "Gaps declared", lambda: spool.gaps)
    watches.count("sluice_spool_lost_records_total", "Records lost", lambda: spool.lost)
    watches.count("sluice_spool_sync_failures_total", "Failed writes", lambda: spool.sync_failures)
    watches.count("sluice_shipped_records_total", "Records in the log", lambda: shipper.shipped)
    watches.count("sluice_shipping_failures_total", "Failed batches", lambda: shipper.failures)
    watches.count(
        "sluice_shipping_rewinds_total",
        "Times that the control API had lost what it had",
        lambda: shipper.rewinds,
    )
    watches.count(
        "sluice_shipping_conflicts_total", "Instances set aside", lambda: shipper.conflicts
    )
