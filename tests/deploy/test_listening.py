"""Who listens on an address: a child that was told to, another program, or none."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from deploy.local import listening
from deploy.local.listening import Listener, listener
from deploy.local.settings import Address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
def test_the_listener_is_known_by_its_session(host: str, bound: str) -> None:
    with socket.create_server((bound, 0)) as server:
        address = Address(host, server.getsockname()[1])
        assert listener(address, os.getsid(0)) is Listener.OURS
        assert listener(address, -1) is Listener.ANOTHER
    assert listener(address, os.getsid(0)) is Listener.NONE


def test_a_server_of_another_host_is_not_the_listener() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        address = Address("127.0.0.1", server.getsockname()[1])
        assert listener(address, os.getsid(0)) is Listener.NONE


def test_a_bound_socket_that_does_not_listen_is_no_listener() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert listener(Address(*held.getsockname()), os.getsid(0)) is Listener.NONE


def test_without_proc_the_listener_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(listening, "PROC", tmp_path)
    assert listener(Address("127.0.0.1", 1), os.getsid(0)) is Listener.UNKNOWN
