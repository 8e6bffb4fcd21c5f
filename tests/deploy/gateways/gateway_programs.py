"""Starts a gateway with a recipe's files, by the commands of the recipe's README."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests import servers
from tests.deploy.gateways import raw_requests, recipes
from tests.support import documents
from tests.support.ports import free_port
from tests.support.stack import Service
from tests.support.waiting import AWAY, until

PROGRAMS = {
    "caddy": "caddy",
    "envoy-grpc": "envoy",
    "envoy-http": "envoy",
    "haproxy": "haproxy",
    "nginx": "nginx",
    "traefik": "traefik",
}
"""The recipes that a test can start, and the program of each."""
STARTED = tuple(PROGRAMS)
WITHOUT_BODIES = ("caddy", "nginx")
"""Gateways that can't send a body with a check."""
WITH_BODIES = tuple(name for name in STARTED if name not in WITHOUT_BODIES)


@dataclass(frozen=True)
class Behind:
    """What a gateway is put before: ports on loopback, and the gateway's key."""

    http_door: int
    grpc_door: int
    upstream: int
    key: str


@contextmanager
def gateway(
    name: str, folder: Path, behind: Behind, change: recipes.Change = recipes.UNCHANGED
) -> Iterator[int]:
    """A running gateway with the files of a recipe; yields its port. Skips the test if the program
    is absent."""
    program = servers.need(PROGRAMS[name])
    port = free_port()
    ports = {
        recipes.IN: port,
        recipes.DOOR: behind.http_door,
        recipes.GRPC_DOOR: behind.grpc_door,
        recipes.UPSTREAM: behind.upstream,
    }
    recipes.copy(name, folder, ports, change)
    (folder / "edge.key").write_text(behind.key)
    if name == "nginx" and os.getuid() == 0:
        # Its workers would run as `nobody`, who may not enter the test's folder.
        with (folder / "nginx.conf").open("a") as conf:
            conf.write("user root;\n")
    script = documents.commands(f"deploy/gateways/{name}/README.md", "start")
    yield from run(script, program, folder, port)


def run(script: str, program: Path, folder: Path, port: int) -> Iterator[int]:
    """Run a script in `folder` whose last line is a gateway. Yields its port once it forwards."""
    # The gateway takes the shell's place, so that it can be ended.
    script = re.sub(r"^(?=.*\n\Z)", "exec ", script, flags=re.MULTILINE)
    path = os.pathsep.join([str(program.parent), os.environ.get("PATH", "")])
    environ = {"PATH": path, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    command = ["bash", "-euo", "pipefail", "-c", script]
    service = Service(program.name, command, environ, folder / "gateway.log", port, tree=folder)
    service.start(ready=False)

    def up() -> bool:
        assert service.process is not None
        assert service.process.poll() is None, f"{program.name} ended:\n{service.tail()}"
        # Traefik listens before it has read its routes, and answers 404 till then.
        return raw_requests.status(raw_requests.one(port, raw_requests.get("/ready"))) != 404

    try:
        until(f"{program.name} forwards", up, despite=AWAY)
        yield port
    finally:
        workers = _children(service.pid)
        service.kill()
        for each in workers:  # those of nginx outlive it
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


def _children(process_id: int) -> list[int]:
    """The processes that a running one has started; none if it has ended."""
    try:
        lists = [each.read_text() for each in Path(f"/proc/{process_id}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for listed in lists for child in listed.split()]
