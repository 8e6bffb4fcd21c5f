"""What takes long ends with its client: reads, analyses and streams at once, a batch after the
decision under way, which is recorded."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from sqlalchemy import text

from control_api.audit import verification_operations as verify_log_module
from control_api.current_request import client_left
from control_api.decisions import operations as evaluate_batch_module
from control_api.decisions.operations import decide_and_record
from control_api.edge.route import Route, Scope
from control_api.edge.sending import ReplyEncoder, send
from control_api.edge.server import ApiListener
from control_api.log import read
from control_api.policy.analyses.process import Analyses
from control_api.routes import ROUTES
from control_api.store.store import Store
from policies.ground.addresses import ListenAddress
from tests.support import waiting
from tests.support.control_api import ControlApi, asked
from tests.support.postgres import serving
from tests.support.waiting import until, until_async

POLICY = {
    "agent_role": "support",
    "allowed_sources": ["*"],
    "denied_sources": [],
    "max_sensitivity": "low",
}
LARGE = {"policies": [{**POLICY, "name": f"p{number}"} for number in range(500)]}
"""More than is analysed in the process that asks."""


def close(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


LEAVES: dict[str, Callable[[socket.socket], None]] = {"closes": close, "resets": reset}


@contextmanager
def asking(api: ControlApi, method: str, path: str, body: Any) -> Iterator[socket.socket]:
    """The connection of a client that has sent this request."""
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: a", f"X-API-Key: {api.admin_key}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}", "", ""]
    connection = socket.create_connection(("127.0.0.1", api.port))
    try:
        connection.sendall("\r\n".join(lines).encode() + data)
        yield connection
    finally:
        connection.close()


class Held:
    """Stands for work that never ends by itself."""

    def __init__(self) -> None:
        self.begun = self.ended = False

    async def __call__(self, *_given: Any, **_named: Any) -> Any:
        self.begun = True
        try:
            await waiting.never()
        finally:
            self.ended = True


READS: dict[str, tuple[str, str, Any, Any, str]] = {
    "verification": ("GET", "/v1/audit/verify", None, verify_log_module, "verify"),
    "search": ("GET", "/v1/audit/events", None, read, "events"),
    "analysis": ("POST", "/v1/policies/diff", LARGE, Analyses, "_ask"),
}


@pytest.mark.parametrize("how", LEAVES)
@pytest.mark.parametrize("kind", READS)
def test_a_read_ends_with_its_client(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch, kind: str, how: str
) -> None:
    method, path, body, module, name = READS[kind]
    held = Held()
    monkeypatch.setattr(module, name, held)
    with asking(api, method, path, body) as connection:
        until("it is under way", lambda: held.begun)
        assert not held.ended
        LEAVES[how](connection)
        until("it has ended", lambda: held.ended)
    monkeypatch.undo()
    assert api.call(method, path, body).status == 200, "nothing of it is left"


@pytest.mark.parametrize("how", LEAVES)
def test_the_database_ends_a_query_whose_client_has_left(
    api_on_postgresql: ControlApi,
    migrated_url_of_module: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    api = api_on_postgresql
    url = serving(migrated_url_of_module).replace("+asyncpg", "")

    async def events(store: Store, tenant_id: str, *_: Any) -> None:
        async with store.reading(tenant_id) as connection:
            await connection.execute(text("SELECT pg_sleep(3600)"))

    async def sleeping() -> int:
        connection = await asyncpg.connect(url)
        try:
            query = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3600)'"
            return int(await connection.fetchval(f"{query} AND state = 'active'"))
        finally:
            await connection.close()

    monkeypatch.setattr(read, "events", events)
    with asking(api, "GET", "/v1/audit/events", None) as connection:
        until("the query runs", lambda: asyncio.run(sleeping()))
        LEAVES[how](connection)
        until("it has ended", lambda: not asyncio.run(sleeping()))
    monkeypatch.undo()
    assert api.events() == []
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("how", LEAVES)
def test_a_batch_that_may_stop_ends_with_its_client(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    decide, begun, done = decide_and_record, [0], [0]

    async def slow(*given: Any) -> Any:
        begun[0] += 1
        while not client_left():  # there is no event
            await asyncio.sleep(0.005)
        found = await decide(*given)
        done[0] += 1
        return found

    monkeypatch.setattr(evaluate_batch_module, "decide_and_record", slow)
    before = api.verified()["events"]
    body = {"items": [asked()] * 20, "semantics": "stop_on_deny"}
    with asking(api, "POST", "/v1/context/evaluate/batch", body) as connection:
        until("the first is being decided", lambda: begun[0])
        LEAVES[how](connection)
        until("it is decided", lambda: done[0])
    monkeypatch.undo()
    # Other requests have had their turns since then.
    assert api.verified()["events"] == before + 1
    assert begun == [1]


async def test_a_stream_ends_with_its_client_between_two_pieces() -> None:
    open_, closed = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            yield b"first"
            open_.set()
            await waiting.never()
        finally:
            closed.set()

    class Streams:
        def __init__(self) -> None:
            self.new_request_id = lambda: "1"
            self.response = ReplyEncoder(lambda: 0).response

        async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
            return await send(request, web.StreamResponse(), pieces())

    listener = await ApiListener.open(ListenAddress("127.0.0.1", 0), "X", Streams(), [])
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        await until_async("the stream has begun", open_.is_set)
        writer.close()
        await until_async("it is closed", closed.is_set)
    finally:
        await listener.drain(1)


def _ends_early(route: Route) -> bool:
    return hasattr(route.operation, "__wrapped__")


def test_only_reads_end_early_with_their_client() -> None:
    early = {route.name for route in ROUTES if _ends_early(route)}
    assert "verify_log" in early
    reads = frozenset({Scope.read, Scope.admin})
    assert early <= {route.name for route in ROUTES if route.scopes == reads}
