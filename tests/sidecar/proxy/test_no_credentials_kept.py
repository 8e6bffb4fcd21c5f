"""No credential outlives its request: not in the connections, nor in the caches of field names and
targets."""

import asyncio
import gc
import types
from pathlib import Path
from typing import Any

import pytest

from sidecar.http import headers
from sidecar.http.client.connection import UpstreamConnection
from tests.sidecar.proxy.segmented_agent import OWN, WAYS, answers, way_in
from tests.sidecar.wire import GOOD, answer_of, connect, request, with_key
from tests.support import waiting
from tests.support.fake_control_api import EVALUATE_KEY, fake_control_api
from tests.support.scripted_source import Seen
from tests.support.sidecar import running_sidecar
from tests.support.waiting import until_async

SECRET = "s3cr3t-0123456789-abcdef"
FIELDS = (
    f"Authorization: Bearer {SECRET}",
    f"Cookie: session={SECRET}",
    f"api-key: {SECRET}",
    f"Proxy-Authorization: Basic {SECRET}",
    f"X-Amz-Security-Token: {SECRET}",
)

_CLOSED = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    types.CoroutineType,
    type,
    asyncio.AbstractEventLoop,
    # The parser of a connection at rest has the last answer's head until the next one, or until
    # the connection ends 15 s later.
    UpstreamConnection,
)


def holding(secret: str, *roots: object) -> list[object]:
    """The texts that hold it, of all that can be reached from `roots` but through code."""
    wanted = secret.encode()
    seen: set[int] = set()
    left: list[Any] = list(roots)
    found: list[object] = []
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, _CLOSED):
            continue
        seen.add(id(each))
        if isinstance(each, str):
            found += [each] if secret in each else []
        elif isinstance(each, bytes | bytearray):
            found += [each] if wanted in each else []
        elif isinstance(each, dict):
            # The collector passes over keys that are texts.
            left += [*each, *each.values()]
        else:
            left += gc.get_referents(each)
    return found


def caches_of(module: types.ModuleType) -> list[dict[Any, Any]]:
    """The dictionaries at the top of a module: what outlives every request."""
    return [value for value in vars(module).values() if isinstance(value, dict) and value]


def test_the_search_for_credentials_finds_those_that_are_there() -> None:
    class Holder:
        def __init__(self) -> None:
            self.kept = {b"digest": (1, [f"Bearer {SECRET}".encode()])}

    assert holding(SECRET, Holder()) == [f"Bearer {SECRET}".encode()]
    assert holding(SECRET, {SECRET: 1}) == [SECRET]


async def test_a_port_of_the_proxy_keeps_none(tmp_path: Path) -> None:
    await _keeps_none(tmp_path, OWN, "rest")


@pytest.mark.deep(stands_in="test_a_port_of_the_proxy_keeps_none")
@pytest.mark.parametrize("kind", ["qdrant", "rest"])
@pytest.mark.parametrize("way", WAYS)
async def test_no_port_of_the_proxy_keeps_credentials(tmp_path: Path, way: str, kind: str) -> None:
    await _keeps_none(tmp_path, way, kind)


async def _keeps_none(tmp_path: Path, way: str, kind: str) -> None:
    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        told = b'{"result":{"aliases":[]}}'
        cookie = f"Set-Cookie: session={SECRET}\r\nX-Token: {SECRET}\r\n".encode()
        writer.write(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n" % (cookie, len(told)))
        writer.write(told)

    async with way_in(tmp_path, way, kind) as made:
        made.upstream.script = script
        body = b'{"query": [0.1]}'
        for path in ("/collections/c/points/query", f"/collections/c/points/query?key={SECRET}"):
            for fields in (FIELDS, FIELDS[:1]):
                agent = await made.agent()
                for count in (1, 2, 3):
                    head = made.head("POST", path, *fields, f"Content-Length: {len(body)}")
                    get = made.head("GET", path.replace("/points/query", ""), *fields)
                    await agent.send(map(agent.sealed, [head, body]), 1)
                    await agent.received_once(_at_least(2 * count - 1))
                    await agent.send([agent.sealed(get)])
                    await agent.received_once(_at_least(2 * count))
                told = answers(bytes(agent.received))
                assert [status for status, _ in told] == [200] * 6
                agent.close()
        sent = [each for each in made.upstream.seen if SECRET.encode() in each.head]
        assert len(sent) >= 24, "the data source gets what it is sent"
        await until_async(
            "the agents' connections are closed", lambda: made.proxy.agent_connections == 0
        )
        # What is on its way to the disk is no cache, and holds none of these.
        await made.sidecar.records()
        gc.collect()
        kept = [
            made.proxy.endpoints[0],
            made.proxy.listeners,
            *caches_of(headers),
        ]
        assert holding(SECRET, *kept) == []


def _at_least(count: int) -> Any:
    return lambda read: len(answers(read)) >= count


async def test_the_own_port_keeps_no_key(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as setup:
            reader, writer = await connect(setup)
            for _ in range(3):
                writer.write(request(with_key(), GOOD))
                assert (await answer_of(reader))[0] == 200
            writer.close()
            await waiting.turns()
            gc.collect()
            assert holding(EVALUATE_KEY, *setup.ports) == []
