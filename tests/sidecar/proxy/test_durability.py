"""No byte of a response reaches the agent before its record is on disk."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from policies.trail.record import Record
from sidecar.protocols.rest import Rest
from sidecar.spool.errors import SpoolFull, SpoolUnwritable
from sidecar.spool.spool import PlacedRecord
from tests.sidecar.proxy.raw_client import get
from tests.support import waiting
from tests.support.proxy import ProxySetup, Sidecar, policy, proxy_setup
from tests.support.waiting import until_async

POST = b"POST /a HTTP/1.1\r\nHost: kb\r\nContent-Length: 2\r\n\r\nhi"


class Held:
    """Has the records of `made` become durable when a test says so: a slow disk."""

    def __init__(self, made: Sidecar) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self.notes: list[tuple[dict[str, Any], str]] = []
        self._put_together = made.spool.put_together
        made.spool.put_together = self._put  # type: ignore[method-assign]
        made.enforcer.note_retrieval = self._note_retrieval  # type: ignore[assignment]

    def _put(
        self, records: Sequence[Record], *, denial: bool, urgent: bool = True
    ) -> list[PlacedRecord]:
        placed = self._put_together(records, denial=denial, urgent=urgent)
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(held)
        return [each._replace(durable=held) for each in placed]

    def _note_retrieval(self, _recorded: object, detail: dict[str, Any], outcome: str) -> None:
        self.notes.append((detail, outcome))


@asynccontextmanager
async def held(tmp_path: Path) -> AsyncIterator[tuple[ProxySetup, Held]]:
    from tests.support.proxy import listening, sidecar, source
    from tests.support.scripted_source import data_source

    closed = policy(denied_sources=("rest://kb/secret",))
    async with data_source() as upstream, sidecar(tmp_path, closed) as made:
        slow = Held(made)
        async with listening(made, source(upstream.port, writes="allow")) as port:
            yield ProxySetup(port, upstream, made), slow


async def opened(
    setup: ProxySetup, data: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(data)
    writer.write_eof()
    return reader, writer


async def silent(reader: asyncio.StreamReader) -> bool:
    try:
        # expires on purpose
        async with asyncio.timeout(0.2):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_a_retrieval_is_sent_at_once_and_its_answer_waits_for_the_record(
    tmp_path: Path,
) -> None:
    async with held(tmp_path) as (setup, slow):
        reader, writer = await opened(setup, get("/a"))
        await until_async("the source has the request", lambda: setup.upstream.targets == ["/a"])
        assert await silent(reader)
        slow.waiting[0].set_result(None)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await until_async("the source has sent a note", lambda: bool(slow.notes))
        assert slow.notes[0][1] == "completed"


async def test_a_write_is_not_sent_before_its_record(tmp_path: Path) -> None:
    async with held(tmp_path) as (setup, slow):
        reader, writer = await opened(setup, POST)
        assert await silent(reader)
        assert setup.upstream.begun == []
        slow.waiting[0].set_result(None)
        await until_async("the source has the request", lambda: setup.upstream.targets == ["/a"])
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await waiting.turns()
        assert slow.notes == []


@pytest.mark.parametrize("data", [get("/secret"), get("/a/../b"), get("/a#"), b"nonsense\r\n\r\n"])
async def test_a_denial_waits_for_its_record(tmp_path: Path, data: bytes) -> None:
    async with held(tmp_path) as (setup, slow):
        reader, writer = await opened(setup, data)
        assert await silent(reader)
        slow.waiting[0].set_result(None)
        assert (await reader.read()).startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))
        writer.close()


async def test_an_answer_whose_record_is_lost_is_not_sent(tmp_path: Path) -> None:
    async with held(tmp_path) as (setup, slow):
        reader, writer = await opened(setup, get("/a"))
        await until_async("the source has the request", lambda: setup.upstream.targets == ["/a"])
        slow.waiting[0].set_exception(SpoolUnwritable("the disk did not take the record"))
        raw = await reader.read()
        writer.close()
        assert raw.startswith(b"HTTP/1.1 503 ")
        assert b'"code":503' in raw
        assert not raw.endswith(b"ok")
        await waiting.turns()
        assert slow.notes == [], "lineage of an event that is not there"


async def test_an_answer_that_arrives_as_its_record_is_lost_is_not_sent(tmp_path: Path) -> None:
    lost = asyncio.Event()

    async def answering(_seen: Any, writer: asyncio.StreamWriter) -> None:
        await lost.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with held(tmp_path) as (setup, slow):
        setup.upstream.script = answering
        reader, writer = await opened(setup, get("/a"))
        await until_async(
            "the source has the request",
            lambda: [each.target for each in setup.upstream.begun] == ["/a"],
        )
        lost.set()
        slow.waiting[0].set_exception(SpoolUnwritable("the disk did not take the record"))
        raw = await reader.read()
        writer.close()
        assert raw.startswith(b"HTTP/1.1 503 ")
        assert not raw.endswith(b"ok")
        assert slow.notes == []


async def test_a_write_whose_record_is_lost_is_not_made(tmp_path: Path) -> None:
    async with held(tmp_path) as (setup, slow):
        reader, writer = await opened(setup, POST)
        await until_async("a request waits", lambda: bool(slow.waiting))
        slow.waiting[0].set_exception(SpoolUnwritable("the disk did not take the record"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
        writer.close()
        assert setup.upstream.begun == []


async def test_a_failure_of_the_data_source_is_reported_after_the_record(tmp_path: Path) -> None:
    async with held(tmp_path) as (setup, slow):

        async def breaking(_seen: Any, writer: asyncio.StreamWriter) -> None:
            writer.close()

        setup.upstream.script = breaking
        reader, writer = await opened(setup, get("/a"))
        await until_async("the source has the request", lambda: setup.upstream.targets == ["/a"])
        assert await silent(reader)
        slow.waiting[0].set_result(None)
        assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
        writer.close()
        await until_async("the source has sent a note", lambda: bool(slow.notes))
        assert slow.notes[0][1] == "failed"


async def test_a_request_that_cannot_be_recorded_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_setup(tmp_path, policy(denied_sources=("rest://kb/secret",))) as made:

        def full(*_: Any, **__: Any) -> Any:
            raise SpoolFull

        monkeypatch.setattr(made.sidecar.spool, "put_together", full)
        for data in (get("/a"), get("/secret"), get("/a/../b"), b"nonsense\r\n\r\n"):
            answered = await made.ask(data)
            assert answered.status == 503
            assert answered.json["code"] == 503
        assert made.upstream.begun == []


async def test_an_internal_error_is_answered_with_500_and_reveals_nothing(
    setup: ProxySetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("internal words")

    monkeypatch.setattr(Rest, "match", broken)
    answered = await setup.ask(get("/a"))
    assert answered.status == 500
    assert answered.json["error"] == "Internal Server Error"
    assert b"internal words" not in answered.raw
    assert setup.upstream.begun == []
