"""`sluice doctor --cluster` as a process: with kubectl's own output in a file, and with kubectl
itself over a server of one's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.tree import ROOT
from tests.deploy.kubernetes.doctor.api_server import api_server
from tests.deploy.kubernetes.doctor.objects import AGENTS, cluster
from tests.servers import need
from tests.support.documents import put


def doctor(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.command", "doctor", "--cluster", *map(str, words)]
    return subprocess.run(
        command, env=os.environ | environ, cwd=ROOT, capture_output=True, text=True, check=False
    )


OPTIONAL = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
"""What a cluster may lack."""


def saved(folder: Path, *lists: list[dict[str, Any]]) -> Path:
    path = folder / "cluster.json"
    found = [{"kind": "List", "items": items} for items in lists]
    path.write_text(json.dumps(found[0] if len(found) == 1 else found))
    return path


def test_a_sound_cluster_in_a_file_exits_with_success(tmp_path: Path) -> None:
    items = cluster()
    for path in (saved(tmp_path, items), saved(tmp_path, items[:5], items[5:])):
        ended = doctor("--from", path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout == "found nothing that can pass the governed namespaces by\n"


def test_findings_are_printed_as_text_and_as_json_with_exit_code_one(tmp_path: Path) -> None:
    items = cluster()
    items.append({"kind": "Pod", "metadata": {"name": "evil\x1b[2J", "namespace": AGENTS}})
    path = saved(tmp_path, items)
    ended = doctor("--from", path)
    assert ended.returncode == 1
    assert ended.stdout.startswith("high: without_sidecar: ")
    # A name can't drive the terminal.
    assert "\x1b" not in ended.stdout
    assert ended.stdout.endswith("findings: 1 high\n")
    found = json.loads(doctor("--from", path, "--json").stdout)["findings"]
    assert [(each["check"], each["severity"]) for each in found] == [("without_sidecar", "high")]


@pytest.mark.parametrize("text", ["", "[", "{}", '{"items": []}', "[" * 100_000])
def test_an_unusable_file_exits_with_two(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(text)
    ended = doctor("--from", path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"sluice doctor: {path}: ")
    assert "Traceback" not in ended.stderr


def test_registered_agents_are_read_from_the_fleets_list(tmp_path: Path) -> None:
    items = cluster()
    items.append({"kind": "Pod", "metadata": {"name": "till-1", "namespace": "shop"},
                  "spec": {"serviceAccountName": "till"}})  # fmt: skip
    agents = tmp_path / "agents.json"
    agents.write_text(json.dumps([
        {"agent_id": "a", "workload": "https://issuer:8443:system:serviceaccount:shop:till"},
        {"agent_id": "b", "workload": None},
    ]))  # fmt: skip
    ended = doctor("--from", saved(tmp_path, items), "--agents", agents)
    assert "registered agents run there: till-1" in ended.stdout


def kubectl(tmp_path: Path, address: str) -> dict[str, str]:
    """The environment in which kubectl asks the server at `address`."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here", "users": [],
        "contexts": [{"name": "here", "context": {"cluster": "here"}}],
        "clusters": [{"name": "here", "cluster": {"server": address}}],
    }  # fmt: skip
    (tmp_path / "config").write_text(json.dumps(config))
    folder = Path(str(need("kubectl"))).parent
    path = f"{folder}:{os.environ.get('PATH', os.defpath)}"
    return {"PATH": path, "KUBECONFIG": str(tmp_path / "config"), "HOME": str(tmp_path)}


@pytest.mark.deep(stands_in="test_a_kind_that_kubectl_may_not_read_is_a_finding")
def test_kubectl_reads_the_cluster(tmp_path: Path) -> None:
    with api_server(cluster(), absent=OPTIONAL) as address:
        ended = doctor(**kubectl(tmp_path, address))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_kind_that_kubectl_may_not_read_is_a_finding(tmp_path: Path) -> None:
    with api_server(cluster(), absent=OPTIONAL, refused=("clusterroles",)) as address:
        ended = doctor("--json", **kubectl(tmp_path, address))
    assert ended.returncode == 1
    [found] = json.loads(ended.stdout)["findings"]
    assert (found["check"], found["severity"]) == ("unread", "unknown")
    assert "ClusterRole objects can't be read" in found["seen"]
    assert "forbidden" in found["seen"]


def test_a_cluster_that_kubectl_cannot_read_exits_with_two(tmp_path: Path) -> None:
    put(
        tmp_path,
        "kubectl",
        "#!/bin/sh\necho 'The connection to the server was refused' >&2\nexit 1\n",
    )
    ended = doctor(PATH=f"{tmp_path}:/usr/bin:/bin")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "refused" in ended.stderr


@pytest.mark.deep(stands_in="test_a_cluster_that_kubectl_cannot_read_exits_with_two")
def test_an_unreachable_cluster_exits_with_two(tmp_path: Path) -> None:
    with api_server([]) as address:
        environ = kubectl(tmp_path, address)
    ended = doctor(**environ)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "refused" in ended.stderr


def test_a_missing_kubectl_is_reported_with_what_to_do(tmp_path: Path) -> None:
    ended = doctor(PATH=str(tmp_path))
    assert ended.returncode == 2
    assert "kubectl is not in PATH; install it, or read a file with --from FILE" in ended.stderr
