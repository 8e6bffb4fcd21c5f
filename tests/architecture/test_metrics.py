"""What both services count has one name and the same labels in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from control_api.http.routes import ROUTES
from control_api.metrics.metrics import Instruments
from sidecar.metrics.counters import Counter
from tests.sidecar.fake_control_api import fake_control_api
from tests.sidecar.stand import sidecar

SAME = {
    "sluice_build_info": ("version",),
    "sluice_decisions": ("decision", "check"),
    "sluice_requests": ("operation", "status"),
    "sluice_session_claims": ("state",),
}
"""Of both services; a counter's name is without its `_total`."""
ONLY_PROCESS = "process_"


def families(registry: CollectorRegistry) -> dict[str, tuple[str, str]]:
    """The kind and the documentation of each family."""
    return {
        family.name: (family.type, family.documentation.rstrip("."))
        for family in registry.collect()
    }


def labels(instrument: Any) -> tuple[str, ...]:
    return tuple(instrument._labels if isinstance(instrument, Counter) else instrument._labelnames)


async def test_the_same_fact_has_the_same_name_and_labels(tmp_path: Path) -> None:
    ours = CollectorRegistry()
    instruments = Instruments.register(ours)
    control = families(ours)
    async with fake_control_api() as fake:
        fake.furnish()
        async with sidecar(tmp_path, fake) as stand:
            theirs = stand.parts.metrics.registry
            beside = families(theirs)
            shared = {name for name in control.keys() & beside if not name.startswith(ONLY_PROCESS)}
            assert shared == SAME.keys()
            assert any(name.startswith(ONLY_PROCESS) for name in control.keys() & beside)
            for name in shared:
                assert control[name] == beside[name]
            await stand.evaluate()
            await stand.evaluate(session_id="s-1")
            found = {
                (family.name, tuple(sample.labels))
                for family in theirs.collect()
                for sample in family.samples
                if family.name in SAME
            }
            assert {(name, tuple(sorted(wanted))) for name, wanted in SAME.items()} == {
                (name, tuple(sorted(given))) for name, given in found
            }
    assert labels(instruments.decisions.decisions) == SAME["sluice_decisions"]
    assert labels(instruments.http.requests) == SAME["sluice_requests"]
    assert labels(instruments.decisions.sessions) == SAME["sluice_session_claims"]


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
