"""What systemd hears of a service that serves."""

from __future__ import annotations

import contextlib
import secrets
import socket
from pathlib import Path

import pytest

from policies.ground.process.sockets import notify_ready


def test_readiness_is_sent_to_a_socket_in_a_folder_or_an_abstract_one(tmp_path: Path) -> None:
    name = f"@sluice-{secrets.token_hex(8)}"
    with contextlib.chdir(tmp_path):  # the path of a socket has at most 107 bytes
        for address, bound in (("notify", "notify"), (name, f"\0{name[1:]}")):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.settimeout(30)
                manager.bind(bound)
                notify_ready(address)
                assert manager.recv(100) == b"READY=1"


def test_without_a_service_manager_nothing_is_sent() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    notify_ready(None)
    notify_ready("")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_unreachable_service_manager_is_an_error(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), pytest.raises(FileNotFoundError):
        notify_ready("nothing")
