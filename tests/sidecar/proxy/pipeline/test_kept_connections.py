"""Requests on a connection that is kept, to a data source whose connection is kept: however either
side cuts its messages, and whatever breaks."""

import asyncio

import pytest

from sidecar.protocols.rest import Rest
from tests.sidecar.proxy.raw_client import Answered, get, leave
from tests.support import waiting
from tests.support.proxy import ProxySetup
from tests.support.scripted_source import Seen, answer
from tests.support.waiting import until_async

POST = (
    b"POST /a HTTP/1.1\r\nHost: kb\r\nContent-Type: application/json\r\n"
    b"Content-Length: 9\r\n\r\n" + b'{"a": 42}'
)


class Talk:
    """One connection of an agent's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def with_(cls, setup: ProxySetup) -> "Talk":
        return cls(*await asyncio.open_connection("127.0.0.1", setup.port))

    async def ask(self, *parts: bytes) -> Answered:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            if len(parts) > 1:
                await waiting.turns()
        return await self.answer()

    async def answer(self) -> Answered:
        async with asyncio.timeout(20):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(Answered(head).fields.get("content-length", "0"))
            return Answered(head + await self.reader.readexactly(length))


async def test_each_request_is_decided_and_recorded(setup: ProxySetup) -> None:
    talk = await Talk.with_(setup)
    for number in range(5):
        found = await talk.ask(get(f"/a{number}"))
        assert (found.status, found.body) == (200, b"ok")
        assert found.fields["x-sluice-event-id"]
    assert setup.upstream.targets == [f"/a{number}" for number in range(5)]
    assert len(await setup.sidecar.decisions()) == 5
    lineage = await setup.sidecar.lineage(5)
    assert [each["outcome"] for each in lineage] == ["completed"] * 5
    assert {each["detail"]["bytes"] for each in lineage} == {2}


async def test_a_denial_keeps_the_connection(setup: ProxySetup) -> None:
    talk = await Talk.with_(setup)
    await talk.ask(get("/a"))
    denied = await talk.ask(get("/secret"))
    assert denied.status == 403
    assert denied.json["decision"]["decision"] == "DENY"
    assert setup.upstream.targets == ["/a"]
    assert (await talk.ask(get("/b"))).status == 200


@pytest.mark.parametrize("at", [1, 10, 16, 30, 90, 96, 97, 100, 104])
async def test_a_message_in_pieces_counts_as_one_message(setup: ProxySetup, at: int) -> None:
    talk = await Talk.with_(setup)
    await talk.ask(get("/warm"))
    for data in (POST, get("/b", "X-A: " + "b" * 80)):
        found = await talk.ask(data[:at], data[at:])
        assert (found.status, found.body) == (200, b"ok")
    assert setup.upstream.targets == ["/warm", "/a", "/b"]
    assert setup.upstream.seen[1].body == b'{"a": 42}'
    assert (await talk.ask(get("/c"))).status == 200


async def test_several_messages_in_one_piece_are_answered_in_order(setup: ProxySetup) -> None:
    async def echo(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await answer(body=seen.target.encode())(seen, writer)

    setup.upstream.script = echo
    talk = await Talk.with_(setup)
    await talk.ask(get("/warm"))
    talk.writer.write(get("/1") + get("/2") + POST + get("/3"))
    assert [(await talk.answer()).body for _ in range(4)] == [b"/1", b"/2", b"/a", b"/3"]
    # One that arrives while another is under way.
    talk = await Talk.with_(setup)
    talk.writer.write(get("/4"))
    await waiting.turns()
    talk.writer.write(get("/5"))
    assert [(await talk.answer()).body for _ in range(2)] == [b"/4", b"/5"]


@pytest.mark.parametrize("at", [1, 12, 20, 40, 41, 42])
async def test_an_answer_in_pieces_arrives_as_one_answer(setup: ProxySetup, at: int) -> None:
    whole = b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello"

    async def pieces(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(whole[:at])
        await writer.drain()
        await waiting.turns()
        writer.write(whole[at:])

    talk = await Talk.with_(setup)
    await talk.ask(get("/warm"))
    setup.upstream.script = pieces
    found = await talk.ask(get("/a"))
    assert (found.status, found.body, found.fields["x-a"]) == (200, b"hello", "b")
    setup.upstream.script = answer()
    assert (await talk.ask(get("/b"))).body == b"ok"
    [_, lineage, _] = await setup.sidecar.lineage(3)
    assert (lineage["outcome"], lineage["detail"]["bytes"]) == ("completed", 5)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_a_data_source_that_breaks_off_is_answered_with_502(
    setup: ProxySetup, sent: bytes
) -> None:
    async def broken(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        writer.close()

    talk = await Talk.with_(setup)
    await talk.ask(get("/warm"))
    setup.upstream.script = broken
    found = await talk.ask(get("/a"))
    assert found.status == 502
    assert found.fields["x-sluice-event-id"]
    setup.upstream.script = answer()
    assert (await talk.ask(get("/b"))).status == 200
    outcomes = [each["outcome"] for each in await setup.sidecar.lineage(3)]
    assert sorted(outcomes) == ["completed", "completed", "failed"]


async def test_an_agent_that_leaves_ends_its_request(setup: ProxySetup) -> None:
    async def never(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        await waiting.never()

    talk = await Talk.with_(setup)
    await talk.ask(get("/warm"))
    setup.upstream.script = never
    talk.writer.write(get("/a"))
    await until_async(
        "the source has the requests", lambda: setup.upstream.targets == ["/warm", "/a"]
    )
    leave(talk.writer)
    await until_async("the source has lost the connection", lambda: setup.upstream.lost == 1)
    outcomes = [each["outcome"] for each in await setup.sidecar.lineage(2)]
    assert outcomes == ["completed", "truncated"]


async def test_an_internal_error_before_the_decision_reveals_nothing(
    setup: ProxySetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("internal words")

    with monkeypatch.context() as patched:
        patched.setattr(Rest, "match", broken)
        talk = await Talk.with_(setup)
        found = await talk.ask(get("/a"))
        assert (found.status, found.fields["connection"]) == (500, "close")
        assert b"internal words" not in found.raw
        assert await talk.reader.read() == b""
    assert setup.upstream.begun == []
    assert (await (await Talk.with_(setup)).ask(get("/b"))).status == 200
    assert len(await setup.sidecar.decisions()) == 1
