"""Defines the dashboard of one agent: the decisions, requests and records of its sidecar."""

from deploy.grafana.board import Board, Graph, Number, Row

_ME = '{instance="$instance"}'
_DENY = '{instance="$instance", decision="DENY"}'

OVERVIEW = Row(
    "Overview",
    (
        Number(
            "Decisions",
            f"sum(rate(sluice_decisions_total{_ME}[5m]))",
            "reqps",
            "Decisions a second.",
        ),
        Number(
            "Denied",
            f"(sum(rate(sluice_decisions_total{_DENY}[5m])) or vector(0))"
            f" / (sum(rate(sluice_decisions_total{_ME}[5m])) > 0)",
            "percentunit",
            "The share of denials among the decisions of the last five minutes.",
            {0.2: "yellow", 0.5: "red"},
        ),
        Number(
            "Policy set",
            f"sluice_policy_set_age_seconds{_ME}",
            "s",
            "Seconds since the policy set was last confirmed.",
        ),
        Number(
            "Revision",
            f"sluice_policy_set_revision{_ME}",
            "none",
            "The revision of the policy set in force.",
        ),
        Number(
            "Waiting records",
            f"sluice_spool_records{_ME}",
            "short",
            "Records that the control API is not known to have.",
        ),
        Number(
            "Spool",
            f"sluice_spool_state{_ME}",
            "none",
            "0 open, 1 denials only, 2 full, 3 unwritable. Above 0, retrievals are denied.",
            {1: "red"},
        ),
    ),
)

DECISIONS = Row(
    "Decisions",
    (
        Graph(
            "Decisions",
            {"{{decision}}": f"sum by (decision) (rate(sluice_decisions_total{_ME}[5m]))"},
            "reqps",
            "Allowed and denied, a second.",
        ),
        Graph(
            "Denials by check",
            {"{{check}}": f"sum by (check) (rate(sluice_decisions_total{_DENY}[5m]))"},
            "reqps",
            "Which check denied, or what denied outside the checks.",
        ),
        Graph(
            "Decision time",
            {
                f"{name} percentile": f"histogram_quantile({share},"
                f" rate(sluice_evaluate_seconds_bucket{_ME}[5m])) > 0"
                for name, share in (("50th", 0.5), ("90th", 0.9), ("99th", 0.99))
            },
            "s",
            "From a parsed request until the spool has its record.",
        ),
        Graph(
            "Denied in mode report",
            {"{{check}}": f"sum by (check) (rate(sluice_reported_total{_ME}[5m]))"},
            "reqps",
            "Requests that enforcement would have denied, and that were forwarded.",
        ),
    ),
)

TRAFFIC = Row(
    "Traffic",
    (
        Graph(
            "Requests through the proxy",
            {
                "{{kind}} {{decision}} {{status}}": "sum by (kind, decision, status)"
                f" (rate(sluice_proxy_requests_total{_ME}[5m]))"
            },
            "reqps",
            "By kind of data source, decision and class of the response's status.",
        ),
        Graph(
            "Failures of data sources",
            {
                "{{kind}} {{cause}}": "sum by (kind, cause)"
                f" (rate(sluice_upstream_failures_total{_ME}[5m]))"
            },
            "reqps",
            "Allowed requests that failed at the data source.",
        ),
        Graph(
            "Bytes",
            {
                "from the agent": f"rate(sluice_proxy_received_bytes_total{_ME}[5m])",
                "to the agent": f"rate(sluice_proxy_sent_bytes_total{_ME}[5m])",
            },
            "Bps",
            "Through the proxy's listeners.",
        ),
        Graph(
            "Connections",
            {
                "of the agent": f"sluice_proxy_agent_connections{_ME}",
                "to data sources": f"sluice_proxy_source_connections{_ME}",
            },
            "short",
            "Open connections, idle ones included.",
        ),
    ),
)

STATE = Row(
    "State",
    (
        Graph(
            "Policy set's age",
            {
                "age": f"sluice_policy_set_age_seconds{_ME}",
                "limit": f"sluice_policy_set_max_age_seconds{_ME}",
            },
            "s",
            "When the age reaches the limit, everything is denied.",
        ),
        Graph(
            "Spool",
            {
                "on disk": f"sluice_spool_bytes{_ME}",
                "limit": f"sluice_spool_max_bytes{_ME}",
            },
            "bytes",
            "Records on disk, and the most there may be.",
        ),
        Graph(
            "Processor",
            {"cores": f"rate(process_cpu_seconds_total{_ME}[5m])"},
            "short",
            "Cores in use.",
        ),
        Graph(
            "Memory",
            {"resident": f"process_resident_memory_bytes{_ME}"},
            "bytes",
            "Resident memory of the sidecar.",
        ),
    ),
)

AGENT = Board(
    "sluice-agent",
    "Sluice: one agent",
    "One sidecar, which serves one agent: its decisions, traffic and state.",
    (OVERVIEW, DECISIONS, TRAFFIC, STATE),
    variable="sluice_policy_set_age_seconds",
)
