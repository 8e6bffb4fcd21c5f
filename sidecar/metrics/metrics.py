"""The sidecar's counters and histograms, declared once. Knows nothing of the parts that use them.

Label values come from closed sets, never from a request: a tenant's, user's or agent's text as a
label would leak it, and would let an agent make memory grow.
"""

from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from policies import __version__
from policies.checks.order import NAMES
from policies.evaluate import Decision
from sidecar.metrics.counters import Counter, Durations

# Finest where decisions are: most take tens of microseconds.
SECONDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1)
REFUSALS = (
    "tenant_frozen",
    "policy_set_stale",
    "evaluation_error",
    "audit_unavailable",
    "key_not_valid",
    "not_enrolled",
    "agent_not_approved",
    "unreadable_request",
    "unmapped_request",
    "unclassified_route",
    "unresolved_source",
    "route_denied",
    "write_denied",
    "unknown_destination",
    "foreign_origin",
    "name_mismatch",
    "no_server_name",
    "encrypted_hello",
)
"""The names under which retrievals are denied outside the ten checks."""

DENIED_BY = frozenset((*NAMES, *REFUSALS))


class Metrics:
    """The counters and histograms. `/metrics` shows `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        build = Gauge("sluice_build_info", "Always 1", ["version"], registry=registry)
        build.labels(__version__).set(1)
        counter = partial(Counter, registry=registry)
        # The label `check` is `none` for an ALLOW, otherwise the check or refusal that denied.
        self.decisions = counter(
            "sluice_decisions_total",
            "Evaluations, by outcome and the check that denied.",
            ("decision", "check"),
        )
        # The way in is an operation of the sidecar's own port, a check door's protocol, or `proxy`.
        self.by_way = counter(
            "sluice_decisions_by_way_total",
            "Evaluations, by the way in which the request came and by outcome",
            ("way", "decision"),
        )
        self.refused_keys = counter(
            "sluice_refused_keys_total",
            "Calls refused for the key that they carry or lack, by the way in and the reason",
            ("way", "reason"),
        )
        self.reported = counter(
            "sluice_reported_total",
            "Denials by sources in mode `report`, which forwarded the request, by check",
            ("check",),
        )
        self.evaluate_seconds = Durations(
            "sluice_evaluate_seconds",
            "From a parsed request until the spool has its record",
            SECONDS,
            registry=registry,
        )
        self.lineage_lost = counter(
            "sluice_lineage_lost_total", "Retrieval lineage that did not fit in the spool"
        )
        # Requests on the sidecar's own ports; `requests` below counts those of the proxy.
        self.responses = counter(
            "sluice_requests_total",
            "Requests answered, by operation and status.",
            ("operation", "status"),
        )
        self.foreign_requests = counter(
            "sluice_foreign_requests_total",
            "Requests refused at ports without a key: for another host, or of another site's page",
            ("cause",),
        )
        self.grpc_checks = counter(
            "sluice_grpc_checks_total",
            "Answers of gRPC check doors, by the code of their status",
            ("code",),
        )
        self.egress_refused = counter(
            "sluice_egress_refused_total",
            "Addresses that a data source's name resolved to and that are not allowed",
            ("reason",),
        )
        self.requests = counter(
            "sluice_proxy_requests_total",
            "Requests through the proxy, by kind of source, decision and class of status",
            ("kind", "decision", "status"),
        )
        self.upstream_failures = counter(
            "sluice_upstream_failures_total",
            "Failures of data sources, by kind and cause",
            ("kind", "cause"),
        )

    def decided(self, decision: Decision, *, report_only: bool = False) -> None:
        """Count one decision. `report_only`: a denial by a source in mode `report`."""
        if decision.decision == "ALLOW":
            self.decisions.add("ALLOW", "none")
            return
        check = denied_by(decision)
        self.decisions.add("DENY", check)
        if report_only:
            self.reported.add(check)


def denied_by(decision: Decision) -> str:
    """Return the check or the refusal that denied."""
    # Outside the ten checks, the refusal's name is where a policy's would be. That may be a
    # tenant's text, which must not become a label.
    check = decision.check or decision.policy_name
    return check if check in DENIED_BY else "other"
