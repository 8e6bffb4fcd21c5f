"""Real gateways in front of a sidecar that is away, hangs, dies, is full or out of date: whatever
happens to it, the upstream gets nothing without an ALLOW on record."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.architecture.tree import ROOT
from tests.deploy.gateways.gateway_programs import PROGRAMS, STARTED, gateway
from tests.deploy.gateways.protected import Protected, protected
from tests.deploy.gateways.raw_requests import get, one, status
from tests.support import waiting
from tests.support.ports import free_port
from tests.support.waiting import until

MIB = 1024 * 1024
PATIENCE = 5
"""Seconds that a client waits. The gateways give up after 2, but for Traefik, which waits 30 for a
check: its client leaves before."""
README = (ROOT / "deploy/gateways/README.md").read_text("utf-8")


def sidecar_gone(name: str) -> int:
    """The status that the README's last table has for a gateway."""
    table = README.partition("| Sidecar gone |\n")[2]
    row = next(each for each in table.splitlines() if f"({name}/README.md)" in each)
    return int(row.split("|")[-2].split(":")[0])


AWAY = {name: sidecar_gone(name) for name in STARTED}
"""What a gateway answers by itself while the sidecar is away, as the README says."""
HANGING = {"traefik": 0}
"""Where that is another while the sidecar hangs."""
LIMITS = {
    "caddy": ("Caddyfile", "response_header_timeout 2s\n"),
    "envoy-grpc": ("envoy.yaml", "timeout: 2s\n"),
    "envoy-http": ("envoy.yaml", "timeout: 2s}\n"),
    "haproxy": ("sluice.lua", "timeout = 2000 }\n"),
    "nginx": ("nginx.conf", "proxy_read_timeout 2s;\n"),
}
"""Where a recipe says how long its gateway waits for a check. Traefik's can't."""
FULL = {"envoy-grpc": 503}
"""Where a request without a decision gets another status than 403: over gRPC it is 503."""


@dataclass(frozen=True)
class Fronted:
    """What is protected, and the port of each gateway that there is in front of it."""

    world: Protected
    ports: dict[str, int]

    def statuses(self) -> dict[str, int]:
        """What each gateway answers to a request that the sidecar allows; 0 for one without an
        answer, at which the client closes the connection."""

        def ask(port: int) -> int:
            try:
                return status(one(port, get("/pub/a"), PATIENCE))
            except OSError:
                return 0

        with ThreadPoolExecutor(len(self.ports)) as pool:
            return dict(zip(self.ports, pool.map(ask, self.ports.values()), strict=True))

    def refusals(self) -> dict[str, int]:
        """What each gateway answers, of which none lets the request through."""
        self.world.upstream.take()
        found = self.statuses()
        assert self.world.upstream.take() == []
        assert 200 not in found.values()
        return found

    def everything_passes(self) -> None:
        """Wait until each gateway lets that request through, again."""
        until("all pass", lambda: set(self.statuses().values()) == {200}, despite=waiting.AWAY)

    def restart(self, **changed: Any) -> None:
        """Start the sidecar again, with these settings in place of its own."""
        stack = self.world.stack
        stack.sidecar.stop()
        config = stack.directory / "sidecar.yaml"
        config.write_text(json.dumps({**json.loads(config.read_text()), **changed}))
        stack.sidecar.start()
        self.everything_passes()


@pytest.fixture(scope="module")
def fronted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronted]:
    here = [name for name in STARTED if servers.find(PROGRAMS[name]) is not None]
    with ExitStack() as kept:
        world = kept.enter_context(protected(tmp_path_factory.mktemp("fronted"), here))
        folder = tmp_path_factory.mktemp("gateways")
        ports = {
            name: kept.enter_context(gateway(name, folder / name, world.behind)) for name in here
        }
        found = Fronted(world, ports)
        found.everything_passes()
        yield found


@contextmanager
def stopped(world: Protected, service: str) -> Iterator[None]:
    """A service that hangs: its process is stopped, and its connections stay open."""
    process = getattr(world.stack, service)
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


@pytest.mark.parametrize("name", LIMITS)
def test_a_recipe_sets_a_limit_of_two_seconds_for_a_check(name: str) -> None:
    file, limit = LIMITS[name]
    assert f" {limit}" in (ROOT / "deploy/gateways" / name / file).read_text().replace("\t", " ")


@pytest.mark.deep(stands_in="test_nothing_passes_while_the_sidecar_is_down_or_starts")
def test_nothing_passes_while_the_sidecar_hangs(fronted: Fronted) -> None:
    with stopped(fronted.world, "sidecar"):
        found = fronted.refusals()
    assert found == {name: HANGING.get(name, AWAY[name]) for name in found}
    # It now decides what it was asked meanwhile, and no gateway waits for that.
    fronted.everything_passes()
    assert fronted.world.unjudged(fronted.world.upstream.take()) == []


