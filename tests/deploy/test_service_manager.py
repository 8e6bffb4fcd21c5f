"""What systemd hears of a service that serves. Both services send it with a function of their own,
since they share no module with sockets."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from control_api import supervise as control
from sidecar.platform import service_manager as sidecar

BOTH = pytest.mark.parametrize("notify", [control.notify_ready, sidecar.notify_ready])
Notify = Callable[[str | None], None]


@BOTH
def test_ready_reaches_a_socket_in_a_folder_and_an_abstract_one(
    notify: Notify, tmp_path: Path
) -> None:
    name = f"@sluice-{secrets.token_hex(8)}"
    with contextlib.chdir(tmp_path):  # the path of a socket has at most 107 bytes
        for address, bound in (("notify", "notify"), (name, f"\0{name[1:]}")):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.settimeout(30)
                manager.bind(bound)
                notify(address)
                assert manager.recv(100) == b"READY=1"


@BOTH
def test_without_a_service_manager_nothing_is_sent(notify: Notify) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    notify(None)
    notify("")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@BOTH
def test_a_service_manager_that_is_gone_is_an_error(notify: Notify, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), pytest.raises(FileNotFoundError):
        notify("nothing")
