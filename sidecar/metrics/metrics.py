"""What a sidecar counts and measures: its instruments, declared once. Knows nothing of who counts.

Labels come from closed sets, never from a request: a tenant's, user's or agent's text as a label
would be a leak, and memory that an agent could make grow.
"""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge

from policies import __version__
from policies.checks import NAMES
from policies.evaluate import Decision
from sidecar.metrics.counters import Counter, Durations

SECONDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1)
REFUSALS = (
    "tenant_frozen",
    "policy_set_stale",
    "evaluation_error",
    "audit_unavailable",
    "key_not_valid",
    "unreadable_request",
    "unclassified_route",
    "unresolved_source",
    "route_denied",
    "write_denied",
    "unknown_destination",
    "name_mismatch",
    "no_server_name",
    "encrypted_hello",
)
"""What denies outside the ten checks."""

DENIED_BY = frozenset((*NAMES, *REFUSALS))


@dataclass(frozen=True, slots=True)
class Metrics:
    """The instruments. `registry` is what `/metrics` shows."""

    registry: CollectorRegistry
    decisions: Counter
    """Decisions by answer and check: `none` for an ALLOW, else the check or refusal that denied."""
    reported: Counter
    """Denials that a source in mode `report` let through, by what denied."""
    evaluate_seconds: Durations
    """From a parsed request to its record being in the spool's hands."""
    lineage_lost: Counter
    """Retrieval lineage that the spool had no room for."""
    responses: Counter
    """Answers on the sidecar's own ports, by operation and status."""
    egress_refused: Counter
    """Addresses that a data source's name led to and may not lead to, by why."""
    requests: Counter
    """Requests through the proxy, by kind of source, decision and class of status."""
    upstream_failures: Counter
    """What data sources failed at, by their kind and the cause."""

    def decided(self, decision: Decision, *, let_through: bool = False) -> None:
        """Count one decision; `let_through` is a denial by a source whose mode is `report`."""
        if decision.decision == "ALLOW":
            self.decisions.add("ALLOW", "none")
            return
        check = decision.check or decision.policy_name
        check = check if check in DENIED_BY else "other"
        self.decisions.add("DENY", check)
        if let_through:
            self.reported.add(check)


def make_metrics(registry: CollectorRegistry) -> Metrics:
    """All instruments, registered."""
    build = Gauge("sluice_build_info", "Always 1", ["version"], registry=registry)
    build.labels(__version__).set(1)
    return Metrics(
        registry=registry,
        decisions=Counter(
            "sluice_decisions_total",
            "Evaluations, by outcome and the check that denied.",
            ("decision", "check"),
            registry=registry,
        ),
        reported=Counter(
            "sluice_reported_total",
            "Denials let through by sources in mode `report`, by what denied",
            ("check",),
            registry=registry,
        ),
        evaluate_seconds=Durations(
            "sluice_evaluate_seconds",
            "From a parsed request to its record being in the spool's hands",
            SECONDS,
            registry=registry,
        ),
        lineage_lost=Counter(
            "sluice_lineage_lost_total", "Lineage that found no room", registry=registry
        ),
        responses=Counter(
            "sluice_requests_total",
            "Requests answered, by operation and status.",
            ("operation", "status"),
            registry=registry,
        ),
        egress_refused=Counter(
            "sluice_egress_refused_total",
            "Addresses that a data source's name may not lead to, by why",
            ("reason",),
            registry=registry,
        ),
        requests=Counter(
            "sluice_proxy_requests_total",
            "Requests through the proxy, by kind of source, decision and class of status",
            ("kind", "decision", "status"),
            registry=registry,
        ),
        upstream_failures=Counter(
            "sluice_upstream_failures_total",
            "What data sources failed at, by their kind and the cause",
            ("kind", "cause"),
            registry=registry,
        ),
    )
