"""Requests that are judged by their body, through the gateways that send it along: MCP messages.

The recipe's files are started as they are, but for the name or port of the door, whose source is
that of the recipe `mcp`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from tests.deploy.gateways import recipes
from tests.deploy.gateways.conftest import Gateways
from tests.deploy.gateways.gateway_programs import WITH_BODIES, WITHOUT_BODIES, gateway
from tests.deploy.gateways.protected import Protected
from tests.deploy.gateways.raw_requests import get, one, status
from tests.deploy.gateways.recipes import twin_door

WITHOUT_CHUNKED_BODIES = ("haproxy",)
SAFETY = "headers"
"""The name of the safety lines that matter for bodies alone."""
FIELDS = ("Content-Type: application/json", "Accept: application/json, text/event-stream")


def call(tool: str, padding: str = "") -> bytes:
    """An MCP call of a tool."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": {"padding": padding}},
    }
    return json.dumps(message).encode()


@pytest.fixture(scope="module")
def asked(world: Protected, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    """The gateways with the door of the MCP source."""
    folder = tmp_path_factory.mktemp("gateways")

    def start(name: str) -> AbstractContextManager[int]:
        return gateway(name, folder / name, world.behind_twin("tools"), twin_door(name, "tools"))

    with ExitStack() as kept:
        yield Gateways(start, kept)


def ask(port: int, body: bytes, *fields: str) -> bytes:
    return one(port, get("/mcp", *FIELDS, *fields, method="POST", body=body))


@pytest.mark.parametrize("name", WITH_BODIES)
def test_the_body_decides_and_arrives_unchanged(
    name: str, world: Protected, asked: Gateways
) -> None:
    world.upstream.take()
    allowed = call("search", "é" * 100)
    assert status(ask(asked.port(name), allowed)) == 200
    (seen,) = world.upstream.take()
    assert (seen.method, seen.target, seen.body) == ("POST", "/mcp", allowed)
    event = world.event(seen)
    assert (event["decision"], event["source_id"]) == ("ALLOW", "mcp://tools/tool/search")
    denied = ask(asked.port(name), call("delete_all"))
    # Envoy's own service can answer so that an MCP client keeps its session.
    assert status(denied) == (200 if name == "envoy-grpc" else 403)
    assert (b"-32001" in denied) == (name == "envoy-grpc")
    ask(asked.port(name), json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode())
    assert world.upstream.take() == []


def disagrees(world: Protected, port: int) -> bool:
    """A message reaches the upstream whose headers name another tool than its body."""
    world.upstream.take()
    version = ("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call")
    ask(port, call("search"), *version, "Mcp-Name: delete_all")
    return bool(world.upstream.take())


@pytest.mark.parametrize("name", WITH_BODIES)
def test_the_headers_of_a_message_must_agree_with_its_body(
    name: str, world: Protected, asked: Gateways, tmp_path: Path
) -> None:
    assert not disagrees(world, asked.port(name))
    for number, line in recipes.safety(name):
        if line == SAFETY:
            change = twin_door(name, "tools")._replace(left_out=number)
            with gateway(name, tmp_path, world.behind_twin("tools"), change) as port:
                assert disagrees(world, port)


@pytest.mark.parametrize("name", WITHOUT_BODIES)
def test_a_recipe_that_does_not_send_the_body_denies(
    name: str, world: Protected, asked: Gateways
) -> None:
    world.upstream.take()
    assert status(ask(asked.port(name), call("search"))) == 403
    assert world.upstream.take() == []


@pytest.mark.parametrize("name", WITH_BODIES)
def test_a_body_with_two_readings_or_over_the_limit_does_not_pass(
    name: str, world: Protected, asked: Gateways
) -> None:
    world.upstream.take()
    allowed, denied = call("search"), call("delete_all")
    chunk = b"%x\r\n%s\r\n"
    head = get("/mcp", *FIELDS, "Transfer-Encoding: chunked", method="POST")
    # Twice the same member: a reader takes the first, another the last.
    twice = allowed.replace(b'"name": "search"', b'"name": "search", "name": "delete_all"')
    for body in (twice, twice[:-1], b"[" + allowed + b"," + denied + b"]", b"", b"{}", b"\xff"):
        ask(asked.port(name), body)
    ask(asked.port(name), allowed, "Content-Encoding: gzip")
    ask(asked.port(name), denied, "x-envoy-auth-partial-body: false", "Mcp-Name: search")
    ask(asked.port(name), denied, "X-HTTP-Method-Override: GET", "X-Forwarded-Method: GET")
    one(asked.port(name), head + chunk % (len(denied), denied) + b"0\r\n\r\n")
    # An allowed message that ends where a gateway's limit does, and more behind it.
    whole = allowed.ljust(1_000_000)
    longer = b"".join(chunk % (len(each), each) for each in (whole, denied))
    one(asked.port(name), head + longer + b"0\r\n\r\n")
    # Longer than a gateway sends along, and than Sluice reads.
    for size in (900_000, 2_000_000):
        ask(asked.port(name), call("delete_all", "x" * size))
        ask(asked.port(name), b" " * size + denied)
    ask(asked.port(name), call("search", "x" * 2_000_000))
    assert world.upstream.take() == []


@pytest.mark.parametrize("name", WITH_BODIES)
def test_a_chunked_body_is_judged_whole(name: str, world: Protected, asked: Gateways) -> None:
    """Or not at all, by a gateway that can't tell whether it is whole."""
    world.upstream.take()
    allowed = call("search")
    half = len(allowed) // 2
    pieces = b"".join(
        b"%x\r\n%s\r\n" % (len(each), each) for each in (allowed[:half], allowed[half:], b"")
    )
    head = get("/mcp", *FIELDS, "Transfer-Encoding: chunked", method="POST")
    answer = one(asked.port(name), head + pieces)
    if name in WITHOUT_CHUNKED_BODIES:
        assert (status(answer), world.upstream.take()) == (403, [])
        return
    assert status(answer) == 200
    (seen,) = world.upstream.take()
    assert seen.body == allowed
    assert world.event(seen)["source_id"] == "mcp://tools/tool/search"
