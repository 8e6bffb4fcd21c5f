"""The commands of deploy/compose/README.md: with containers, where docker or podman has all the
images; and everywhere as podman-compose would run them, up to the container itself."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.architecture.tree import ROOT
from tests.deploy.container_tools import docker
from tests.deploy.launcher import environ
from tests.support.documents import commands, paste, put

SCRIPT = commands("deploy/compose/README.md", "start")
SLUICE = f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n'
# Takes what podman-compose tells podman, and agrees with all of it.
PODMAN = """#!/bin/sh
echo "$@" >> "$ASKED"
case "$1" in
  --version | version) echo podman version 5.4.2 ;;
  ps) echo "[]" ;;
  wait | inspect) echo 0 ;;
esac
"""
DOCKER = """#!/bin/sh
[ "$1" = compose ] || exit 3
shift
exec "{compose}" --podman-path "{podman}" "$@"
"""


def settings(tmp_path: Path) -> dict[str, str]:
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return environ(PATH=path, ASKED=str(tmp_path / "asked"))


def test_the_commands_name_only_services_of_the_file() -> None:
    init, enter, up, run = map(shlex.split, SCRIPT.splitlines()[1:])
    assert init[:4] == ["sluice", "init", "--target", "compose"]
    assert enter == ["cd", init[init.index("--dir") + 1]]
    assert up == ["docker", "compose", "up", "--detach"]
    services = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())["services"]
    assert services.keys() == {
        *("postgres", "redis", "migrate", "control", "provision", "sidecar", "source"),
        *("agent", "prometheus", "grafana"),
    }
    assert run[:3] == ["docker", "compose", "--profile"]
    assert run[4:6] == ["run", "--rm"]
    profile, service, *documents = run[3], *run[6:]
    assert services[service]["profiles"] == [profile]
    # What is not of a profile runs after `up`.
    assert {each for each in services if "profiles" in services[each]} == {
        *("agent", "prometheus", "grafana")
    }
    for document in documents:
        assert (ROOT / "deploy/compose/source" / document).is_file()


@pytest.mark.deep(stands_in="test_the_commands_name_only_services_of_the_file")
def test_compose_is_called_as_the_readme_documents(tmp_path: Path) -> None:
    compose = Path(sys.executable).with_name("podman-compose")
    if not os.access(compose, os.X_OK):
        pytest.skip("no podman-compose here: its wheel brings it")
    put(tmp_path / "tools", "podman", PODMAN)
    put(tmp_path / "bin", "sluice", SLUICE)
    text = DOCKER.format(compose=compose, podman=tmp_path / "tools/podman")
    put(tmp_path / "bin", "docker", text)
    done = paste(SCRIPT, tmp_path, settings(tmp_path))
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text()
    for service in ("postgres", "redis", "migrate", "control", "provision", "sidecar", "source"):
        assert re.search(rf"(?m)^create .*--name=\S*[_-]{service}[_-]1 ", asked), service
    assert re.search(r"(?m)^run .*--rm.* handbook/returns\.txt payroll/grades\.txt$", asked)


def test_the_sample_agent_gets_one_document_of_two(tmp_path: Path) -> None:
    if not docker(tmp_path / "bin"):
        pytest.skip("needs docker, or podman 5 and podman-compose")
    put(tmp_path / "bin", "sluice", SLUICE)
    made = settings(tmp_path)
    init = paste("sluice init --target compose --dir images", tmp_path, made)
    assert init.returncode == 0, init.stderr
    listed = paste("cd images && docker compose config", tmp_path, made)
    images = set(re.findall(r"(?m)^ +image: (\S+)$", listed.stdout))
    missing = [
        image
        for image in sorted(images)
        if subprocess.run(
            ["docker", "image", "inspect", image], env=made, capture_output=True, check=False
        ).returncode
    ]
    if missing or not images:
        pytest.skip(f"these images are not here: {', '.join(missing)}")
    try:
        done = paste(SCRIPT, tmp_path, made)
    finally:
        paste("cd sluice && docker compose down --volumes", tmp_path, made)
    assert done.returncode == 0, done.stderr
    assert "Goods may be returned within 30 days" in done.stdout
    assert "payroll/grades.txt: 403" in done.stdout
