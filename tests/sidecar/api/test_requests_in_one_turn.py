"""Requests that are answered in the turn of the event loop in which they arrive, and those that
have to wait: each body is decided anew, each answer waits for its record, and all leave in
order."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from policies.definitions.model import Key
from policies.ground.keys import key_digest
from policies.sets.policy_set import key_document, key_name
from policies.trail.record import Record
from sidecar import assembly
from sidecar.http.server.head_cache import HeadCache
from sidecar.spool.spool import PlacedRecord, Spool
from tests.sidecar.wire import GOOD, answer_of, connect, raw, request, with_key
from tests.support import waiting
from tests.support.fake_control_api import EVALUATE_KEY, FakeControlApi
from tests.support.sidecar import FaultyDisk, RunningSidecar, running_sidecar
from tests.support.waiting import until_async


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources of the requests that have been decided, whether or not they are answered yet."""
    sources: list[str] = []
    put_together = Spool.put_together

    def noting(
        self: Spool, records: Sequence[Record], *, denial: bool, urgent: bool = True
    ) -> list[PlacedRecord]:
        sources.extend(each.decided[0].source_id for each in records if each.decided)
        return put_together(self, records, denial=denial, urgent=urgent)

    monkeypatch.setattr(Spool, "put_together", noting)
    return sources


