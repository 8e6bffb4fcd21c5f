"""A response that lasts is judged again: a revocation ends it as it cuts a tunnel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.definitions.model import TenantSettings
from policies.sets.policy_set import role_document, role_name
from sidecar.http.attribution import Attribution
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.protocols.protocol import SourceRef
from sidecar.proxy.limits import LIMITS
from sidecar.proxy.messages.response_relay import write_whole
from sidecar.proxy.pipeline.authorizer import Authorizer, Denied
from sidecar.proxy.pipeline.forward import Forwarder
from sidecar.proxy.pipeline.request_context import AllowedRequest
from sidecar.proxy.upstream.exchange import UpstreamResponse
from tests.sidecar.proxy.raw_client import Answered, ask, get, leave
from tests.support import waiting
from tests.support.proxy import ROLE, ProxySetup, policy, proxy_setup
from tests.support.scripted_source import Seen
from tests.support.waiting import until_async

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = get("/a")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OFTEN = replace(LIMITS, reauthorize_seconds=0.01)  # expires on purpose
LATE = 2 * OFTEN.reauthorize_seconds
"""Seconds until a head is judged again before it is passed on. More are as late."""


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ProxySetup]:
    async with proxy_setup(tmp_path, limits=OFTEN) as made:
        yield made


def deny_the_role(setup: ProxySetup) -> None:
    document = role_document((policy(denied_sources=("*",)),))
    setup.sidecar.publish_document(role_name(ROLE), document)


def revoke_the_key(setup: ProxySetup) -> None:
    setup.sidecar.publish_document(setup.sidecar.key_document, None)


def freeze(setup: ProxySetup) -> None:
    setup.sidecar.publish(TenantSettings("ten_1", frozen_at=1))


REVOKED: dict[str, Callable[[ProxySetup], None]] = {
    "role": deny_the_role, "key": revoke_the_key, "freeze": freeze,
}  # fmt: skip


async def began(setup: ProxySetup, head: bytes, first: bytes, *fields: str) -> Streams:
    """The connection of an agent that has got the head of a response and its first bytes, after
    which the data source sends nothing."""

    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(head + first)
        await waiting.never()

    setup.upstream.script = script
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(get("/a", *fields) if fields else GET)
    await reader.readuntil(b"\r\n\r\n")  # an event's id may have these letters too
    await reader.readuntil(b"abc")
    return reader, writer


async def cut(reader: asyncio.StreamReader) -> None:
    """The connection ends, and not as the response's end would look."""
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readuntil(b"0\r\n\r\n")


@pytest.mark.parametrize("how", REVOKED)
@pytest.mark.parametrize(
    ("head", "first"),
    [(EVENTS, b"data: abc\n\n"), (CHUNKED, b"3\r\nabc\r\n"), (SIZED, b"abc")],
    ids=["events", "chunks", "a length"],
)
async def test_a_revocation_ends_a_lasting_response(
    setup: ProxySetup, head: bytes, first: bytes, how: str
) -> None:
    reader, writer = await began(setup, head, first)
    REVOKED[how](setup)
    await cut(reader)
    writer.close()
    await until_async("the source has lost the connection", lambda: setup.upstream.lost == 1)
    allowed, denied = await setup.sidecar.decisions()
    assert (allowed[0], denied[0], denied[2]) == ("ALLOW", "DENY", "rest://kb/a")
    [lineage] = await setup.sidecar.lineage()
    assert lineage["outcome"] == "truncated"


async def test_a_lasting_response_that_stays_allowed_is_recorded_once(
    setup: ProxySetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    reauthorize = Authorizer.reauthorize

    async def counted(self: Authorizer, *given: Any) -> None:
        nonlocal asked
        await reauthorize(self, *given)
        asked += 1

    monkeypatch.setattr(Authorizer, "reauthorize", counted)
    more = asyncio.Event()

    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS + b"data: abc\n\n")
        await more.wait()
        writer.write(b"data: def\n\n")
        writer.close()

    setup.upstream.script = script
    asking = asyncio.create_task(ask(setup.port, GET, seconds=60))
    await until_async("it was judged again and again", lambda: asked >= 5)
    more.set()
    answered = await asking
    assert b"data: abc" in answered.body
    assert b"data: def" in answered.body
    assert await setup.sidecar.decisions() == [("ALLOW", "analysts-read", "rest://kb/a")]
    [lineage] = await setup.sidecar.lineage()
    assert lineage["outcome"] == "completed"
    told = asked
    await waiting.turns()
    assert asked == told, "nobody judges what has ended"


