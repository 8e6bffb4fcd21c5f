"""Attacks through real gateways, each started with its recipe's files, before a real sidecar."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import documents
from tests.deploy.gateways import recipes
from tests.deploy.gateways.gateway_programs import STARTED, gateway
from tests.deploy.gateways.probes import IDENTITY, PROBES, spoken_for
from tests.deploy.gateways.protected import Protected
from tests.deploy.gateways.raw_requests import get, one, send, status
from tests.sidecar.proxy.bypasses import BYPASSES, PASSING, request


class Gateways:
    """The gateways with their whole recipes, each started when a test first needs it."""

    def __init__(self, world: Protected, folder: Path, kept: ExitStack) -> None:
        self._world, self._folder, self._kept = world, folder, kept
        self._ports: dict[str, int] = {}

    def port(self, name: str) -> int:
        if name not in self._ports:
            made = gateway(name, self._folder / name, self._world.behind)
            self._ports[name] = self._kept.enter_context(made)
        return self._ports[name]


@pytest.fixture(scope="module")
def gateways(world: Protected, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    with ExitStack() as kept:
        yield Gateways(world, tmp_path_factory.mktemp("gateways"), kept)


@pytest.mark.parametrize("name", STARTED)
def test_what_is_allowed_arrives_unchanged_and_what_is_denied_does_not(
    name: str, world: Protected, gateways: Gateways
) -> None:
    port = gateways.port(name)
    world.upstream.take()
    allowed = one(port, get("/info/a%20b?q=1&r=%2F", "X-Kept: as it is", "Accept: x/y"))
    assert (status(allowed), allowed.endswith(b"upstream")) == (200, True)
    (seen,) = world.upstream.take()
    assert (seen.method, seen.target) == ("GET", "/info/a%20b?q=1&r=%2F")
    assert seen.all("x-kept") == ["as it is"]
    assert seen.all("accept") == ["x/y"]
    assert world.unjudged([seen]) == []
    event = world.event(seen)
    assert event["source_type"] == recipes.sidecar(name)["doors"][0]["name"]
    denied = one(port, get("/admin"))
    written = one(port, get("/info/a", method="DELETE"))
    assert (status(denied), status(written)) == (403, 403)
    assert world.upstream.take() == []


@pytest.mark.parametrize("name", STARTED)
def test_no_word_of_a_client_counts(name: str, world: Protected, gateways: Gateways) -> None:
    port = gateways.port(name)
    fields = [each.format(key=world.others_key) for each in IDENTITY]
    world.upstream.take()
    for field in fields:
        assert status(one(port, get("/admin", field))) == 403, field
        assert status(one(port, get("/other/a", field))) == 403, field
    assert world.upstream.take() == []
    for field in fields:
        assert status(one(port, get("/info/a", field))) == 200, field
    seen = world.upstream.take()
    assert len(seen) == len(fields)
    assert world.unjudged(seen) == []
    assert [each for each in seen if spoken_for(world.event(each))] == []


HOST = "Host: kb.test"
BEHIND = b"GET /admin HTTP/1.1\r\nHost: kb.test\r\n\r\n"
SHAPES = (
    # Other forms of a target, and other versions.
    *(
        request(f"{line} HTTP/1.1", HOST)
        for line in (
            "GET http://kb.test/admin", "GET http://admin/info/a", "GET http://kb.test//admin",
            "GET http://kb.test/info/../admin", "GET http://kb.test", "GET http:///admin",
            "GET https://kb.test/admin", "CONNECT 127.0.0.1:9000", "CONNECT /admin",
            "CONNECT http://kb.test/info/a", "OPTIONS *", "GET *", "GET info/a", "GET ?/info/a",
            "GET /info/a /admin", "PRI *",
        )
    ),
    request("GET /admin HTTP/1.0", HOST), request("GET /info/a HTTP/1.0"),
    b"GET /admin\r\n", b"GET /info/a\r\n\r\n", request("GET /admin HTTP/1.9", HOST),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    # Another host, or two.
    request("GET /admin HTTP/1.1", "Host: admin"), request("GET /info/a HTTP/1.1", "Host: admin"),
    request("GET /admin HTTP/1.1", "Host: kb.test, admin"), request("GET /info/a HTTP/1.1"),
    # One request in another.
    get("/info/a", method="POST", body=BEHIND),
    request("GET /info/a HTTP/1.1", HOST, "Content-Length: 46") + BEHIND,
    request("GET /info/a HTTP/1.1", HOST) + BEHIND + request("GET /pub/a HTTP/1.1", HOST),
    request("GET /info/a HTTP/1.1", HOST, "Content-Length: 5", "Transfer-Encoding: chunked")
    + b"0\r\n\r\n" + BEHIND,
    request("GET /info/a HTTP/1.1", HOST, "Transfer-Encoding: chunked")
    + b"3;x=\"\n\"\r\nabc\r\n0\r\nX-Sluice-User: mallory\r\nX-Api-Key: x\r\n\r\n" + BEHIND,
    request("GET /info/a HTTP/1.1", HOST, "Transfer-Encoding: chunked")
    + b"FFFFFFFFFFFFFFFF0\r\n" + BEHIND,
    request("GET /info/a HTTP/1.1", HOST, "X: y\rGET /admin HTTP/1.1"),
    request("GET /info/a HTTP/1.1", HOST, "X: y\nX-Sluice-User: mallory"),
    request("GET /info/a HTTP/1.1", HOST, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
            "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
    request("GET /info/a HTTP/1.1", HOST, "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"),
    # More than a head may have.
    request("GET /admin HTTP/1.1", HOST, *(f"X-{number}: {number}" for number in range(2000))),
    request("GET /info/a HTTP/1.1", HOST, f"X: {'x' * 100_000}"),
    request(f"GET /info/{'a' * 70_000} HTTP/1.1", HOST),
    request(f"GET /info/a?{'a' * 20_000} HTTP/1.1", HOST),
)  # fmt: skip


@pytest.mark.parametrize("name", STARTED)
def test_the_upstream_gets_nothing_but_what_was_judged(
    name: str, world: Protected, gateways: Gateways
) -> None:
    port = gateways.port(name)
    world.upstream.take()
    table = [each.data for each in BYPASSES] + [each.data for each in PASSING]
    with ThreadPoolExecutor(16) as pool:  # some wait for the rest of a request
        statuses = list(pool.map(functools.partial(send, port), [*table, *SHAPES]))
    # They were sent, and read: whatever is refused, the request behind it often passes.
    assert sum(200 in each for each in statuses) > len(PASSING)
    assert world.unjudged(world.upstream.take()) == []


@pytest.mark.parametrize("name", STARTED)
def test_no_probe_gets_past_a_whole_recipe(name: str, world: Protected, gateways: Gateways) -> None:
    port = gateways.port(name)
    assert [each for each, probe in PROBES.items() if probe(world, port)] == []


@pytest.mark.parametrize(
    ("name", "number", "line"),
    [
        pytest.param(name, number, line, id=f"{name}-{number}-{line}")
        for name in STARTED
        for number, line in recipes.safety(name)
    ],
)
def test_without_a_safety_line_its_probe_gets_past(
    name: str, number: int, line: str, world: Protected, tmp_path: Path
) -> None:
    with gateway(name, tmp_path, world.behind, recipes.Change(number)) as port:
        assert PROBES[line](world, port)


def test_the_readme_s_questions_are_answered(
    world: Protected, gateways: Gateways, tmp_path: Path
) -> None:
    script = documents.commands("deploy/gateways/README.md", "ask")
    environ = {**os.environ, "GATEWAY": f"http://127.0.0.1:{gateways.port('nginx')}"}
    done = documents.paste(script, tmp_path, environ)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"HTTP/1.1 (\d+)", done.stdout) == ["200", "403"]
