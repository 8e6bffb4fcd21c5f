"""What both services count has one name and the same labels in both."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from control_api.metrics.metrics import Instruments
from control_api.routes import ROUTES
from tests.support.fake_control_api import fake_control_api
from tests.support.sidecar import running_sidecar

SAME = {
    "sluice_build_info": ("version",),
    "sluice_decisions": ("decision", "check"),
    "sluice_requests": ("operation", "status"),
    "sluice_session_claims": ("state",),
}
"""Of both services; a counter's name is without its `_total`."""
WITHOUT_SAMPLES = {"sluice_tls_certificate_expiry_seconds"}
"""Of both services, which have no certificate here."""
ONLY_PROCESS = "process_"


def families(scraped: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(scraped)}


def described(family: Metric) -> tuple[str, str]:
    return family.type, family.documentation.rstrip(".")


def labels(family: Metric) -> set[tuple[str, ...]]:
    return {tuple(sorted(sample.labels)) for sample in family.samples}


async def test_the_same_fact_has_the_same_name_and_labels(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    instruments = Instruments(registry)
    instruments.decisions.decided("ALLOW", "none").inc()
    instruments.decisions.sessions.labels("active").inc()
    instruments.http.requests.labels("evaluate_context", 200).inc()
    control = families(generate_latest(registry).decode())
    async with fake_control_api() as fake:
        fake.create_tenant()
        async with running_sidecar(tmp_path, fake) as running:
            await running.evaluate()
            await running.evaluate(session_id="s-1")
            beside = families((await running.call("GET", "/metrics", key=None)).text())
    both = control.keys() & beside
    ours = {name for name in both if not name.startswith(ONLY_PROCESS)}
    assert ours == SAME.keys() | WITHOUT_SAMPLES
    assert any(name.startswith(ONLY_PROCESS) for name in both)
    assert all(described(control[name]) == described(beside[name]) for name in ours)
    for name, expected in SAME.items():
        assert labels(control[name]) == labels(beside[name]) == {tuple(sorted(expected))}


def test_operations_that_both_services_have_are_called_the_same() -> None:
    operations = {route.name for route in ROUTES}
    both = {
        "evaluate_context",
        "evaluate_batch",
        "show_liveness",
        "show_readiness",
        "show_metrics",
    }
    assert both <= operations
    text = (Path(__file__).parents[2] / "sidecar/api/handlers.py").read_text()
    for name in both:
        assert f'"{name}"' in text