async def test_a_revocation_before_the_response_head_is_a_denial(setup: ProxySetup) -> None:
    go = asyncio.Event()

    async def late(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await asyncio.sleep(LATE)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")

    setup.upstream.script = late
    asking = asyncio.create_task(ask(setup.port, GET, seconds=60))
    await until_async("the source has the request", lambda: len(setup.upstream.seen) == 1)
    deny_the_role(setup)
    go.set()
    answered = await asking
    assert answered.status == 403
    assert b"secret" not in answered.raw
    assert [each[0] for each in await setup.sidecar.decisions()] == ["ALLOW", "DENY"]


async def test_an_agent_that_leaves_during_a_new_judgement_keeps_no_connection(
    setup: ProxySetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging = asyncio.Event()

    async def waits(*_: object) -> None:
        judging.set()
        await waiting.never()

    monkeypatch.setattr(Authorizer, "reauthorize", waits)

    async def late(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(LATE)
        writer.write(SIZED)
        await waiting.never()

    setup.upstream.script = late
    _, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(GET)
    await judging.wait()
    assert setup.upstream.open == 1
    leave(writer)
    await until_async("the source has lost the connection", lambda: setup.upstream.open == 0)


async def test_data_under_inspection_when_it_is_denied_is_not_sent(
    setup: ProxySetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspecting = asyncio.Event()

    async def is_denied() -> bool:
        return len(await setup.sidecar.decisions()) == 2

    async def inspected(
        self: Forwarder,
        request: HttpRequest,
        allowed: AllowedRequest,
        response: UpstreamResponse,
        *_: object,
    ) -> ResponseSent:
        inspecting.set()
        whole = await response.read(1000)
        await response.finish()
        deny_the_role(setup)
        await until_async("it is denied", is_denied)
        await waiting.turns()
        return await write_whole(request, whole, ())

    monkeypatch.setattr(Forwarder, "_relay_judged", inspected)

    async def in_two_parts(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsec")
        await inspecting.wait()
        writer.write(b"ret")

    setup.upstream.script = in_two_parts
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(GET)
    writer.write_eof()
    with pytest.raises(ConnectionError):
        await reader.read()
    writer.close()
    assert [each[0] for each in await setup.sidecar.decisions()] == ["ALLOW", "DENY"]


async def test_a_response_to_an_agent_that_reads_nothing_is_ended_too(setup: ProxySetup) -> None:
    async def endless(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS)
        while True:
            writer.write(b"data: " + b"x" * 65536 + b"\n\n")
            await writer.drain()

    setup.upstream.script = endless
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port, limit=1024)
    writer.write(GET)
    await reader.readuntil(b"\r\n\r\n")
    assert setup.upstream.open == 1
    deny_the_role(setup)
    await until_async("the source has lost the connection", lambda: setup.upstream.open == 0)
    leave(writer)
    assert [each[0] for each in await setup.sidecar.decisions()] == ["ALLOW", "DENY"]


async def test_a_source_in_report_mode_ends_no_response(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, limits=OFTEN, mode="report") as setup:
        more = asyncio.Event()

        async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
            writer.write(EVENTS + b"data: abc\n\n")
            await more.wait()
            writer.close()

        setup.upstream.script = script
        asking = asyncio.create_task(ask(setup.port, GET, seconds=60))
        await until_async("the source has the request", lambda: len(setup.upstream.seen) == 1)
        deny_the_role(setup)
        await asyncio.sleep(10 * OFTEN.reauthorize_seconds)
        more.set()
        assert isinstance(await asking, Answered)
        assert [each[0] for each in await setup.sidecar.decisions()] == ["ALLOW"]


async def test_the_agent_itself_is_judged_again_if_no_source_is_named(setup: ProxySetup) -> None:
    made = setup.sidecar
    whole = SourceRef("rest://kb", "high")
    authorizer = Authorizer("rest", whole, made.agent, made.enforcer)
    who = Attribution("ann", None, None, None)
    deny_the_role(setup)
    await authorizer.reauthorize((), who)  # the agent may still ask, if not for this
    for revoke in (revoke_the_key, freeze):
        revoke(setup)
        with pytest.raises(Denied):
            await authorizer.reauthorize((), who)
