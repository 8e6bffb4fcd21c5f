"""In a network namespace with the real packet filter, and the rules of `deploy/README.md` as users
paste them: what an agent sends anywhere arrives at the sidecar, which goes by the original
destination. Skipped without root, `iptables` or namespaces."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.architecture.tree import ROOT
from tests.sidecar.doctor.test_namespace import POSSIBLE, RULES
from tests.sidecar.proxy.network_namespace import HTTP, PORT, SOURCES, TCP, TLS
from tests.support.packet_filter import PATH, WITH_PROGRAMS

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="no root, no iptables, or no namespace")

assert RULES
COMPLETE = f"SIDECAR=0 PORT={PORT}\n{RULES[1]}"


class Inside:
    """The process in there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self.heard() == "ready"
        self("rules", COMPLETE)

    def __call__(self, *told: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        return self.heard()

    def heard(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def get(self, address: str, port: int, target: str, host: str, name: str = "") -> str:
        """A GET by the agent, on a connection to `address`."""
        lines = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        return str(self("say", address, port, lines, name))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    command = [sys.executable, "-m", "tests.sidecar.proxy.network_namespace"]
    process = subprocess.Popen(
        # With its own processes, which all end when the first of them does.
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
         *WITH_PROGRAMS, *command, str(tmp_path_factory.mktemp("inside"))],
        cwd=ROOT,
        env=os.environ | {"PATH": PATH, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        yield Inside(process)
    finally:
        process.kill()
        process.wait()


class Since:
    """What is recorded from now on."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._before = len(inside("decisions"))

    def __call__(self) -> list[tuple[str, ...]]:
        return [tuple(each) for each in self._inside("decisions")[self._before :]]


@pytest.fixture
def since(started: Inside) -> Since:
    return Since(started)


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@pytest.mark.parametrize("address", SOURCES)
def test_http_is_redirected_to_the_source_of_its_host(
    started: Inside, since: Since, address: str
) -> None:
    for host in (f"kb.test:{HTTP}", f"{bracketed(address)}:{HTTP}"):
        assert started.get(address, HTTP, "/a", host).endswith("of kb")
    assert started.get(address, HTTP, "/secret", f"kb.test:{HTTP}").startswith("HTTP/1.1 403 ")
    assert since() == [
        ("ALLOW", "analysts-read", "rest://kb/a"),
        ("ALLOW", "analysts-read", "rest://kb/a"),
        ("DENY", "analysts-read", "rest://kb/secret"),
    ]


@pytest.mark.parametrize("address", SOURCES)
def test_tls_is_redirected_to_the_source_of_its_server_name(
    started: Inside, since: Since, address: str
) -> None:
    assert started.get(address, TLS, "/a", "api.test", "api.test").endswith("of api")
    assert since() == [("ALLOW", "analysts-read", "rest://api")]


@pytest.mark.parametrize("address", SOURCES)
def test_a_server_that_speaks_first_is_found_by_its_port(
    started: Inside, since: Since, address: str
) -> None:
    assert started("say", address, TCP, "abc\n", "") == "hello\nABC\n"
    assert since() == [("ALLOW", "analysts-read", "tcp://pg")]


@pytest.mark.parametrize("address", ["198.51.100.7", "2001:db8:1::7"])
def test_a_destination_that_is_no_source_is_denied(
    started: Inside, since: Since, address: str
) -> None:
    where = f"{bracketed(address)}:80"
    assert started.get(address, 80, "/a", where).startswith("HTTP/1.1 403 ")
    assert started.get(address, TLS, "/a", "x.test", "x.test") == "SSLError"
    assert started("say", address, 25, "EHLO x\r\n", "").startswith("HTTP/1.1 400 ")
    assert since() == [
        ("DENY", "unknown_destination", f"http://{where}"),
        ("DENY", "unknown_destination", "https://x.test:443"),
        ("DENY", "unreadable_request", f"http://{bracketed(address)}:25"),
    ]


@pytest.mark.parametrize("address", SOURCES)
def test_a_host_of_another_port_is_a_mismatch(started: Inside, since: Since, address: str) -> None:
    assert started.get(address, HTTP, "/a", "kb.test").startswith("HTTP/1.1 403 ")
    assert since() == [("DENY", "name_mismatch", "http://kb.test:80")]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_direct_connection_to_the_port_has_no_source(
    started: Inside, since: Since, address: str
) -> None:
    # The kernel knows these too, and says that they were meant for where they arrived.
    heard = started.get(address, PORT, "/a", f"kb.test:{HTTP}")
    assert heard == "ConnectionResetError"
    assert [each[:2] for each in since()] == [("DENY", "unknown_destination")]


@pytest.mark.parametrize("address", SOURCES)
def test_connections_of_the_sidecar_s_user_are_not_redirected(
    started: Inside, since: Since, address: str
) -> None:
    for port in (HTTP, TLS, TCP):
        assert started("straight", address, port) == "straight"
    assert since() == []


@pytest.mark.parametrize("address", [*SOURCES, "198.51.100.7", "2001:db8:1::7"])
@pytest.mark.parametrize("port", [443, 53])
def test_packets_that_are_not_tcp_are_refused(started: Inside, address: str, port: int) -> None:
    assert started("udp", address, port) == "PermissionError"
