"""The dashboards are those that the code describes, and a real Prometheus answers their queries."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.__main__ import FILES, FOLDER, rendered
from deploy.grafana.agent import AGENT
from deploy.grafana.board import Board, Graph
from deploy.grafana.fleet import FLEET
from tests.architecture.tree import ROOT
from tests.deploy.prometheus.server import Prometheus, prometheus
from tests.support import redis
from tests.support.redis import running_redis
from tests.support.stack import Stack, running_stack

BOARDS = [FLEET, AGENT]


def queries(board: Board) -> Iterator[tuple[str, str]]:
    """Title of the panel, and each of its queries."""
    for row in board.rows:
        for panel in row.panels:
            found = panel.queries.values() if isinstance(panel, Graph) else [panel.query]
            for query in found:
                yield panel.title, query


# What has no sample without Kubernetes, a certificate, a key with an expiry, a refused caller or
# proxied traffic. Their metrics' names are checked by `test_the_rules_use_metrics_that_exist`.
EMPTY_AT_FIRST = {
    "Enrolments",
    "Pods reviewed",
    "Webhook's certificate",
    "Callers refused",
    "Denied in mode report",
    "Expiry",
    "Failures of data sources",
    "Requests through the proxy",
}


def test_the_generated_files_are_up_to_date() -> None:
    for path, board in FILES.items():
        assert path.read_text() == rendered(board), "run `python -m deploy.grafana`"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_grafana_s_own_model_reads_the_dashboard(board: Board) -> None:
    raw = json.loads(rendered(board))
    read = Dashboard.from_json(raw)
    assert read.uid == board.uid
    assert len(read.panels or []) == sum(1 + len(row.panels) for row in board.rows)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in raw["panels"] if p["type"] != "row"]
    assert len(set(places)) == len(places), "panels lie on each other"


def test_provisioning_loads_the_dashboards_from_the_mounted_folder() -> None:
    folder = FOLDER / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    (source,) = yaml.safe_load((folder / "datasources.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Stack]]:
    folder = tmp_path_factory.mktemp("dashboards")
    with (
        running_redis(folder / "redis") as server,
        running_stack(folder / "stack", redis_url=server.url) as stack,
    ):
        for source in ("handbook", "payroll") * 5:
            assert stack.evaluate(source_id=source)[0] == 200
            stack.admin("POST", "/v1/context/evaluate", stack.ask(source_id=source))
        targets = {"sluice-control": stack.control.port, "sluice-sidecar": stack.sidecar.port}
        with prometheus(folder / "prometheus", targets) as watching:
            # Rates need samples on both sides of a change.
            for source in ("handbook", "payroll") * 5:
                assert stack.evaluate(source_id=source)[0] == 200
                stack.admin("POST", "/v1/context/evaluate", stack.ask(source_id=source))
            for job in targets:
                watching.wait_for(f'sum(rate(sluice_decisions_total{{job="{job}"}}[1m])) > 0')
            yield watching, stack


@redis.needs_redis
@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_prometheus_answers_every_query(scraped: tuple[Prometheus, Stack], board: Board) -> None:
    server, stack = scraped
    empty = set()
    for title, query in queries(board):
        asked = query.replace("$instance", f"127.0.0.1:{stack.sidecar.port}")
        if not server.query(asked):
            empty.add(title)
    assert empty <= EMPTY_AT_FIRST


@redis.needs_redis
def test_prometheus_loads_the_rules_and_no_alert_fires_on_a_healthy_installation(
    scraped: tuple[Prometheus, Stack],
) -> None:
    server, _ = scraped
    groups = server.get("/api/v1/rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 20
    assert not [rule for rule in rules if rule.get("lastError")]
    assert not [rule["name"] for rule in rules if rule.get("state") == "firing"]


def test_the_module_writes_both_files_beside_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "__main__.py"
    shutil.copy(ROOT / "deploy/grafana/__main__.py", module)
    runpy.run_path(str(module), run_name="__main__")
    assert capsys.readouterr().out.split() == ["fleet.json", "agent.json"]
    for name in ("fleet.json", "agent.json"):
        assert (tmp_path / name).read_bytes() == (ROOT / "deploy/grafana" / name).read_bytes()
