"""Observing the host: `/proc` and the tools."""

import os
import socket
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

import pytest

from sidecar.doctor.host import Host, ListeningSocket, Unobservable

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_listening_socket_is_seen(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.create_server((address, 0), family=family)) as listening:
        port = listening.getsockname()[1]
        assert ListeningSocket(ip_address(address), port, os.geteuid()) in Host().listening()


def test_an_open_connection_is_not_a_listening_socket(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    lines = "   0: 0100007F:2206 0100007F:9A8B {} 00000000:00000000 00:00000000 00000000  1337\n"
    (tmp_path / "net" / "tcp").write_text(HEAD + lines.format("01") + lines.format("0A"))
    assert Host(tmp_path).listening() == [ListeningSocket(ip_address("127.0.0.1"), 8710, 1337)]


def test_a_missing_proc_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unobservable, match="net/tcp"):
        Host(tmp_path).listening()


@pytest.mark.parametrize(
    ("lines", "has"),
    [
        ("", False),
        ("00000000000000000000000000000001 01 80 10 80       lo\n", False),
        ("fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n", False),
        ("fd000000000000000000000000000002 04 40 00 82     eth0\n", True),
    ],
)
def test_ipv6_is_in_use_if_an_address_reaches_beyond_its_link(
    tmp_path: Path, lines: str, has: bool
) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "if_inet6").write_text(lines)
    assert Host(tmp_path).has_ipv6() is has


def test_a_loopback_address_leaves_by_the_loopback_interface() -> None:
    assert Host().outgoing_interfaces(ip_address("127.0.0.1")) == ("lo",)
    assert "lo" not in Host().outgoing_interfaces(ip_address("203.0.113.9"))


def test_a_name_that_does_not_resolve_is_reported() -> None:
    # Too long for a name, so that no server is asked.
    with pytest.raises(Unobservable, match="can't be resolved"):
        Host().addresses("k" * 64)
    assert Host().addresses("127.0.0.1") == [ip_address("127.0.0.1")]


def tool(folder: Path, text: str) -> Host:
    """A program in place of `iptables-save`."""
    path = folder / "iptables-save"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Host(tools=str(folder))


def test_rules_are_read_from_the_tool(tmp_path: Path) -> None:
    text = "cat <<E\n*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p tcp -j REDIRECT\nCOMMIT\nE"
    [rule] = tool(tmp_path, text).rules(4).outgoing(nat_only=True)
    assert rule.target == "REDIRECT"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo 'Permission denied (you must be root)' >&2; exit 4", "you must be root"),
        ("echo nonsense", "not a line"),
    ],
)
def test_a_failing_tool_is_not_an_empty_rule_set(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(Unobservable, match=says):
        tool(tmp_path, text).rules(4)


@pytest.mark.skipif(os.geteuid() == 0, reason="root sees all rules")
def test_an_empty_rule_set_read_without_root_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(Unobservable, match="root"):
        tool(tmp_path, "true").rules(4)


@pytest.mark.skipif(os.geteuid() != 0, reason="an empty rule set is believed only of root")
def test_an_empty_rule_set_read_by_root_is_trusted(tmp_path: Path) -> None:
    assert tool(tmp_path, "true").rules(4).tables == {}


def test_a_warning_of_the_tool_is_kept(tmp_path: Path) -> None:
    text = "echo '*nat'; echo '# Warning: iptables-legacy tables present' >&2"
    assert "legacy" in tool(tmp_path, text).rules(4).incomplete


def test_a_missing_tool_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unobservable, match="ip6tables-save"):
        tool(tmp_path, "true").rules(6)
