"""In real network namespaces, with the init container's own command: what an agent sends lands at
the sidecar or nowhere, and the command fails where that is not so. Skipped without root, namespaces
or the tool."""

from collections.abc import Iterator

import pytest

from tests.sidecar.redirect.namespace import (
    AGENT,
    ELSEWHERE,
    NEEDS_A_TOOL,
    PORT,
    SIDECAR,
    Pod,
)
from tests.support.packet_filter import possible

pytestmark = pytest.mark.skipif(
    not possible(), reason="needs root, network namespaces, and `ip`, `nsenter` and `setpriv`"
)

TOOLS = [
    pytest.param(
        name, marks=pytest.mark.skipif(not possible(name), reason=f"{name} is not installed")
    )
    for name in ("nft", "iptables")
]
ONLY_NET_ADMIN = ("setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all", "--no-new-privs")
NO_CAPABILITY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


@pytest.fixture
def pod() -> Iterator[Pod]:
    with Pod.made() as made:
        yield made


@pytest.mark.parametrize("tool", TOOLS)
def test_the_command_as_root_with_only_net_admin(pod: Pod, tool: str) -> None:
    ended = pod.redirect(
        "--tool", tool, "--resolvers", "192.0.2.53", "--skip-outbound-ports", "5432,8000-8010",
        privileges=ONLY_NET_ADMIN,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    proven = [line for line in ended.stdout.splitlines() if line.startswith("IPv")]
    assert [line.partition(" to ")[0] for line in proven] == [
        "IPv4: TCP",
        "IPv4: TCP",
        "IPv4: UDP",
        "IPv6: TCP",
        "IPv6: TCP",
        "IPv6: UDP",
    ]
    for port in (80, 443, 8000):
        pod.world.start(0, "listen", "world", port)
    pod.start(SIDECAR, "listen", "sidecar", PORT)
    for address in ELSEWHERE:
        assert pod.as_user(AGENT, "tcp", address, 443, "") == "sidecar"
        assert pod.as_user(0, "tcp", address, 80, "") == "sidecar"
        assert pod.as_user(SIDECAR, "tcp", address, 443, "") == "world"
        # Exempt by the annotation, and then not judged by anyone.
        assert pod.as_user(AGENT, "tcp", address, 8000, "") == "world"
        for port in (443, 53, 6334):
            assert pod.as_user(AGENT, "udp", address, port) == "PermissionError"
        assert pod.as_user(SIDECAR, "udp", address, 53) == "sent"
    assert pod.as_user(AGENT, "udp", "192.0.2.53", 53) == "sent"
    assert pod.as_user(AGENT, "udp", "192.0.2.53", 443) == "PermissionError"
    # The init container alone may run again, beside a sidecar that has the port.
    again = pod.redirect("--tool", tool, privileges=ONLY_NET_ADMIN)
    assert again.returncode == 0, again.stderr
    assert pod.as_user(AGENT, "tcp", ELSEWHERE[0], 8000, "") == "sidecar"
    assert pod.as_user(AGENT, "udp", "192.0.2.53", 53) == "PermissionError"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_second_run_leaves_the_rules_of_the_first(pod: Pod, tool: str) -> None:
    def rules() -> str:
        lines = pod.run("nft", "list", "ruleset") if tool == "nft" else pod.run("iptables-save")
        return "\n".join(each for each in lines.stdout.splitlines() if each[:1] not in ("#", ":"))

    pod.redirected("--tool", tool)
    once = rules()
    pod.redirected("--tool", tool)
    assert rules() == once
    assert "SLUICE" in once or "inet sluice" in once


@pytest.mark.parametrize("tool", TOOLS)
def test_without_the_capability_the_pod_does_not_start(pod: Pod, tool: str) -> None:
    ended = pod.redirect("--tool", tool, privileges=NO_CAPABILITY)
    assert ended.returncode == 1
    assert "CAP_NET_ADMIN" in ended.stderr


EARLIER = "type nat hook output priority -150;"
"""Of another program, before ours."""


@pytest.mark.skipif(not possible("nft"), reason="nft is not installed")
def test_rules_of_others_that_come_first_are_noticed(pod: Pod) -> None:
    pod.world.start(0, "listen", "world", 9)
    pod.script(f"""
nft add table inet other
nft 'add chain inet other out {{ {EARLIER} }}'
nft add rule inet other out ip6 daddr ::/0 tcp dport 1-65535 dnat ip6 to '[2001:db8::2]:9'
""")
    ended = pod.redirect()
    assert ended.returncode == 1
    assert "IPv4: TCP to 192.0.2.21" in ended.stdout
    assert "TCP to 2001:db8::21" in ended.stderr
    assert "the pod must not start" in ended.stderr


@NEEDS_A_TOOL
def test_a_pod_without_ipv6_gets_a_message_and_succeeds(pod: Pod) -> None:
    pod.script("ip -6 addr flush dev v0; sysctl -qw net.ipv6.conf.v0.disable_ipv6=1")
    ended = pod.redirect()
    assert ended.returncode == 0, ended.stderr
    assert "IPv6: this pod has no way out" in ended.stdout


@NEEDS_A_TOOL
def test_an_address_without_a_default_route_is_tried_with_itself(pod: Pod) -> None:
    pod.script("ip -6 route del default; ip -6 addr del 2001:db8::1/64 dev v0")
    pod.script("ip -6 addr add 2001:db8:2::1/64 dev v0 nodad")
    ended = pod.redirect()
    assert ended.returncode == 0, ended.stderr
    assert "IPv6: TCP to 2001:db8:2::1 port" in ended.stdout


@NEEDS_A_TOOL
def test_a_pod_without_any_route_cannot_be_proven(pod: Pod) -> None:
    pod.script("ip link del v0")
    ended = pod.redirect()
    assert ended.returncode == 1
    assert "no route for IPv4 or IPv6" in ended.stderr


@NEEDS_A_TOOL
@pytest.mark.deep(
    stands_in="tests/sidecar/redirect/test_proof.py::test_the_proof_recognises_its_own_connection_by_the_port"
)
def test_the_sidecar_is_found_however_many_connections_it_has(pod: Pod) -> None:
    """Where two of them come from one port, the kernel changes that of the second."""
    pod.start(SIDECAR, "listen", "sidecar", PORT)
    pod.redirected()
    pod.script("echo 20000 20015 > /proc/sys/net/ipv4/ip_local_port_range")
    pod.start(AGENT, "hold", ELSEWHERE[0], 443, *range(20000, 20012))
    pod.redirected()


@NEEDS_A_TOOL
def test_a_listener_of_another_user_on_the_port_is_not_the_sidecar(pod: Pod) -> None:
    pod.start(AGENT, "listen", "agent", PORT)
    ended = pod.redirect()
    assert ended.returncode == 1
    assert f"not by a process of user {SIDECAR}" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--sidecar-user", "0"], "`0` is not a number from 1"),
        (["--sidecar-user", "20102; rm"], "--sidecar-user"),
        (["--port", "70000"], "--port"),
        (["--skip-outbound-ports", "0-65536"], "skipped ports"),
        (["--skip-outbound-ports", "80 } accept; #"], "skipped ports"),
        (["--resolvers", "10.0.0.1; drop"], "resolvers"),
        (["--skip-subnets", "10.0.0.0/8 } accept; #"], "skipped networks"),
        (["--skip-subnets", "0.0.0.0/0"], "`0.0.0.0/0` is too wide"),
        (["--skip-outbound-ports", "1-65535"], "nothing would be judged"),
        (["--kubernetes-api", "10.96.0.1/8:443"], "--kubernetes-api"),
    ],
)
def test_unusable_arguments_set_no_rule(pod: Pod, arguments: list[str], says: str) -> None:
    ended = pod.redirect(*arguments)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert pod.run("nft", "list", "ruleset").stdout == ""
