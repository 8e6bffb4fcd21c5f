"""The chart brings the rules and dashboards of the repository, unchanged."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.deploy.helm.chart import CHART, ROOT, find, rendered

COPIES = {
    "rules.yaml": ROOT / "deploy" / "prometheus" / "rules.yaml",
    "fleet.json": ROOT / "deploy" / "grafana" / "fleet.json",
    "agent.json": ROOT / "deploy" / "grafana" / "agent.json",
}
ON = {"serviceMonitors": True, "rules": True, "dashboards": True, "labels": {"release": "p"}}


@pytest.mark.parametrize("name", COPIES)
def test_files_in_the_chart_are_exact_copies(name: str) -> None:
    """Helm reads only files inside a chart, and a link would not survive its packaging."""
    copy = CHART / "files" / name
    assert copy.read_bytes() == COPIES[name].read_bytes(), f"cp {COPIES[name]} {copy}"


@pytest.mark.deep(stands_in="test_rules_dashboards_and_scrapes_are_rendered_whole")
def test_nothing_is_monitored_by_default() -> None:
    kinds = {each["kind"] for each in rendered({})}
    assert not kinds & {"ServiceMonitor", "PodMonitor", "PrometheusRule"}


def test_rules_dashboards_and_scrapes_are_rendered_whole() -> None:
    kinds = {each["kind"] for each in rendered({})}
    assert not kinds & {"ServiceMonitor", "PodMonitor", "PrometheusRule"}, "not asked for"
    manifests = rendered({"monitoring": ON})
    rules = find(manifests, "PrometheusRule", "sluice")
    assert rules["spec"] == yaml.safe_load(COPIES["rules.yaml"].read_text())
    boards = find(manifests, "ConfigMap", "sluice-dashboards")
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    for name in ("fleet", "agent"):
        board = json.loads(boards["data"][f"sluice-{name}.json"])
        assert board == json.loads(COPIES[f"{name}.json"].read_text())
    for kind, name in (
        ("ServiceMonitor", "sluice-control"),
        ("ServiceMonitor", "sluice-webhook"),
        ("PodMonitor", "sluice-sidecars"),
    ):
        found = find(manifests, kind, name)
        assert found["metadata"]["labels"]["release"] == "p"
    # An operator's ServiceMonitor names a job after the Service, a PodMonitor after itself.
    [sidecars] = find(manifests, "PodMonitor", "sluice-sidecars")["spec"]["podMetricsEndpoints"]
    assert sidecars["relabelings"] == [{"targetLabel": "job", "replacement": "sluice-sidecar"}]
    # The port that is scraped is one of the Service's.
    for component in ("control", "webhook"):
        monitor = find(manifests, "ServiceMonitor", f"sluice-{component}")["spec"]
        service = find(manifests, "Service", f"sluice-{component}")
        ports = {each["name"] for each in service["spec"]["ports"]}
        assert {each["port"] for each in monitor["endpoints"]} <= ports
        labels = service["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
