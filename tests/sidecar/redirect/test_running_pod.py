"""A whole pod in real network namespaces: the rules of the init container's own command, a sidecar
of user 20102, an agent of another user, a data source in the world. Skipped without root,
namespaces or the tool."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sidecar.proxy.tunnel.redirect_check import RESERVED, RESERVED_PORT
from tests.sidecar.redirect.namespace import AGENT, ELSEWHERE, PORT, SIDECAR, Pod
from tests.support import waiting
from tests.support.fake_control_api import AGENT as AGENT_ID
from tests.support.fake_control_api import EVALUATE_KEY, ROLE, SIDECAR_KEY
from tests.support.packet_filter import possible

pytestmark = pytest.mark.skipif(
    not possible("nft", "iptables"), reason="needs root, network namespaces, nft and iptables"
)

SOURCE_PORT, API_PORT, CONTROL_PORT = 8000, 8710, 8700
SETTINGS = f"""
id: pod-1
control: http://127.0.0.1:{CONTROL_PORT}
key_file: sidecar.key
agent: {{id: {AGENT_ID}, role: {ROLE}, key_file: agent.key}}
listen: 127.0.0.1:{API_PORT}
transparent: 127.0.0.1:{PORT}
redirect_check_seconds: 0.2
sources:
- {{alias: kb, kind: rest, upstream: "http://{ELSEWHERE[0]}:{SOURCE_PORT}", sensitivity: low,
   hosts: ["kb.test:{SOURCE_PORT}"]}}
- {{alias: pg, kind: tcp, upstream: "tcp://{ELSEWHERE[0]}:5432", sensitivity: low}}
"""
IPTABLES = "iptables -t nat -F SLUICE; iptables -F SLUICE; "
REMOVALS = {
    "nft": "nft delete table inet sluice",
    "all of iptables": IPTABLES + IPTABLES.replace("iptables", "ip6tables"),
    "redirection of IPv4": "iptables -t nat -F SLUICE",
    "redirection of IPv6": "ip6tables -t nat -F SLUICE",
    "rejection of UDP": "iptables -F SLUICE",
}
"""What someone could do at run time."""


class RunningPod(Pod):
    """A pod with its sidecar."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack)
        self.world.start(0, "http", SOURCE_PORT)
        self.world.start(0, "listen", "speaks first", 5432)
        module = "tests.sidecar.redirect.control"
        self._control = self.started(sys.executable, "-m", module, str(CONTROL_PORT))

    def start_sidecar(self, folder: Path) -> subprocess.Popen[str]:
        for name, key in (("sidecar.key", SIDECAR_KEY), ("agent.key", EVALUATE_KEY)):
            (folder / name).write_text(key)
            os.chown(folder / name, SIDECAR, SIDECAR)
            (folder / name).chmod(0o600)
        (folder / "sidecar.yaml").write_text(SETTINGS)
        return self.start(SIDECAR, "sidecar", folder / "sidecar.yaml")

    def get(self, address: str, port: int, target: str, host: str) -> str:
        """The agent's GET, or the error that it got."""
        text = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        return self.as_user(AGENT, "tcp", address, port, text)

    def api(self, target: str) -> str:
        return self.get("127.0.0.1", API_PORT, target, "localhost")

    def ready(self) -> bool:
        return self.api("/health/ready").startswith("HTTP/1.1 200 ")

    def unready(self, reason: str) -> bool:
        """Whether the sidecar says that it is not ready for this reason. A busy machine may have it
        give another one first."""
        answer = self.api("/health/ready")
        return answer.startswith("HTTP/1.1 503 ") and f"redirect: {reason}" in answer

    def control(self) -> Any:
        assert self._control.stdin is not None
        assert self._control.stdout is not None
        self._control.stdin.write("\n")
        self._control.stdin.flush()
        return json.loads(self._control.stdout.readline())


@pytest.fixture
def folder() -> Iterator[Path]:
    """The sidecar's own. Its user couldn't go down to one below pytest's."""
    with tempfile.TemporaryDirectory(prefix="sluice-pod-") as made:
        os.chown(made, SIDECAR, SIDECAR)
        yield Path(made)


@pytest.fixture
def pod() -> Iterator[RunningPod]:
    with RunningPod.made() as made:
        yield made


def test_a_governed_pod_is_ready_only_while_its_rules_exist(pod: RunningPod, folder: Path) -> None:
    pod.redirected("--tool", "nft")
    pod.start_sidecar(folder)
    waiting.until("the sidecar is ready", pod.ready)
    host = f"kb.test:{SOURCE_PORT}"
    for address in ELSEWHERE:
        assert pod.get(address, SOURCE_PORT, "/a", host).endswith("of the source")
        assert pod.get(address, SOURCE_PORT, "/secret", host).startswith("HTTP/1.1 403 ")
    assert pod.get(ELSEWHERE[0], SOURCE_PORT, "/a", "other.test").startswith("HTTP/1.1 403 ")
    # The agent sends nothing: what meshes call an opaque port.
    assert pod.as_user(AGENT, "tcp", ELSEWHERE[1], 5432, "") == "speaks first"
    # The reserved address means nothing to an agent: it is denied there, and changes nothing.
    for address in RESERVED.values():
        guess = secrets.token_hex(16)
        assert pod.as_user(AGENT, "tcp", address, RESERVED_PORT, guess) != ""
    assert pod.ready()
    assert "sluice_redirect_working 1.0" in pod.api("/metrics")

    pod.script(REMOVALS["nft"])
    # This is why it matters.
    assert pod.get(ELSEWHERE[0], SOURCE_PORT, "/secret", host).endswith("of the source")
    missing = "UDP over IPv4 is not rejected"
    waiting.until("the sidecar notices", lambda: pod.unready(missing))
    assert "sluice_redirect_working 0.0" in pod.api("/metrics")
    waiting.until("the fleet hears of it", lambda: "redirect: " in (pod.control()[0] or ""))

    pod.redirected("--tool", "nft")
    waiting.until("the sidecar is ready again", pod.ready)
    decisions = pod.control()[1]
    assert decisions.count(["ALLOW", "underwriting", "rest://kb/a"]) == 2
    assert ["ALLOW", "underwriting", "tcp://pg"] in decisions
    assert decisions.count(["DENY", "underwriting", "rest://kb/secret"]) == 2


@pytest.mark.deep(stands_in="test_a_governed_pod_is_ready_only_while_its_rules_exist")
def test_each_part_of_the_rules_is_missed(pod: RunningPod, folder: Path) -> None:
    pod.redirected("--tool", "iptables")
    pod.start_sidecar(folder)
    for removed in list(REMOVALS)[1:]:
        waiting.until("the sidecar is ready", pod.ready)
        pod.script(REMOVALS[removed])
        waiting.until(f"the sidecar notices: {removed}", lambda: pod.unready(""))
        pod.redirected("--tool", "iptables")


def test_without_rules_the_sidecar_is_never_ready(pod: RunningPod, folder: Path) -> None:
    pod.start_sidecar(folder)
    waiting.until("the first check has failed", lambda: pod.unready("UDP over"))
