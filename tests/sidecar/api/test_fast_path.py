"""The fast path to a response: a head that was parsed before is not parsed again, and nothing else
differs. Every test takes both paths."""

import asyncio

import orjson
import pytest

from policies.definitions.model import Key
from policies.ground.keys import key_digest
from policies.sets.policy_set import key_document, key_name
from sidecar.api.dispatch import Dispatcher
from sidecar.api.request_head import ApiHead
from sidecar.http.head_cache import MAX_HEADS, CachedHead, HeadCache
from sidecar.http.head_digest import KEY_BYTES, HeadDigest
from sidecar.http.response_head import Outcome
from tests import waiting
from tests.sidecar.fake_control_api import EVALUATE_KEY, FakeControlApi
from tests.sidecar.running_sidecar import FaultyDisk, RunningSidecar, until
from tests.sidecar.wire import GOOD, answer_of, connect, request, with_key


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of requests that took the fast path: they are answered by a head that was cached,
    not parsed anew."""
    bodies: list[bytes] = []
    cached: list[object] = []
    find, answer = HeadCache.find, Dispatcher.answer

    def noting_find(self: HeadCache, data: bytes) -> CachedHead | None:
        found = find(self, data)
        cached.append(found and found.head)
        return found

    def noting_answer(self: Dispatcher, head: ApiHead, body: bytes) -> Outcome:
        if any(each is head for each in cached):
            bodies.append(body)
        return answer(self, head, body)

    monkeypatch.setattr(HeadCache, "find", noting_find)
    monkeypatch.setattr(Dispatcher, "answer", noting_answer)
    return bodies


async def ask_twice(
    running: RunningSidecar,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """A connection whose head is cached, and the request with that head."""
    reader, writer = await connect(running)
    sent = request(with_key(), GOOD)
    for _ in range(2):
        writer.write(sent)
        assert (await answer_of(reader))[0] == 200
    return reader, writer, sent


async def test_the_second_request_takes_the_fast_path_and_gets_the_same(
    running: RunningSidecar, fast: list[bytes]
) -> None:
    reader, writer = await connect(running)
    answers = []
    for _ in range(3):
        writer.write(request(with_key(), GOOD))
        answers.append(await answer_of(reader))
    assert fast == [GOOD, GOOD]
    names = [[line.split(b":")[0] for line in top.split(b"\r\n")] for _, top, _ in answers]
    assert names[0] == names[1] == names[2]
    told = [orjson.loads(body) for _, _, body in answers]
    assert [each["decision"] for each in told] == ["ALLOW"] * 3
    recorded = [record["eid"] for record in await running.records()]
    assert recorded == [each["event_id"] for each in told]
    writer.close()


async def test_a_head_from_one_connection_serves_all(
    running: RunningSidecar, fast: list[bytes]
) -> None:
    await ask_twice(running)
    fast.clear()
    reader, writer = await connect(running)
    writer.write(request(with_key(), GOOD))
    assert (await answer_of(reader))[0] == 200
    assert fast == [GOOD]
    writer.close()


async def test_every_body_is_decided_anew(running: RunningSidecar, fast: list[bytes]) -> None:
    reader, writer, _ = await ask_twice(running)
    fast.clear()
    denied = GOOD.replace(b'"contracts"', b'"contractz"')
    broken = GOOD.replace(b'"contracts"', b'"contracts ')
    wrong = GOOD.replace(b'"high"', b'"hihg"')
    for body, status in ((denied, 200), (broken, 400), (wrong, 422), (GOOD, 200)):
        writer.write(request(with_key(), body))
        assert (await answer_of(reader))[0] == status
    assert fast == [denied, broken, wrong, GOOD]
    decided = [response["decision"] for response in await running.responses()]
    assert decided == ["ALLOW", "ALLOW", "DENY", "ALLOW"]
    writer.close()


async def test_a_revoked_key_is_refused_on_a_head_that_was_good(
    running: RunningSidecar, control: FakeControlApi, fast: list[bytes]
) -> None:
    reader, writer, sent = await ask_twice(running)
    name = key_name(key_digest(EVALUATE_KEY))
    for document, status in (
        (None, 403),
        (key_document(Key("key_e", "read")), 403),
        (key_document(Key("key_e", "evaluate")), 200),
    ):
        revision = control.publish({name: document})
        await running.follows(revision)
        fast.clear()
        writer.write(sent)
        assert (await answer_of(reader))[0] == status
        assert fast == [GOOD]
    writer.close()


async def test_a_head_is_recognised_only_where_a_message_begins(
    running: RunningSidecar, fast: list[bytes]
) -> None:
    """The bytes of a cached head and body inside another head belong to that head."""
    await ask_twice(running)
    fast.clear()
    sent = request(with_key(), GOOD)
    for before in (b"POST /nothing HTTP/1.1\r\nX-A: ", b"\r\n", b"G"):
        reader, writer = await connect(running)
        writer.write(before)
        await waiting.turns()
        writer.write(sent)
        async with asyncio.timeout(20):
            await answer_of(reader)
        assert fast == []
        writer.close()


async def test_data_other_than_one_whole_message_takes_the_slow_path(
    running: RunningSidecar, fast: list[bytes]
) -> None:
    sent = request(with_key(), GOOD)
    for pieces, answers in (
        ([sent[:-1], sent[-1:]], 1),
        ([sent[:30], sent[30:]], 1),
        ([sent + sent], 2),
        ([sent + sent[:50], sent[50:]], 2),
    ):
        reader, writer, _ = await ask_twice(running)
        fast.clear()
        for piece in pieces:
            writer.write(piece)
            await waiting.turns()
        async with asyncio.timeout(20):
            for _ in range(answers):
                assert (await answer_of(reader))[0] == 200
            # After other data, a connection never returns to the fast path.
            writer.write(sent)
            assert (await answer_of(reader))[0] == 200
        assert fast == []
        writer.close()


async def test_requests_during_a_disk_write_are_answered_after_it(
    running: RunningSidecar, disk: FaultyDisk, fast: list[bytes]
) -> None:
    reader, writer, sent = await ask_twice(running)
    fast.clear()
    disk.hangs.clear()
    writer.write(sent)
    await until("it is decided", lambda: fast)
    for number in range(3):
        writer.write(request(b"X-Request-ID: r-%d\r\n" % number + with_key(), GOOD))
    await waiting.turns()
    disk.hangs.set()
    async with asyncio.timeout(20):
        first = await answer_of(reader)
        assert b"X-Request-ID: r-" not in first[1]
        for number in range(3):
            assert b"X-Request-ID: r-%d\r\n" % number in (await answer_of(reader))[1]
    assert len(fast) == 1
    writer.close()


async def test_a_new_session_is_claimed_on_the_fast_path_too(
    running: RunningSidecar, control: FakeControlApi, fast: list[bytes]
) -> None:
    reader, writer, _ = await ask_twice(running)
    named = orjson.dumps({**orjson.loads(GOOD), "session_id": "s-0"})
    for number in range(3):
        body = named.replace(b"s-0", b"s-%d" % number)
        writer.write(request(with_key(), body))
        status, _, told = await answer_of(reader)
        assert (status, orjson.loads(told)["decision"]) == (200, "ALLOW")
    assert len(fast) == 3
    assert len(control.claims) == 3
    control.hold_claims = asyncio.Event()
    sent = request(with_key(), named.replace(b"s-0", b"s-9"))
    writer.write(sent)
    await until("it asks", lambda: len(control.claims) == 4)
    writer.write(sent)
    await waiting.turns()
    control.hold_claims.set()
    async with asyncio.timeout(20):
        for _ in range(2):
            assert (await answer_of(reader))[0] == 200
    writer.close()


async def test_a_failing_disk_is_503_on_the_fast_path_too(
    running: RunningSidecar, disk: FaultyDisk, fast: list[bytes]
) -> None:
    reader, writer, sent = await ask_twice(running)
    fast.clear()
    disk.fails = True
    for _ in range(2):
        writer.write(sent)
        status, _, body = await answer_of(reader)
        assert status == 503
        assert "decision" not in orjson.loads(body)
    assert len(fast) == 2
    writer.close()


async def test_a_client_that_hangs_up_on_the_fast_path_is_decided_and_recorded(
    running: RunningSidecar, disk: FaultyDisk, fast: list[bytes]
) -> None:
    _, writer, sent = await ask_twice(running)
    disk.hangs.clear()
    fast.clear()
    writer.write(sent)
    await until("it is decided", lambda: fast)
    writer.transport.abort()
    await waiting.turns()
    disk.hangs.set()
    assert len(await running.records()) == 3
    assert (await running.evaluate())["decision"] == "ALLOW"


async def test_a_client_that_half_closes_on_the_fast_path_is_answered(
    running: RunningSidecar, disk: FaultyDisk, fast: list[bytes]
) -> None:
    reader, writer, sent = await ask_twice(running)
    disk.hangs.clear()
    fast.clear()
    writer.write(sent)
    writer.write_eof()
    await until("it is decided", lambda: fast)
    await waiting.turns()
    disk.hangs.set()
    async with asyncio.timeout(20):
        status, top, _ = await answer_of(reader)
        assert status == 200
        assert b"Connection: close" in top
        assert await reader.read() == b""
    writer.close()


async def test_a_stop_waits_for_the_fast_path(
    running: RunningSidecar, disk: FaultyDisk, fast: list[bytes]
) -> None:
    reader, writer, sent = await ask_twice(running)
    disk.hangs.clear()
    fast.clear()
    writer.write(sent)
    await until("it is decided", lambda: fast)
    closing = asyncio.create_task(running.ports[0].close(5))
    await waiting.turns()
    assert not closing.done()
    disk.hangs.set()
    async with asyncio.timeout(20):
        assert (await answer_of(reader))[0] == 200
        assert await reader.read() == b""
        await closing
    writer.close()


async def test_a_client_that_never_reads_leaves_the_fast_path(
    running: RunningSidecar, fast: list[bytes]
) -> None:
    _, writer, sent = await ask_twice(running)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    taken = 0
    try:
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


def test_cached_heads_are_bounded() -> None:
    heads = HeadCache(HeadDigest(bytes(KEY_BYTES)))
    for number in range(MAX_HEADS + 10):
        heads.add(b"POST / HTTP/1.1\r\nX-API-Key: %d\r\n\r\n" % number, CachedHead("head", number))
    assert heads.find(b"POST / HTTP/1.1\r\nX-API-Key: 9\r\n\r\n") is None
    assert heads.find(b"POST / HTTP/1.1\r\nX-API-Key: 10\r\n\r\n") == CachedHead("head", 10)
    assert len(heads) == MAX_HEADS
    heads.add(b"x" * 5000, CachedHead("head", 1))
    assert heads.find(b"x" * 5000) is None