async def ask_twice(
    running: RunningSidecar,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """A connection on which a request has been answered twice, and that request."""
    reader, writer = await connect(running)
    sent = request(with_key(), GOOD)
    for _ in range(2):
        writer.write(sent)
        assert (await answer_of(reader))[0] == 200
    return reader, writer, sent


async def ask_while_the_disk_hangs(
    running: RunningSidecar, disk: FaultyDisk, decided: list[str], *, ends: bool = False
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Such a connection, on which the request has been decided a third time and is not answered
    yet; with `ends`, the client has closed its sending side."""
    reader, writer, sent = await ask_twice(running)
    disk.hangs.clear()
    decided.clear()
    writer.write(sent)
    if ends:
        writer.write_eof()
    await until_async("it is decided", lambda: decided)
    return reader, writer


async def test_a_repeated_request_gets_the_same_answer(
    sidecar: RunningSidecar, decided: list[str]
) -> None:
    reader, writer = await connect(sidecar)
    answers = []
    for _ in range(3):
        writer.write(request(with_key(), GOOD))
        answers.append(await answer_of(reader))
    assert len(decided) == 3
    names = [[line.split(b":")[0] for line in top.split(b"\r\n")] for _, top, _ in answers]
    assert names[0] == names[1] == names[2]
    told = [orjson.loads(body) for _, _, body in answers]
    assert [each["decision"] for each in told] == ["ALLOW"] * 3
    recorded = [record["eid"] for record in await sidecar.records()]
    assert recorded == [each["event_id"] for each in told]
    writer.close()


@pytest.mark.parametrize(
    ("field", "times"),
    [
        (b"", 1),
        (b"X-Request-ID: r-1\r\n", 0),
        (b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n", 0),
    ],
)
async def test_a_head_that_will_not_be_repeated_is_not_cached(
    tmp_path: Path,
    control: FakeControlApi,
    monkeypatch: pytest.MonkeyPatch,
    field: bytes,
    times: int,
) -> None:
    caches: list[HeadCache] = []

    def noting(key: bytes) -> HeadCache:
        caches.append(HeadCache(key))
        return caches[-1]

    monkeypatch.setattr(assembly, "HeadCache", noting)
    async with running_sidecar(tmp_path, control) as running:
        assert (await raw(running, request(with_key() + field, GOOD)))[0] == 200
    assert sum(map(len, caches)) == times


async def test_every_body_is_decided_anew(sidecar: RunningSidecar, decided: list[str]) -> None:
    reader, writer, _ = await ask_twice(sidecar)
    decided.clear()
    denied = GOOD.replace(b'"contracts"', b'"contractz"')
    broken = GOOD.replace(b'"contracts"', b'"contracts ')
    wrong = GOOD.replace(b'"high"', b'"hihg"')
    for body, status in ((denied, 200), (broken, 400), (wrong, 422), (GOOD, 200)):
        writer.write(request(with_key(), body))
        assert (await answer_of(reader))[0] == status
    assert decided == ["contractz", "contracts"]
    decided = [response["decision"] for response in await sidecar.responses()]
    assert decided == ["ALLOW", "ALLOW", "DENY", "ALLOW"]
    writer.close()


async def test_a_revoked_key_is_refused_on_a_kept_connection(
    sidecar: RunningSidecar, control: FakeControlApi, decided: list[str]
) -> None:
    reader, writer, sent = await ask_twice(sidecar)
    name = key_name(key_digest(EVALUATE_KEY))
    for document, status in (
        (None, 403),
        (key_document(Key("key_e", "read")), 403),
        (key_document(Key("key_e", "evaluate")), 200),
    ):
        revision = control.publish({name: document})
        await sidecar.follows(revision)
        decided.clear()
        writer.write(sent)
        assert (await answer_of(reader))[0] == status
        assert len(decided) == (status == 200)
    writer.close()


async def test_bytes_that_look_like_a_request_inside_another_head_belong_to_it(
    sidecar: RunningSidecar, decided: list[str]
) -> None:
    sent = request(with_key(), GOOD)
    for before, status in (
        (b"POST /nothing HTTP/1.1\r\nX-A: ", 404),
        (b"\r\n", 200),
        (b"G", 400),
    ):
        decided.clear()
        reader, writer = await connect(sidecar)
        writer.write(before)
        await waiting.turns()
        writer.write(sent)
        async with asyncio.timeout(20):
            assert (await answer_of(reader))[0] == status
        assert len(decided) == (status == 200)
        writer.close()


async def test_messages_are_separated_however_they_are_split(
    sidecar: RunningSidecar, decided: list[str]
) -> None:
    sent = request(with_key(), GOOD)
    for pieces, answers in (
        ([sent[:-1], sent[-1:]], 1),
        # Within the method, the target, the version and the body.
        *(([sent[:cut], sent[cut:]], 1) for cut in (2, 12, 30, len(sent) - 40)),
        ([sent + sent], 2),
        ([sent + sent[:50], sent[50:]], 2),
        ([sent * 40], 40),
    ):
        reader, writer = await connect(sidecar)
        decided.clear()
        for piece in pieces:
            writer.write(piece)
            await waiting.turns()
        async with asyncio.timeout(20):
            for _ in range(answers):
                assert (await answer_of(reader))[0] == 200
            writer.write(sent)
            assert (await answer_of(reader))[0] == 200
        assert len(decided) == answers + 1
        writer.close()


async def test_requests_during_a_disk_write_are_answered_after_it(
    sidecar: RunningSidecar, disk: FaultyDisk, decided: list[str]
) -> None:
    reader, writer = await ask_while_the_disk_hangs(sidecar, disk, decided)
    for number in range(3):
        writer.write(request(b"X-Request-ID: r-%d\r\n" % number + with_key(), GOOD))
    await waiting.turns()
    disk.hangs.set()
    async with asyncio.timeout(20):
        first = await answer_of(reader)
        assert b"X-Request-ID: r-" not in first[1]
        for number in range(3):
            assert b"X-Request-ID: r-%d\r\n" % number in (await answer_of(reader))[1]
    assert len(decided) == 4
    writer.close()


async def test_a_new_session_is_claimed_while_other_requests_wait(
    sidecar: RunningSidecar, control: FakeControlApi, decided: list[str]
) -> None:
    reader, writer, _ = await ask_twice(sidecar)
    named = orjson.dumps({**orjson.loads(GOOD), "session_id": "s-0"})
    for number in range(3):
        body = named.replace(b"s-0", b"s-%d" % number)
        writer.write(request(with_key(), body))
        status, _, told = await answer_of(reader)
        assert (status, orjson.loads(told)["decision"]) == (200, "ALLOW")
    assert len(decided) == 2 + 3
    assert len(control.claims) == 3
    control.hold_claims = asyncio.Event()
    sent = request(with_key(), named.replace(b"s-0", b"s-9"))
    writer.write(sent)
    await until_async("it asks", lambda: len(control.claims) == 4)
    writer.write(sent)
    await waiting.turns()
    control.hold_claims.set()
    async with asyncio.timeout(20):
        for _ in range(2):
            assert (await answer_of(reader))[0] == 200
    writer.close()


async def test_a_failing_disk_is_answered_with_503(
    sidecar: RunningSidecar, disk: FaultyDisk, decided: list[str]
) -> None:
    reader, writer, sent = await ask_twice(sidecar)
    decided.clear()
    disk.fails = True
    for _ in range(2):
        writer.write(sent)
        status, _, body = await answer_of(reader)
        assert status == 503
        assert "decision" not in orjson.loads(body)
    assert decided
    writer.close()


async def test_a_client_that_hangs_up_is_decided_and_recorded(
    sidecar: RunningSidecar, disk: FaultyDisk, decided: list[str]
) -> None:
    _, writer = await ask_while_the_disk_hangs(sidecar, disk, decided)
    writer.transport.abort()
    await waiting.turns()
    disk.hangs.set()
    assert len(await sidecar.records()) == 3
    assert (await sidecar.evaluate())["decision"] == "ALLOW"


async def test_a_client_that_half_closes_before_its_record_is_on_disk_is_answered(
    sidecar: RunningSidecar, disk: FaultyDisk, decided: list[str]
) -> None:
    reader, writer = await ask_while_the_disk_hangs(sidecar, disk, decided, ends=True)
    await waiting.turns()
    disk.hangs.set()
    async with asyncio.timeout(20):
        status, top, _ = await answer_of(reader)
        assert status == 200
        assert b"Connection: close" in top
        assert await reader.read() == b""
    writer.close()


async def test_a_stop_waits_for_the_record_and_its_answer(
    sidecar: RunningSidecar, disk: FaultyDisk, decided: list[str]
) -> None:
    reader, writer = await ask_while_the_disk_hangs(sidecar, disk, decided)
    closing = asyncio.create_task(sidecar.ports[0].close(5))
    await waiting.turns()
    assert not closing.done()
    disk.hangs.set()
    async with asyncio.timeout(20):
        assert (await answer_of(reader))[0] == 200
        assert await reader.read() == b""
        await closing
    writer.close()


@pytest.mark.deep(
    stands_in="tests/sidecar/api/test_connection.py::test_a_client_that_does_not_read_stops_being_read"
)
async def test_a_client_that_never_reads_is_read_no_more(
    sidecar: RunningSidecar, decided: list[str]
) -> None:
    _, writer, sent = await ask_twice(sidecar)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    taken = 0
    try:
        # expires on purpose
        async with asyncio.timeout(1):
            while taken < 100_000:
                writer.write(sent)
                await writer.drain()
                await asyncio.sleep(0)
                taken += 1
    except TimeoutError:
        pass
    assert taken < 100_000
    writer.transport.abort()
