"""The tables of the README, of INTERNALS.md and of OPERATIONS.md are the code's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics import MetricWrapperBase

import control_api
from control_api.alerts.queries import RuleType
from control_api.metrics.labels import (
    Challenge,
    DeliveryOutcome,
    Ingest,
    Pushing,
    RefusalReason,
    Reload,
    SessionPush,
    Signing,
)
from control_api.metrics.metrics import ConnectionMetrics, Instruments
from control_api.routes import ROUTES
from control_api.settings import names
from policies.ground.connection_budget import ConnectionBudget

assert control_api.__file__ is not None
PACKAGE = Path(control_api.__file__).parent
README = (PACKAGE / "README.md").read_text()
INTERNALS = (PACKAGE / "INTERNALS.md").read_text()
OPERATIONS = (PACKAGE / "OPERATIONS.md").read_text()
LABELS = {
    "refusals": RefusalReason,
    "reloads": Reload,
    "checkpoints": Signing,
    "redis_pushes": Pushing,
    "redis_challenges": Challenge,
    "redis_sessions": SessionPush,
    "ingested": Ingest,
    "alert_deliveries": DeliveryOutcome,
}


def table(heading: str, page: str = README) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_routes_is_complete() -> None:
    assert table("Routes", OPERATIONS) == [
        [
            route.method,
            f"`{route.path}`",
            ", ".join(sorted(route.scopes)) if route.scopes else "–",
            f"`{route.name}`",
        ]
        for route in ROUTES
    ]


def test_the_table_of_settings_is_complete() -> None:
    listed = [row[0].strip("`") for row in table("Settings")]
    assert listed == [*names(), "SLUICE_MIGRATE_DATABASE_URL"]


def test_each_type_of_alert_rule_is_in_both_tables_and_described_in_the_console() -> None:
    types = {*get_args(RuleType)}
    for page, heading in (("alerts/README.md", "Choose a rule"), ("CONTRACT.md", "Alerts")):
        rows = table(heading, (PACKAGE / page).read_text())
        assert {row[0].strip("`") for row in rows} == types, page
    # The page of a rule without words is an error.
    parts = (PACKAGE / "console/templates/alerts/parts.html").read_text()
    assert {*re.findall(r'^  "(\w+)": ', parts, re.MULTILINE)} == types


def test_the_table_of_metrics_is_complete() -> None:
    exposed = exposed_metrics()
    rows = table("Metrics")
    assert {row[0].strip("`") for row in rows} == exposed.keys()
    for name, labels, counts in rows:
        given = re.findall(r"`(\w+)`", labels)
        assert takes_labels(exposed[name.strip("`")], given), name
        for part, values in LABELS.items():
            if part in name:
                assert re.findall(r"`(\w+)`", counts) == [each.value for each in values]


def exposed_metrics() -> dict[str, MetricWrapperBase]:
    """Our own metrics, by the name of the family that a scrape shows."""
    instruments = Instruments(CollectorRegistry())
    groups: tuple[object, ...] = (instruments, instruments.http, instruments.decisions)
    groups += (instruments.jobs, instruments.enrolment, instruments.redis, instruments.witnesses)
    groups += (instruments.checkpoints, instruments.exports)
    metrics = [each for group in groups for each in vars(group).values()]
    read = ConnectionMetrics(CollectorRegistry(), ConnectionBudget(1)).collect()
    unlabelled = Gauge("unlabelled", "None of ours.", registry=None)
    of_connections = {
        family.name + ("_total" if family.type == "counter" else ""): unlabelled for family in read
    }
    return of_connections | {
        family.name + ("_total" if family.type == "counter" else ""): metric
        for metric in metrics
        if isinstance(metric, MetricWrapperBase)
        for family in metric.describe()
    }


def takes_labels(metric: MetricWrapperBase, names: list[str]) -> bool:
    """Whether the samples have exactly these labels; `labels` raises if it expects others."""
    if names:
        metric.labels(**dict.fromkeys(names, "any"))
    samples = [sample for family in metric.collect() for sample in family.samples]
    # A gauge may have no sample yet; then its declaration counts.
    if not samples:
        return not names
    return all({*sample.labels} - {"le"} == {*names} for sample in samples)


def test_every_file_and_folder_is_in_the_table() -> None:
    listed = set(
        re.findall(r"`([\w/]+(?:\.py|/))`", "\n".join(row[0] for row in table("Files", INTERNALS)))
    )
    found = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    found |= {f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert listed == found


def test_an_operation_belongs_to_an_operations_module_and_has_a_summary() -> None:
    for route in ROUTES:
        assert route.summary.endswith("."), route.name
        module = route.operation.__module__
        assert module.endswith("operations") or module == "control_api.service"