def test_nothing_passes_while_the_sidecar_is_down_or_starts(fronted: Fronted) -> None:
    # To a gateway, one that hangs is one that is down, once it has waited.
    for name in LIMITS:
        test_a_recipe_sets_a_limit_of_two_seconds_for_a_check(name)
    fronted.world.stack.sidecar.kill()
    found = fronted.refusals()
    assert found == {name: AWAY[name] for name in found}
    fronted.world.stack.sidecar.start(ready=False)
    fronted.everything_passes()
    assert fronted.world.unjudged(fronted.world.upstream.take()) == []


@pytest.mark.deep(stands_in="test_nothing_passes_while_the_sidecar_is_down_or_starts")
@pytest.mark.parametrize("name", ["caddy", "nginx"])
def test_an_unreachable_upstream_is_told_from_an_unreachable_sidecar(
    name: str, fronted: Fronted, tmp_path: Path
) -> None:
    behind = replace(fronted.world.behind, upstream=free_port())
    with gateway(name, tmp_path, behind) as port:
        assert status(one(port, get("/pub/a"))) == 502


@pytest.mark.deep(
    stands_in="tests/sidecar/doors/http/test_answers.py::test_no_answer_leaves_before_its_record_is_on_disk"
)
def test_every_request_passed_before_a_kill_under_load_is_recorded(fronted: Fronted) -> None:
    fronted.world.upstream.take()
    numbers = itertools.count()
    over = threading.Event()

    def load() -> None:
        for port in itertools.cycle(fronted.ports.values()):
            if over.is_set():
                return
            try:
                one(port, get(f"/pub/{next(numbers)}"))
            except OSError:
                continue  # no answer is no leave

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(load) for _ in range(4)]
        try:
            until("load passes", lambda: len(fronted.world.upstream.seen) > 100)
            fronted.world.stack.sidecar.kill()
            asked = next(numbers)
            until("load goes on", lambda: next(numbers) > asked + 200)
        finally:
            over.set()
        for each in running:
            each.result(60)
    seen = fronted.world.upstream.take()
    fronted.world.stack.sidecar.start()
    assert len(seen) > 100
    assert fronted.world.unjudged(seen) == []
    fronted.everything_passes()


def fill(fronted: Fronted) -> None:
    """Ask the sidecar until it has no room for another record of an ALLOW."""
    fields = {
        "X-API-Key": fronted.world.stack.agent_key,
        "X-Forwarded-Method": "GET",
        "X-Forwarded-Uri": f"/pub/{'x' * 200}",
        "X-Sluice-User": "u" * 250,
    }
    full = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", fronted.world.behind.http_door)
        while not full.is_set():
            connection.request("GET", "/v1/check/nginx", headers=fields)
            answer = connection.getresponse()
            answer.read()
            if answer.getheader("X-Sluice-Decision") == "NONE":
                full.set()
        connection.close()

    with ThreadPoolExecutor(32) as pool:  # one sync of the disk is for many
        for each in [pool.submit(ask) for _ in range(32)]:
            each.result(120)


@pytest.mark.deep(
    stands_in="tests/sidecar/doors/http/test_answers.py::test_a_full_spool_is_no_decision"
)
def test_nothing_passes_when_there_is_no_room_for_records(fronted: Fronted) -> None:
    spool = {"dir": "small", "segment_bytes": MIB, "max_bytes": 3 * MIB}
    fronted.restart(spool=spool, staleness_seconds=86400)
    with stopped(fronted.world, "control"):
        fill(fronted)
        found = fronted.refusals()
        assert found == {name: FULL.get(name, 403) for name in found}
        for name, port in fronted.ports.items():
            answer = one(port, get("/pub/a"), PATIENCE).lower()
            assert (b"\r\nx-sluice-decision: none\r\n" in answer) == (name not in FULL), name
    fronted.everything_passes()


@pytest.mark.deep(
    stands_in="tests/sidecar/test_enforce.py::test_a_stale_policy_set_denies_and_is_recorded"
)
def test_nothing_passes_by_a_policy_set_that_is_stale(fronted: Fronted) -> None:
    fronted.restart(spool={"dir": "spool"}, staleness_seconds=1)
    with stopped(fronted.world, "control"):
        until("the set is stale", lambda: 200 not in fronted.statuses().values())
        assert set(fronted.refusals().values()) == {403}
    fronted.restart(staleness_seconds=30)
