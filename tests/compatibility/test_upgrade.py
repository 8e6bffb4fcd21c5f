"""An installation of the previous version with a log of weeks is upgraded: by a recording of its
database, and with its processes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.compatibility.claims import CLAIMS
from tests.compatibility.exchanges import RECORDED, restore
from tests.compatibility.installation import Left, decide_beside, install
from tests.compatibility.previous import control_command, of_version
from tests.compatibility.upgraded import Upgraded
from tests.support import fork_server
from tests.support.control_api_process import ControlApiProcess
from tests.support.postgres import serving
from tests.support.stack import Stack
from tests.support.waiting import until

OF = "installation"
VERSION = sorted(path.name for path in RECORDED.iterdir())[-1]
UNRELEASED = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    """Today's control API on the recorded database, upgraded by its start."""
    folder = tmp_path_factory.mktemp("upgraded")
    restore(VERSION, folder / "data", OF)
    process = ControlApiProcess(folder, SLUICE_POLICY_DIR="")
    try:
        left = Left.read(RECORDED / VERSION / OF / "left.json")
        yield Upgraded(process.ready(), left, folder)
    finally:
        process.process.kill()
        process.process.wait()
        process.output.close()


@pytest.mark.parametrize("said", CLAIMS, ids=lambda said: CLAIMS[said].__name__)
def test_an_upgraded_installation_matches_the_changelog(recorded: Upgraded, said: str) -> None:
    assert said in UNRELEASED
    CLAIMS[said](recorded)


@pytest.fixture(params=["sqlite", "postgresql"])
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stack]:
    """Without a database yet: the previous version makes its own."""
    if request.param == "sqlite":
        made = Stack(tmp_path / "stack")
        shutil.rmtree(made.directory / "data")
    else:
        owner = request.getfixturevalue("postgres_url")
        made = Stack(tmp_path / "stack", database_url=serving(owner))
        made.control.environ["SLUICE_MIGRATE_DATABASE_URL"] = owner
    yield made
    made.stop()


def shown(stack: Stack) -> bool:
    """Whether the fleet's list says that the sidecar takes the levels of sources into account."""
    fleet = stack.admin("GET", "/v1/sidecars")
    [sidecar] = [each for each in fleet if each["sidecar_id"] == "sidecar-1"]
    return bool(sidecar["source_levels"])


def doctor(stack: Stack) -> list[str]:
    """What `sluice doctor` says of the sidecar's own key."""
    config = str(stack.directory / "sidecar.yaml")
    command = [sys.executable, "-m", "sidecar.doctor", "--config", config, "--json"]
    findings = json.loads(fork_server.run(command, dict(os.environ)).stdout)["findings"]
    return [each["seen"] for each in findings if each["check"] == "own_key"]


@pytest.mark.deep(stands_in="test_an_upgraded_installation_matches_the_changelog")
def test_an_installation_of_weeks_is_upgraded_service_by_service(
    previous: Path, stack: Stack, tmp_path: Path
) -> None:
    left = install(stack, previous)
    stack.control.stop()
    of_version(stack, service="control")
    if stack.database_url:
        control_command(stack, "migrate")
    stack.control.start()
    # The sidecar of before goes on deciding and delivering.
    decide_beside(stack)
    assert not shown(stack)
    upgraded = Upgraded(stack.control.port, left, tmp_path)
    for claim in CLAIMS.values():
        claim(upgraded)
    # A new one starts on its settings file, cache and spool.
    stack.sidecar.stop()
    of_version(stack, service="sidecar")
    stack.sidecar.start()
    decide_beside(stack)
    until("the new sidecar has reported", lambda: shown(stack))
    [said] = doctor(stack)
    assert "is from before keys had agents" in said
    # What the previous version purged, and what this one does, is one purged log.
    stack.admin("PUT", "/v1/settings/retention", {"retention_days": 10})
    control_command(stack, "purge")
    report = stack.verify()
    assert (report["valid"], report["first_seq"] > left.verified["first_seq"]) == (True, True)
    assert upgraded.verified(upgraded.exported())[0] == 0
