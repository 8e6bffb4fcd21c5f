"""Who listens on an address: a child that was told to, another program, or none."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from deploy.local import listening
from deploy.local.listening import Listener, listener
from deploy.local.settings import Address

SESSION_OF_NONE = -1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1"])
def test_the_listener_is_known_by_its_session(host: str, bound: str) -> None:
    six = ":" in bound  # as servers of gRPC bind an IPv4 address
    family = socket.AF_INET6 if six else socket.AF_INET
    with socket.create_server((bound, 0), family=family, dualstack_ipv6=six) as server:
        address = Address(host, server.getsockname()[1])
        with _holder(server) as child:
            server.close()
            assert listener(address, child.pid) is Listener.OURS
            assert listener(address, SESSION_OF_NONE) is Listener.ANOTHER


def _holder(server: socket.socket) -> subprocess.Popen[bytes]:
    """A process in a session of its own that has the server's socket open until its input ends."""
    return subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, pass_fds=[server.fileno()], start_new_session=True
    )


def test_a_server_of_another_host_is_not_the_listener() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # so that no other program listens there
        address = Address(*held.getsockname())
        with socket.create_server(("127.0.0.2", address.port)):
            assert listener(address, SESSION_OF_NONE) is Listener.NONE


def test_a_bound_socket_that_does_not_listen_is_no_listener() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert listener(Address(*held.getsockname()), SESSION_OF_NONE) is Listener.NONE


def test_without_proc_the_listener_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(listening, "PROC", tmp_path)
    assert listener(Address("127.0.0.1", 1), SESSION_OF_NONE) is Listener.UNKNOWN
