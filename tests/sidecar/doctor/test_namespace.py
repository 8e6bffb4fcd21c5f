"""In a network namespace with the real packet filter: what the doctor says about rules is what the
kernel does. Skipped without root, `iptables` or network namespaces."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.tree import ROOT
from tests.sidecar.doctor.network_namespace import SOURCE_ADDRESS, SOURCE_PORT, WORLD
from tests.sidecar.doctor.recorded_host import AGENT, SIDECAR, SOURCE, TEXT, write
from tests.support.packet_filter import PATH, WITH_PROGRAMS, possible, tool

SETTINGS = TEXT + SOURCE.replace("127.0.0.1:9", f"{SOURCE_ADDRESS}:{SOURCE_PORT}")


def _possible() -> bool:
    if not possible("iptables", "ip6tables"):
        return False
    rules = "iptables -t nat -S && ip6tables -t nat -S"
    tried = ["unshare", "--net", "--mount", *WITH_PROGRAMS, "sh", "-c", rules]
    environ = os.environ | {"PATH": PATH}
    return not subprocess.run(tried, env=environ, capture_output=True, check=False).returncode


POSSIBLE = _possible()
pytestmark = pytest.mark.skipif(not POSSIBLE, reason="no root, no iptables, or no namespace")

PLACE = f"{SOURCE_ADDRESS}:{SOURCE_PORT}"
REACHED = f"source `kb`: {PLACE} accepts connections from UID {AGENT}, the agent's"
README = (ROOT / "deploy" / "README.md").read_text()
RULES = re.search(r"```sh\n(# packet filter: .*?)```", README, re.DOTALL)
assert RULES
COMPLETE = f"SIDECAR={SIDECAR} PORT=8712\n{RULES[1]}"
"""The rules, as the README has them."""
MORE = re.search(r"`(\$each -A OUTPUT -p tcp .*?)`", README)
assert MORE
WALL = "\n".join(line for line in COMPLETE.splitlines() if "-t nat" not in line)
WALL = WALL.replace("done", f"{MORE[1]}\ndone")
"""The README's variant for a reverse proxy alone."""


