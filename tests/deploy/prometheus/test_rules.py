"""The alerting rules are valid, tested and explained, and use metrics that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.test_readmes import metrics
from tests.architecture.tree import ROOT
from tests.servers import need
from tests.support.control_api import running_control_api
from tests.support.fake_control_api import fake_control_api
from tests.support.sidecar import running_sidecar

FOLDER = ROOT / "deploy/prometheus"
RULES = FOLDER / "rules.yaml"
UNIT_TESTS = Path(__file__).parent / "rules.test.yaml"


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = [rule for rule in rules() if "alert" in rule]


def promtool(*arguments: str | Path, scraped: str | None = None) -> None:
    done = subprocess.run(
        [need("promtool"), *arguments],
        check=False,
        input=scraped,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_s_commands_pass() -> None:
    program = need("promtool")
    readme = (FOLDER / "README.md").read_text()
    (block,) = re.findall(r"^```sh\n# prometheus\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        ["bash", "-e", "-c", block],
        cwd=ROOT,
        env={"PATH": f"{program.parent}:/usr/bin:/bin"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    promtool("check", "rules", "--lint-fatal", RULES)
    promtool("check", "config", FOLDER / "prometheus.yaml")


@pytest.mark.deep(stands_in="test_the_readme_s_commands_pass")
def test_every_alert_fires_exactly_when_it_should() -> None:
    promtool("test", "rules", UNIT_TESTS)


def test_every_alert_has_a_unit_test_in_which_it_fires() -> None:
    fired = {
        test["alertname"]
        for group in yaml.safe_load(UNIT_TESTS.read_text())["tests"]
        for test in group["alert_rule_test"]
        if test["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_its_runbook(rule: dict[str, Any]) -> None:
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^### (\w+)$", (ROOT / path).read_text(), re.M)
    assert anchor in {heading.lower() for heading in headings}
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}


def test_every_runbook_belongs_to_an_alert() -> None:
    named = {rule["annotations"]["runbook"].partition("#")[2] for rule in ALERTS}
    headings = re.findall(r"^### (\w+)$", (FOLDER / "README.md").read_text(), re.M)
    assert {heading.lower() for heading in headings} == named


def test_the_services_name_each_metric_of_the_rules() -> None:
    sources = "".join(
        path.read_text()
        for package in ("sidecar", "control_api", "deploy")
        for path in (ROOT / package).rglob("*.py")
    )
    for rule in rules():
        for name in re.findall(r"\bsluice_\w+", rule["expr"]):
            assert f'"{name.removesuffix("_bucket")}"' in sources, name


@pytest.mark.deep(stands_in="test_the_services_name_each_metric_of_the_rules")
def test_the_rules_use_metrics_that_exist() -> None:
    exported = metrics("sidecar") | metrics("control_api") | metrics("deploy")
    for rule in rules():
        for name in re.findall(r"\bsluice_\w+", rule["expr"]):
            assert name.removesuffix("_bucket") in exported, rule


def test_promtool_finds_no_fault_in_the_control_api_s_metrics(tmp_path: Path) -> None:
    need("promtool")
    with running_control_api(tmp_path) as api:
        api.evaluate()
        promtool("check", "metrics", scraped=api.call("GET", "/metrics", key=None).raw.decode())


async def test_promtool_finds_no_fault_in_the_sidecar_s_metrics(tmp_path: Path) -> None:
    need("promtool")
    async with fake_control_api() as fake:
        fake.create_tenant()
        async with running_sidecar(tmp_path, fake) as sidecar:
            await sidecar.evaluate()
            answer = await sidecar.call("GET", "/metrics", key=None)
    promtool("check", "metrics", scraped=answer.text())
