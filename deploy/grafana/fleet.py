"""Defines the dashboard of the whole installation: all sidecars, the control API, and the stores
that they share."""

from deploy.grafana.board import Board, Graph, Number, Row

_DECISIONS = "rate(sluice_decisions_total[5m])"
_DENIALS = 'rate(sluice_decisions_total{decision="DENY"}[5m])'
_AGE = "sluice_policy_set_age_seconds / sluice_policy_set_max_age_seconds"
_FILL = "sluice_spool_bytes / sluice_spool_max_bytes"

OVERVIEW = Row(
    "Overview",
    (
        Number(
            "Sidecars",
            # A metric that only sidecars have.
            "count(sluice_policy_set_age_seconds)",
            "short",
            "Sidecars that answer scrapes.",
        ),
        Number(
            "Decisions",
            f"sum({_DECISIONS})",
            "reqps",
            "Decisions a second, of all sidecars and of the control API.",
        ),
        Number(
            "Denied",
            f"(sum({_DENIALS}) or vector(0)) / (sum({_DECISIONS}) > 0)",
            "percentunit",
            "The share of denials among the decisions of the last five minutes.",
            {0.2: "yellow", 0.5: "red"},
        ),
        Number(
            "Oldest policy set",
            f"max({_AGE})",
            "percentunit",
            "The oldest policy set's age, as a share of its limit. At 100% its sidecar denies.",
            {0.5: "yellow", 1: "red"},
        ),
        Number(
            "Fullest spool",
            f"max({_FILL})",
            "percentunit",
            "How full the fullest spool is. At 100% its sidecar denies.",
            {0.5: "yellow", 0.9: "red"},
        ),
        Number(
            "Alerts firing",
            'count(ALERTS{alertname=~"Sluice.*", alertstate="firing"}) or vector(0)',
            "short",
            "Alerts of deploy/prometheus/rules.yaml that fire now.",
            {1: "red"},
        ),
    ),
)

DECISIONS = Row(
    "Decisions",
    (
        Graph(
            "Decisions",
            {"{{decision}}": f"sum by (decision) ({_DECISIONS})"},
            "reqps",
            "Allowed and denied, a second.",
        ),
        Graph(
            "Denials by check",
            {"{{check}}": f"sum by (check) ({_DENIALS})"},
            "reqps",
            "Which check denied, or what denied outside the checks.",
        ),
        Graph(
            "Agents denied most",
            {"{{instance}}": f"topk(10, sum by (instance) ({_DENIALS}))"},
            "reqps",
            "The ten instances with the most denials. A sidecar serves one agent.",
        ),
        Graph(
            "Decision time, 99th percentile",
            {
                "slowest sidecar": "max(histogram_quantile(0.99,"
                " rate(sluice_evaluate_seconds_bucket[5m])) > 0)",
                "control API": "histogram_quantile(0.99, sum by (le)"
                ' (rate(sluice_request_seconds_bucket{operation="evaluate_context"}[5m]))) > 0',
            },
            "s",
            "From a parsed request until its record is stored.",
        ),
    ),
)

POLICY_SETS = Row(
    "Policy sets",
    (
        Graph(
            "Age against the limit",
            {"{{instance}}": f"topk(10, {_AGE})"},
            "percentunit",
            "The ten oldest policy sets. At 100% the sidecar denies everything.",
            limit=1,
        ),
        Graph(
            "Feeds",
            {"{{feed}}": "sum by (feed) (sluice_policy_feed)"},
            "short",
            "Sidecars that get their policy set from Redis, and from the control API.",
        ),
        Graph(
            "Redis behind",
            {"oldest update": "max(sluice_redis_behind_seconds)"},
            "s",
            "How long the oldest update of a policy set has waited for Redis.",
            limit=10,
        ),
        Graph(
            "Forged documents",
            {"all sidecars": "sum(increase(sluice_policy_set_forged_total[5m]))"},
            "short",
            "Data in Redis that the log's key has not signed. Anything here needs someone now.",
        ),
    ),
)

RECORDS = Row(
    "Records",
    (
        Graph(
            "Fullest spools",
            {"{{instance}}": f"topk(10, {_FILL})"},
            "percentunit",
            "The ten fullest spools.",
            limit=1,
        ),
        Graph(
            "Oldest waiting record",
            {"{{instance}}": "topk(10, sluice_spool_oldest_seconds)"},
            "s",
            "The age of the oldest record that the control API is not known to have.",
            limit=600,
        ),
        Graph(
            "Records shipped",
            {
                "shipped": "sum(rate(sluice_shipped_records_total[5m]))",
                "failed batches": "sum(rate(sluice_shipping_failures_total[5m]))",
            },
            "cps",
            "Records that reached the audit trail, and batches that did not, a second.",
        ),
        Graph(
            "Records lost",
            {
                "records": "sum(increase(sluice_spool_lost_records_total[5m]))",
                "lineage": "sum(increase(sluice_lineage_lost_total[5m]))",
            },
            "short",
            "Losses of the last five minutes. The audit trail declares each gap.",
        ),
    ),
)

CONTROL_API = Row(
    "Control API",
    (
        Graph(
            "Requests",
            {"{{operation}}": "topk(10, sum by (operation) (rate(sluice_requests_total[5m])))"},
            "reqps",
            "The ten operations requested most, of both services.",
        ),
        Graph(
            "Callers refused",
            {"{{reason}}": "sum by (reason) (rate(sluice_refusals_total[5m]))"},
            "reqps",
            "Requests without a valid key, by reason.",
        ),
        Graph(
            "Memory",
            {"{{instance}}": "process_resident_memory_bytes and on (instance) sluice_build_info"},
            "bytes",
            "Resident memory of each service.",
        ),
        Graph(
            "Expiry",
            {
                "certificate of {{instance}}": "sluice_tls_certificate_expiry_seconds",
                "next API key": "min(sluice_key_expiry_seconds)",
            },
            "s",
            "Until the next certificate and the next API key expire.",
        ),
    ),
)

KUBERNETES = Row(
    "Kubernetes",
    (
        Graph(
            "Pods reviewed",
            {"{{outcome}}": "sum by (outcome) (rate(sluice_injection_responses_total[5m]))"},
            "reqps",
            "Pods that the webhook injected, skipped or refused.",
        ),
        Graph(
            "Enrolments",
            {"{{outcome}}": "sum by (outcome) (rate(sluice_enrolments_total[5m]))"},
            "reqps",
            "Sidecars that got keys, wait for approval, or presented a token that gets nothing.",
        ),
        Graph(
            "Pods without their packet filter",
            {"pods": "count(sluice_redirect_working == 0) or vector(0)"},
            "short",
            "Pods whose agent could pass its sidecar by. Anything above 0 needs someone now.",
        ),
        Graph(
            "Webhook's certificate",
            {"{{instance}}": "sluice_webhook_certificate_expiry_seconds"},
            "s",
            "Until the webhook's certificate expires. It is replaced long before.",
        ),
    ),
)

FLEET = Board(
    "sluice-fleet",
    "Sluice: fleet",
    "All sidecars and the control API: decisions, policy sets, records and expiry.",
    (OVERVIEW, DECISIONS, POLICY_SETS, RECORDS, CONTROL_API, KUBERNETES),
)
