"""In real network namespaces: what is exempt leaves, and nothing beside it. Skipped without root,
namespaces or the tool."""

from collections.abc import Iterator
from pathlib import Path

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
SKIPPED = ("203.0.113.7", "fd00:7::7")
BESIDE = ("203.0.113.129", "fd00:7:0:1::7")
API = ("203.0.113.200", "fd00:8::1")
RESOLVER = "192.0.2.53"


@pytest.fixture
def pod() -> Iterator[Pod]:
    with Pod.made() as made:
        made.world.script("""
ip addr add 192.0.2.53/32 dev v1
ip route add local 203.0.113.0/24 dev lo
ip -6 route add local fd00::/16 dev lo
""")
        made.start(SIDECAR, "listen", "sidecar", PORT)
        yield made


def world(pod: Pod, *ports: int) -> None:
    for port in ports:
        pod.world.start(0, "listen", "world", port)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_skipped_network_is_reached_over_tcp_alone(pod: Pod, tool: str) -> None:
    world(pod, 443, 6334)
    pod.redirected("--tool", tool, "--skip-subnets", "203.0.113.0/25,fd00:7::/64,10.0.0.0/8")
    for address in SKIPPED:
        for port in (443, 6334):
            assert pod.as_user(AGENT, "tcp", address, port, "") == "world"
        assert pod.as_user(AGENT, "udp", address, 443) == "PermissionError"
    for address in (*BESIDE, *ELSEWHERE):
        assert pod.as_user(AGENT, "tcp", address, 443, "") == "sidecar"


@pytest.mark.parametrize("tool", TOOLS)
def test_the_api_server_is_reached_at_its_port_alone(pod: Pod, tool: str) -> None:
    world(pod, 443, 6443)
    pod.redirected("--tool", tool, "--kubernetes-api", f"{API[0]}:443")
    assert pod.as_user(AGENT, "tcp", API[0], 443, "") == "world"
    assert pod.as_user(AGENT, "tcp", API[0], 6443, "") == "sidecar"
    assert pod.as_user(AGENT, "udp", API[0], 443) == "PermissionError"
    assert pod.as_user(AGENT, "tcp", API[1], 443, "") == "sidecar"
    pod.redirected("--tool", tool, "--kubernetes-api", f"[{API[1]}]:6443")
    assert pod.as_user(AGENT, "tcp", API[1], 6443, "") == "world"
    assert pod.as_user(AGENT, "tcp", API[0], 443, "") == "sidecar"


@pytest.mark.deep(stands_in="test_the_api_server_is_reached_at_its_port_alone")
@pytest.mark.parametrize("tool", TOOLS)
def test_a_resolver_takes_queries_over_tcp_too(pod: Pod, tool: str) -> None:
    """An answer that does not fit into a packet is truncated, and asked for again over TCP."""
    world(pod, 53, 853)
    pod.redirected("--tool", tool)
    assert pod.as_user(AGENT, "udp", RESOLVER, 53) == "sent"
    assert pod.as_user(AGENT, "tcp", RESOLVER, 53, "") == "world"
    assert pod.as_user(AGENT, "tcp", RESOLVER, 853, "") == "sidecar"
    for address in (SKIPPED[0], *ELSEWHERE):
        assert pod.as_user(AGENT, "tcp", address, 53, "") == "sidecar"


@pytest.mark.parametrize("tool", TOOLS)
def test_the_pods_own_address_is_redirected_like_any_other(pod: Pod, tool: str) -> None:
    pod.start(AGENT, "listen", "own", 9464)
    pod.redirected("--tool", tool)
    assert pod.as_user(AGENT, "tcp", "127.0.0.1", 9464, "") == "own"
    for address in ("192.0.2.1", "2001:db8::1"):
        assert pod.as_user(AGENT, "tcp", address, 9464, "") == "sidecar"


@NEEDS_A_TOOL
def test_a_pod_with_only_a_skipped_address_cannot_be_proven(pod: Pod) -> None:
    pod.script("ip -6 route del default; ip -6 addr del 2001:db8::1/64 dev v0")
    pod.script("ip -6 addr add fd00:7::1/64 dev v0 nodad")
    ended = pod.redirect("--skip-subnets", "fd00:7::/64")
    assert ended.returncode == 1
    assert "no route leads to 2001:db8::21" in ended.stderr


API_NAME = "kubernetes.default.svc.cluster.test"


def redirected_by_name(pod: Pod, folder: Path, name: str) -> tuple[int, str]:
    """The command's exit code and output where `RESOLVER` is the only name server."""
    (folder / "resolv.conf").write_text(
        f"nameserver {RESOLVER}\nsearch evil.test\noptions timeout:1 attempts:1\n"
    )
    mount = f"mount --bind {folder}/resolv.conf /etc/resolv.conf"
    # A Service `kubernetes` in the pod's own namespace may set these (see `kubernetes_api`).
    shell = f'{mount} && KUBERNETES_SERVICE_HOST={ELSEWHERE[0]} KUBERNETES_SERVICE_PORT=443 "$@"'
    with_dns = ("unshare", "--mount", "sh", "-c", shell, "sh")
    ended = pod.redirect("--kubernetes-api", f"{name}:443", privileges=with_dns)
    return ended.returncode, ended.stdout + ended.stderr


@NEEDS_A_TOOL
def test_the_api_server_is_the_one_of_the_clusters_dns(pod: Pod, tmp_path: Path) -> None:
    world(pod, 443)
    code, said = redirected_by_name(pod, tmp_path, API_NAME)
    assert code == 1, "an answer that is missing now may come later"
    assert f"`{API_NAME}` can't be resolved" in said
    assert "no rule was set" in said

    pod.world.start(0, "dns", RESOLVER, API_NAME, API[0])
    code, said = redirected_by_name(pod, tmp_path, API_NAME)
    assert code == 0, said
    assert f"not redirected, the API server: {API[0]}:443" in said
    assert pod.as_user(AGENT, "tcp", API[0], 443, "") == "world"
    assert pod.as_user(AGENT, "tcp", ELSEWHERE[0], 443, "") == "sidecar"

    code, said = redirected_by_name(pod, tmp_path, "other.test")
    assert code == 0, said
    assert "`other.test:443` has no address" in said
    assert pod.as_user(AGENT, "tcp", API[0], 443, "") == "sidecar"