class Namespace:
    """The process in the namespace."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self.heard() == "ready"

    def __call__(self, *told: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        return self.heard()

    def heard(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def findings(self, *checks: str) -> list[tuple[str, str]]:
        return [(severity, seen) for check, severity, seen in self("doctor") if check in checks]


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    write(tmp_path, SETTINGS)
    iptables = tool("iptables")
    assert iptables is not None
    environ = {"PATH": PATH, "PYTHONPATH": str(ROOT), "IPTABLES_FOLDER": str(Path(iptables).parent)}
    command = [sys.executable, "-m", "tests.sidecar.doctor.network_namespace", str(tmp_path)]
    process = subprocess.Popen(
        # With its own process namespace, whose processes all end with the first one.
        [
            "unshare",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            *WITH_PROGRAMS,
            *command,
        ],
        cwd=ROOT,
        env=os.environ | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Namespace(process)
    finally:
        process.kill()
        process.wait()


def test_without_rules_the_agent_reaches_the_source(namespace: Namespace) -> None:
    assert namespace("connect", AGENT, SOURCE_ADDRESS, SOURCE_PORT) == "source"
    [(severity, text)] = namespace.findings("direct", "redirect", "udp", "other_users")
    assert severity == "high"
    target = f"{SOURCE_ADDRESS}:{SOURCE_PORT}"
    assert text == f"source `kb`: {target} accepts connections from UID {AGENT}, the agent's"


def test_complete_rules_redirect_every_user_and_are_no_finding(namespace: Namespace) -> None:
    namespace("rules", COMPLETE)
    for address in (SOURCE_ADDRESS, *WORLD):
        assert namespace("connect", AGENT, address, SOURCE_PORT) == "sidecar"
        assert namespace("connect", 0, address, 443) == "sidecar"
    assert namespace("connect", SIDECAR, SOURCE_ADDRESS, SOURCE_PORT) == "source"
    assert namespace("connect", AGENT, "127.0.0.1", 8710) == "sidecar"
    for address in WORLD:
        assert namespace("udp", AGENT, address, 443) == "PermissionError"
        assert namespace("udp", 0, address, 53) == "PermissionError"
        assert namespace("udp", SIDECAR, address, 53) == "sent"
    assert namespace("doctor") == []


NEEDS_NFT = pytest.mark.skipif(tool("nft") is None, reason="nft is not installed")


def redirected(namespace: Namespace, tool: str, *more: str) -> None:
    command = [sys.executable, "-m", "sidecar.redirect", "--tool", tool, "--port", "8712"]
    namespace("rules", shlex.join([*command, "--sidecar-user", str(SIDECAR), *more]) + " >&2")


@pytest.mark.parametrize("tool", ["iptables", pytest.param("nft", marks=NEEDS_NFT)])
def test_the_rules_of_the_command_are_no_finding(namespace: Namespace, tool: str) -> None:
    redirected(namespace, tool, "--resolvers", "192.0.2.53", "--kubernetes-api", "10.96.0.1:443")
    for address in (SOURCE_ADDRESS, *WORLD):
        assert namespace("connect", AGENT, address, SOURCE_PORT) == "sidecar"
    assert namespace("connect", SIDECAR, SOURCE_ADDRESS, SOURCE_PORT) == "source"
    assert namespace("doctor") == []


def test_rules_for_a_reverse_proxy_allow_nothing_else(namespace: Namespace) -> None:
    namespace("rules", WALL)
    for address in (SOURCE_ADDRESS, *WORLD):
        assert namespace("connect", AGENT, address, SOURCE_PORT) == "ConnectionRefusedError"
        assert namespace("udp", AGENT, address, 443) == "PermissionError"
    assert namespace("connect", AGENT, "127.0.0.1", 8710) == "sidecar"
    assert namespace("connect", SIDECAR, SOURCE_ADDRESS, SOURCE_PORT) == "source"
    assert namespace("doctor") == []


@pytest.mark.parametrize(
    ("undone", "tried", "severity", "says"),
    [
        (
            "iptables -D OUTPUT 3",
            ("udp", AGENT, WORLD[0], 443, "sent"),
            "high",
            f"UDP over IPv4 from UID {AGENT} is let through, to ports: 443, 53, others",
        ),
        (
            "ip6tables -t nat -F OUTPUT",
            ("connect", AGENT, WORLD[1], 443, "TimeoutError OSError"),
            "high",
            f"TCP over IPv6 from UID {AGENT} is not redirected",
        ),
        (
            "iptables -t nat -I SLUICE -m owner --uid-owner 33 -j RETURN",
            ("connect", 33, SOURCE_ADDRESS, SOURCE_PORT, "source"),
            "medium",
            "TCP over IPv4 from UID 33 is not redirected",
        ),
        (
            f"iptables -t nat -I SLUICE -p tcp --dport {SOURCE_PORT} -j RETURN",
            ("connect", AGENT, SOURCE_ADDRESS, SOURCE_PORT, "source"),
            "high",
            REACHED,
        ),
        (
            "iptables -t nat -I SLUICE -d 198.51.100.0/24 -j RETURN",
            ("connect", AGENT, "198.51.100.7", 443, "TimeoutError OSError"),
            "medium",
            f"TCP over IPv4 from UID {AGENT} to 198.51.100.0/24 is not redirected",
        ),
        (
            "iptables -t nat -R SLUICE 3 -p tcp -j REDIRECT --to-ports 8799",
            ("connect", AGENT, WORLD[0], 443, "ConnectionRefusedError"),
            "medium",
            "TCP over IPv4 is redirected to `8799`, where no sidecar listens",
        ),
    ],
)
def test_a_hole_in_the_rules_is_real_and_is_found(
    namespace: Namespace, undone: str, tried: tuple[Any, ...], severity: str, says: str
) -> None:
    namespace("rules", COMPLETE)
    namespace("rules", undone)
    *asked, answers = tried
    assert namespace(*asked) in answers.split()
    assert (severity, says) in [(level, seen) for _, level, seen in namespace("doctor")]


BOTH = "for chain in to_sidecar nothing_else; do nft insert rule inet sluice $chain {} accept; done"
UNREAD = "rules for IPv4: in `inet sluice`, chain to_sidecar, this can't be read: "
OTHER = (
    "nft add table inet other; "
    "nft 'add chain inet other out {{ type nat hook output priority {}; }}'; "
)


@NEEDS_NFT
@pytest.mark.parametrize(
    ("undone", "tried", "severity", "says"),
    [
        (
            "nft flush chain inet sluice nothing_else",
            ("udp", AGENT, WORLD[1], 443, "sent"),
            "high",
            f"UDP over IPv6 from UID {AGENT} is let through, to ports: 443, 53, others",
        ),
        (
            BOTH.format("meta nfproto ipv6"),
            ("connect", AGENT, WORLD[1], 443, "TimeoutError OSError"),
            "high",
            f"TCP over IPv6 from UID {AGENT} is not redirected",
        ),
        (
            BOTH.format("meta skuid 33"),
            ("connect", 33, SOURCE_ADDRESS, SOURCE_PORT, "source"),
            "medium",
            "TCP over IPv4 from UID 33 is not redirected",
        ),
        (
            BOTH.format(f"tcp dport '{{ 25, {SOURCE_PORT} }}'"),
            ("connect", AGENT, SOURCE_ADDRESS, SOURCE_PORT, "source"),
            "high",
            REACHED,
        ),
        (
            "nft add set inet sluice friends '{ type ipv4_addr; flags interval; }'; "
            "nft add element inet sluice friends '{ 198.51.100.0/24 }'; "
            + BOTH.format("ip daddr @friends"),
            ("connect", AGENT, "198.51.100.7", 443, "TimeoutError OSError"),
            "medium",
            f"TCP over IPv4 from UID {AGENT} to 198.51.100.0/24 is not redirected",
        ),
        (
            OTHER.format(-150) + "nft add rule inet other out tcp dport 443 redirect to :8799",
            ("connect", AGENT, WORLD[0], 443, "ConnectionRefusedError"),
            "low",
            "rules for IPv4: `inet other`, chain out (priority -150) comes before `inet sluice`",
        ),
        (
            OTHER.format(-150) + "nft add rule inet other out meta l4proto tcp redirect to :8799",
            ("connect", AGENT, WORLD[0], 443, "ConnectionRefusedError"),
            "medium",
            "TCP over IPv4 is redirected to `8799`, where no sidecar listens",
        ),
        (
            BOTH.format("ip dscp 5"),
            ("connect", AGENT, SOURCE_ADDRESS, SOURCE_PORT, "sidecar"),
            "unknown",
            UNREAD + "match: ip dscp",
        ),
    ],
)
def test_a_hole_in_the_rules_of_nft_is_real_and_is_found(
    namespace: Namespace, undone: str, tried: tuple[Any, ...], severity: str, says: str
) -> None:
    redirected(namespace, "nft")
    namespace("rules", undone)
    *asked, answers = tried
    assert namespace(*asked) in answers.split()
    assert (severity, says) in [(level, seen) for _, level, seen in namespace("doctor")]


@NEEDS_NFT
def test_removed_rules_no_longer_apply(namespace: Namespace) -> None:
    redirected(namespace, "nft")
    namespace("rules", "nft delete table inet sluice")
    assert namespace("connect", AGENT, SOURCE_ADDRESS, SOURCE_PORT) == "source"
    assert ("high", REACHED) in namespace.findings("direct")


@NEEDS_NFT
def test_rules_of_iptables_and_nft_are_read_together(namespace: Namespace) -> None:
    redirected(namespace, "nft")
    # A rule of iptables can't undo what nft redirected before.
    namespace("rules", "iptables -t nat -I OUTPUT -p tcp -j ACCEPT; " + BOTH.format("tcp dport 9"))
    assert namespace("connect", AGENT, SOURCE_ADDRESS, SOURCE_PORT) == "sidecar"
    assert [seen for _, seen in namespace.findings("redirect")] == [
        f"TCP over IPv{version} from UID {AGENT} to port 9 is not redirected" for version in (4, 6)
    ]
