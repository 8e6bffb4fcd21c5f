"""The fast path to a response: a head that was parsed before is not parsed again, and nothing else
differs. Every test takes both paths."""

import asyncio
from pathlib import Path

import orjson
import pytest

from policies.definitions.model import Key
from policies.ground.keys import key_digest
from policies.sets.policy_set import key_document, key_name
from sidecar.api.connection import ApiServerConnection
from sidecar.http.head_cache import MAX_HEADS, CachedHead, HeadCache
from sidecar.http.head_digest import KEY_BYTES, HeadDigest
from tests import waiting
from tests.sidecar.fake_control_api import EVALUATE_KEY, fake_control_api
from tests.sidecar.stand import FaultyDisk, Stand, sidecar, until
from tests.sidecar.wire import GOOD, answer_of, connect, request, with_key


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of requests that took the fast path."""
    bodies: list[bytes] = []
    begin = ApiServerConnection._serve_cached

    def noting(self: ApiServerConnection, head: object, body: bytes) -> None:
        bodies.append(body)
        begin(self, head, body)

    monkeypatch.setattr(ApiServerConnection, "_serve_cached", noting)
    return bodies


async def ask_twice(
    stand: Stand,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """A connection whose head is cached, and the request with that head."""
    reader, writer = await connect(stand)
    sent = request(with_key(), GOOD)
    for _ in range(2):
        writer.write(sent)
        assert (await answer_of(reader))[0] == 200
    return reader, writer, sent


async def followed(stand: Stand, revision: int) -> None:
    await until("it follows", lambda: stand.parts.policies.policy_set.revision == revision)


async def test_the_second_request_takes_the_fast_path_and_gets_the_same(
    tmp_path: Path, begun: list[bytes]
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer = await connect(stand)
            answers = []
            for _ in range(3):
                writer.write(request(with_key(), GOOD))
                answers.append(await answer_of(reader))
            assert begun == [GOOD, GOOD]
            names = [[line.split(b":")[0] for line in top.split(b"\r\n")] for _, top, _ in answers]
            assert names[0] == names[1] == names[2]
            told = [orjson.loads(body) for _, _, body in answers]
            assert [each["decision"] for each in told] == ["ALLOW"] * 3
            recorded = [record["eid"] for record in await stand.records()]
            assert recorded == [each["event_id"] for each in told]
            writer.close()


async def test_a_head_from_one_connection_serves_all(tmp_path: Path, begun: list[bytes]) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            await ask_twice(stand)
            begun.clear()
            reader, writer = await connect(stand)
            writer.write(request(with_key(), GOOD))
            assert (await answer_of(reader))[0] == 200
            assert begun == [GOOD]
            writer.close()


async def test_every_body_is_decided_anew(tmp_path: Path, begun: list[bytes]) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer, _ = await ask_twice(stand)
            begun.clear()
            denied = GOOD.replace(b'"contracts"', b'"contractz"')
            broken = GOOD.replace(b'"contracts"', b'"contracts ')
            wrong = GOOD.replace(b'"high"', b'"hihg"')
            for body, status in ((denied, 200), (broken, 400), (wrong, 422), (GOOD, 200)):
                writer.write(request(with_key(), body))
                assert (await answer_of(reader))[0] == status
            assert begun == [denied, broken, wrong, GOOD]
            decided = [response["decision"] for response in await stand.responses()]
            assert decided == ["ALLOW", "ALLOW", "DENY", "ALLOW"]
            writer.close()


async def test_a_revoked_key_is_refused_on_a_head_that_was_good(
    tmp_path: Path, begun: list[bytes]
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer, sent = await ask_twice(stand)
            name = key_name(key_digest(EVALUATE_KEY))
            for document, status in (
                (None, 403),
                (key_document(Key("key_e", "read")), 403),
                (key_document(Key("key_e", "evaluate")), 200),
            ):
                revision = control.publish({name: document})
                await followed(stand, revision)
                begun.clear()
                writer.write(sent)
                assert (await answer_of(reader))[0] == status
                assert begun == [GOOD]
            writer.close()


async def test_a_head_is_recognised_only_where_a_message_begins(
    tmp_path: Path, begun: list[bytes]
) -> None:
    """The bytes of a cached head and body inside another head belong to that head."""
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            await ask_twice(stand)
            begun.clear()
            sent = request(with_key(), GOOD)
            for before in (b"POST /nothing HTTP/1.1\r\nX-A: ", b"\r\n", b"G"):
                reader, writer = await connect(stand)
                writer.write(before)
                await waiting.turns()
                writer.write(sent)
                async with asyncio.timeout(20):
                    await answer_of(reader)
                assert begun == []
                writer.close()


async def test_data_other_than_one_whole_message_takes_the_slow_path(
    tmp_path: Path, begun: list[bytes]
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            sent = request(with_key(), GOOD)
            for pieces, answers in (
                ([sent[:-1], sent[-1:]], 1),
                ([sent[:30], sent[30:]], 1),
                ([sent + sent], 2),
                ([sent + sent[:50], sent[50:]], 2),
            ):
                reader, writer, _ = await ask_twice(stand)
                begun.clear()
                for piece in pieces:
                    writer.write(piece)
                    await waiting.turns()
                async with asyncio.timeout(20):
                    for _ in range(answers):
                        assert (await answer_of(reader))[0] == 200
                    # After other data, a connection never returns to the fast path.
                    writer.write(sent)
                    assert (await answer_of(reader))[0] == 200
                assert begun == []
                writer.close()


async def test_requests_during_a_disk_write_are_answered_after_it(
    tmp_path: Path, begun: list[bytes]
) -> None:
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk) as stand:
            reader, writer, sent = await ask_twice(stand)
            begun.clear()
            disk.hangs.clear()
            writer.write(sent)
            await until("it is decided", lambda: begun)
            for number in range(3):
                writer.write(request(b"X-Request-ID: r-%d\r\n" % number + with_key(), GOOD))
            await waiting.turns()
            disk.hangs.set()
            async with asyncio.timeout(20):
                first = await answer_of(reader)
                assert b"X-Request-ID: r-" not in first[1]
                for number in range(3):
                    assert b"X-Request-ID: r-%d\r\n" % number in (await answer_of(reader))[1]
            assert len(begun) == 1
            writer.close()


async def test_a_new_session_is_claimed_on_the_fast_path_too(
    tmp_path: Path, begun: list[bytes]
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer, _ = await ask_twice(stand)
            named = orjson.dumps({**orjson.loads(GOOD), "session_id": "s-0"})
            for number in range(3):
                body = named.replace(b"s-0", b"s-%d" % number)
                writer.write(request(with_key(), body))
                status, _, told = await answer_of(reader)
                assert (status, orjson.loads(told)["decision"]) == (200, "ALLOW")
            assert len(begun) == 3
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
    tmp_path: Path, begun: list[bytes]
) -> None:
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk) as stand:
            reader, writer, sent = await ask_twice(stand)
            begun.clear()
            disk.fails = True
            for _ in range(2):
                writer.write(sent)
                status, _, body = await answer_of(reader)
                assert status == 503
                assert "decision" not in orjson.loads(body)
            assert len(begun) == 2
            writer.close()


async def test_a_client_that_hangs_up_on_the_fast_path_is_decided_and_recorded(
    tmp_path: Path, begun: list[bytes]
) -> None:
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk) as stand:
            _, writer, sent = await ask_twice(stand)
            disk.hangs.clear()
            begun.clear()
            writer.write(sent)
            await until("it is decided", lambda: begun)
            writer.transport.abort()
            await waiting.turns()
            disk.hangs.set()
            assert len(await stand.records()) == 3
            assert (await stand.evaluate())["decision"] == "ALLOW"


async def test_a_client_that_half_closes_on_the_fast_path_is_answered(
    tmp_path: Path, begun: list[bytes]
) -> None:
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk) as stand:
            reader, writer, sent = await ask_twice(stand)
            disk.hangs.clear()
            begun.clear()
            writer.write(sent)
            writer.write_eof()
            await until("it is decided", lambda: begun)
            await waiting.turns()
            disk.hangs.set()
            async with asyncio.timeout(20):
                status, top, _ = await answer_of(reader)
                assert status == 200
                assert b"Connection: close" in top
                assert await reader.read() == b""
            writer.close()


async def test_a_stop_waits_for_the_fast_path(tmp_path: Path, begun: list[bytes]) -> None:
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk) as stand:
            reader, writer, sent = await ask_twice(stand)
            disk.hangs.clear()
            begun.clear()
            writer.write(sent)
            await until("it is decided", lambda: begun)
            closing = asyncio.create_task(stand.ports[0].close(5))
            await waiting.turns()
            assert not closing.done()
            disk.hangs.set()
            async with asyncio.timeout(20):
                assert (await answer_of(reader))[0] == 200
                assert await reader.read() == b""
                await closing
            writer.close()


async def test_a_client_that_never_reads_leaves_the_fast_path(
    tmp_path: Path, begun: list[bytes]
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            _, writer, sent = await ask_twice(stand)
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


def test_cached_heads_are_bounded_and_keep_no_key() -> None:
    heads = HeadCache(HeadDigest(bytes(KEY_BYTES)))
    for number in range(MAX_HEADS + 10):
        heads.add(b"POST / HTTP/1.1\r\nX-API-Key: %d\r\n\r\n" % number, CachedHead("head", number))
    assert heads.find(b"POST / HTTP/1.1\r\nX-API-Key: 9\r\n\r\n") is None
    assert heads.find(b"POST / HTTP/1.1\r\nX-API-Key: 10\r\n\r\n") == CachedHead("head", 10)
    assert len(heads) == MAX_HEADS
    assert not any(b"X-API-Key" in kept for kept in heads._heads)
    heads.add(b"x" * 5000, CachedHead("head", 1))
    assert heads.find(b"x" * 5000) is None
