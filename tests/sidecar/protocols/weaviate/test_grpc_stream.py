"""Weaviate's stream of writes: each of its messages is judged before it is sent on, and all of them
concern what the first one named."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import weaviate
from weaviate.exceptions import WeaviateBaseError
from weaviate.proto.v1 import batch_pb2

from policies.definitions.model import TenantSettings
from sidecar.http.grpc.framing import frame
from sidecar.http.request_body import BodyBudget
from sidecar.proxy.limits import LIMITS
from tests.sidecar.doors.door_setup import door
from tests.sidecar.protocols.weaviate.front import OPEN
from tests.sidecar.protocols.weaviate.grpc_front import GrpcFront, grpc_front
from tests.sidecar.protocols.weaviate.server import Server
from tests.sidecar.protocols.weaviate.test_grpc_bypasses import CALL, compressed, status
from tests.sidecar.proxy.http2_client import Exchange, Http2Client
from tests.support.waiting import until_async

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_every_field_that_names_a_collection_or_tenant_is_judged"
)
PATH = "/weaviate.v1.Weaviate/BatchStream"
Message = batch_pb2.BatchStreamRequest
START = frame(Message(start={}).SerializeToString())
STOP = frame(Message(stop={}).SerializeToString())
ALLOWED, OTHER = ("ALLOW", "weaviate://kb/Open"), ("DENY", "weaviate://kb/Shut")


def written(*objects: dict[str, Any]) -> bytes:
    message: bytes = Message(data={"objects": {"values": list(objects)}}).SerializeToString()
    return message


def referring(**reference: Any) -> bytes:
    return frame(Message(data={"references": {"values": [reference]}}).SerializeToString())


ONE = frame(written({"collection": "Open", "uuid": "1"}))
SHUT = frame(written({"collection": "Shut", "uuid": "2"}))


class Stream:
    """A stream of messages through the sidecar, as frames of HTTP/2."""

    def __init__(self, client: Http2Client, number: int) -> None:
        self._client = client
        self.h2, self.number = client.h2, number
        self.got: Exchange = client.exchanges[number]

    def send(self, data: bytes, *, end: bool = False) -> None:
        self.h2.send_data(self.number, data, end_stream=end)
        self._client.flush()

    async def receives(self, size: int) -> None:
        """Wait until the response has so many bytes, or is over."""
        while len(self.got.body) < size and not self.got.over:
            assert await self._client.exchange()

    async def result(self) -> Exchange:
        return await self._client.result(self.number)

    def flush(self) -> None:
        self._client.flush()

    async def read(self) -> None:
        await self._client.exchange()


@asynccontextmanager
async def opened(front: GrpcFront, *fields: tuple[str, str]) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.grpc_port)
    try:
        client = Http2Client(reader, writer)
        host = f"127.0.0.1:{front.grpc_port}"
        head = (CALL, ("te", "trailers"), *fields)
        number = client.begin(PATH, *head, method="POST", host=host, body=b"", end=False)
        client.flush()
        yield Stream(client, number)
    finally:
        writer.close()


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[GrpcFront]:
    async with grpc_front(tmp_path, Server("low"), OPEN, writes="allow") as front:
        yield front


def kept(front: GrpcFront) -> list[bytes]:
    """The messages that reached Weaviate, in their frames."""
    return [frame(message.SerializeToString()) for _, message, _ in front.served.calls]


async def test_messages_pass_one_by_one_with_the_answers_between(front: GrpcFront) -> None:
    referred = referring(from_collection="Docs", name="more")
    async with opened(front) as stream:
        before, answered = list[bytes](), 0
        for each, length in ((START, 7), (ONE, 22), (referred, 14)):
            stream.send(each)
            await stream.receives(answered := answered + length)
            before.append(each)
            assert (stream.got.over, kept(front)) == (False, before)
        stream.send(STOP, end=True)
        assert status(await stream.result())[0] == 0
    assert kept(front) == [START, ONE, referred, STOP]
    assert await front.sources() == [ALLOWED]


async def test_frames_are_found_in_whatever_pieces_they_arrive(front: GrpcFront) -> None:
    # The fields of the second object in another order, and one that counts for nothing.
    odd = b"\x12\x0d\x0a\x0b\x0a\x09\x22\x04Open\x0a\x01" + b"3"
    assert Message.FromString(odd).data.objects.values[0].uuid == "3"
    for whole in (START + ONE + frame(odd), compressed(gzip.compress(odd)) + ONE):
        front.served.calls.clear()
        async with opened(front, ("grpc-encoding", "gzip")) as stream:
            for at in range(0, len(whole), 3):
                stream.send(whole[at : at + 3])
                await asyncio.sleep(0)
            stream.send(b"", end=True)
            assert status(await stream.result())[0] == 0
        written_anew = frame(Message.FromString(odd).SerializeToString())
        expected = [START, ONE, written_anew] if whole[:5] == START[:5] else [written_anew, ONE]
        assert kept(front) == expected


UNREADABLE = {
    "an end within a head": ONE[:3],
    "an end within a message": ONE[:-1],
    "an unknown flag": b"\2" + ONE[1:],
    "a message over the limit": b"\0\0\x40\0\1",
    "a bomb": compressed(gzip.compress(bytes(12 << 20))),
    "an unknown field": frame(written({"collection": "Open"}) + b"\x9a\x06\x04Shut"),
    "two of a oneof": frame(written({"collection": "Open"}) + b"\x1a\x00"),
    "a thousand and one objects": frame(written(*[{"collection": "Open"}] * 1001)),
}


async def test_a_message_that_can_not_be_read_ends_the_stream(front: GrpcFront) -> None:
    for begun in (False, True):
        for name, data in UNREADABLE.items():
            front.served.calls.clear()
            async with opened(front, ("grpc-encoding", "gzip")) as stream:
                if begun:
                    stream.send(START)
                    await stream.receives(1)
                for at in range(0, len(data), 16384):
                    stream.send(data[at : at + 16384])
                # One that is too long is refused by its head alone.
                stream.send(b"", end="over" not in name)
                got = await stream.result()
                assert (status(got)[0], bool(got.trailers)) == (3, begun), name
            assert kept(front) == [START] * begun, name
    names = [each[1] for each in await front.sidecar.decisions()]
    assert names == ["unreadable_request"] * 2 * len(UNREADABLE)


@pytest.mark.parametrize(
    ("other", "reason", "named"),
    [
        (SHUT, b"is not in `allowed_sources`", "weaviate://kb/Shut"),
        (frame(written({"collection": "OpenMore"})), b"the first one didn't", "weaviate://kb/OpenMore"),
        (frame(written({"collection": "Open", "tenant": "ours"})), b"the first one didn't",
         "weaviate://kb/Open/ours"),
        (referring(from_collection="Open", to_collection="Shut"), b"allowed_sources",
         "weaviate://kb/Shut"),
        (frame(written({"collection": "Open"}, {"collection": "OpenAlias"})), b"allowed_sources",
         "weaviate://kb/Shut"),
    ],
)  # fmt: skip
async def test_another_source_in_a_later_message_ends_the_stream(
    front: GrpcFront, other: bytes, reason: bytes, named: str
) -> None:
    async with opened(front) as stream:
        stream.send(START + ONE + ONE)
        await stream.receives(15)
        stream.send(other + ONE)
        got = await stream.result()
        assert (status(got)[0], got.fields.get(b"grpc-status")) == (7, None)
        assert reason in got.trailers[b"grpc-message"]
    await asyncio.to_thread(front.served.streams_ended.wait, 30)
    assert kept(front) == [START, ONE, ONE]
    assert await front.sources() == [ALLOWED, ("DENY", named)]


async def test_a_denied_first_message_is_told_in_the_head(front: GrpcFront) -> None:
    async with opened(front) as stream:
        stream.send(SHUT)
        got = await stream.result()
    assert (got.status, status(got)[0], got.trailers, front.served.calls) == (200, 7, {}, [])
    assert await front.sources() == [OTHER]


async def test_where_a_source_only_reports_the_stream_goes_on(tmp_path: Path) -> None:
    async with (
        grpc_front(tmp_path, Server("low"), OPEN, writes="allow", mode="report") as front,
        opened(front) as stream,
    ):
        more = frame(written({"collection": "OpenMore"}))
        stream.send(ONE + more + more + SHUT)
        stream.send(STOP, end=True)
        assert status(await stream.result())[0] == 0
        assert kept(front) == [ONE, more, more, SHUT, STOP]
        records = [each for each in await front.sources() if each[0] == "DENY"]
        assert ("DENY", "weaviate://kb/OpenMore") in records
        assert OTHER in records


async def test_without_writes_the_stream_is_closed(tmp_path: Path) -> None:
    async with grpc_front(tmp_path, Server("low"), OPEN) as front, opened(front) as stream:
        stream.send(START + ONE)
        assert status(await stream.result())[0] == 7
        assert front.served.calls == []
        assert not front.served.streams_ended.is_set()
        assert [each[1] for each in await front.sidecar.decisions()] == ["write_denied"]


async def test_a_client_that_leaves_ends_the_call_at_weaviate(tmp_path: Path) -> None:
    bodies = BodyBudget()
    async with grpc_front(tmp_path, Server("low"), OPEN, writes="allow", bodies=bodies) as front:
        async with opened(front) as stream:
            stream.send(START + ONE[:-1])
            await stream.receives(1)
            stream.h2.reset_stream(stream.number)
            stream.flush()
            assert await asyncio.to_thread(front.served.streams_ended.wait, 30)
        await until_async("nothing is held", lambda: not bodies.held)
        assert kept(front) == [START]


async def test_a_revocation_resets_the_stream(tmp_path: Path) -> None:
    often = replace(LIMITS, reauthorize_seconds=0.01)  # expires on purpose
    async with grpc_front(
        tmp_path, Server("low"), OPEN, writes="allow", limits=often
    ) as front:  # fmt: skip
        async with opened(front) as stream:
            stream.send(START + ONE)
            await stream.receives(10)
            front.sidecar.publish(TenantSettings("ten_1", frozen_at=1))
            got = await stream.result()
            assert got.reset is not None
        assert await asyncio.to_thread(front.served.streams_ended.wait, 30)
        names = [each[1] for each in await front.sidecar.decisions()]
        assert names[1:] == ["tenant_frozen"]


async def test_a_revocation_ends_a_stream_that_was_not_answered_yet(tmp_path: Path) -> None:
    async with grpc_front(tmp_path, Server("low"), OPEN, writes="allow") as front:
        front.served.reads_streams.clear()
        async with opened(front) as stream:
            stream.send(START + ONE)

            async def decided() -> bool:
                return bool(await front.sidecar.decisions())

            await until_async("the first message is decided", decided)
            front.sidecar.publish(TenantSettings("ten_1", frozen_at=1))
            stream.send(ONE)
            async with asyncio.timeout(20):  # before Weaviate begins to answer
                got = await stream.result()
            assert status(got)[0] == 7
        front.served.reads_streams.set()
        assert [each[1] for each in await front.sidecar.decisions()][1:] == ["tenant_frozen"]


async def test_a_slow_weaviate_slows_its_client(tmp_path: Path) -> None:
    bodies, size = BodyBudget(), 1 << 20
    big = frame(written({"collection": "Open", "vector_bytes": bytes(size)}))
    async with grpc_front(tmp_path, Server("low"), OPEN, writes="allow", bodies=bodies) as front:
        front.served.reads_streams.clear()
        async with opened(front) as stream:
            rest, sent = memoryview(big * 30), 0

            async def push() -> None:
                nonlocal sent
                while sent < len(rest):
                    room = min(stream.h2.local_flow_control_window(stream.number), 16384)
                    if not room:
                        await stream.read()
                        continue
                    stream.send(bytes(rest[sent : sent + room]))
                    sent += room

            pushing = asyncio.create_task(push())
            await asyncio.wait((pushing,), timeout=2)
            # What Weaviate's own library takes ahead, and one message in the sidecar.
            assert sent < 12 << 20
            assert bodies.held <= 2 * size
            front.served.reads_streams.set()
            await pushing
            stream.send(b"", end=True)
            assert status(await stream.result())[0] == 0
        assert len(front.served.calls) == 30
        assert bodies.held == 0


def connected(front: GrpcFront) -> weaviate.WeaviateClient:
    return weaviate.connect_to_custom(
        http_host="127.0.0.1", http_port=front.port, http_secure=False,
        grpc_host="127.0.0.1", grpc_port=front.grpc_port, grpc_secure=False,
    )  # fmt: skip


async def test_the_client_s_streaming_batch_writes_one_collection(
    front: GrpcFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weaviate.connect.v4.PYPI_PACKAGE_URL", "http://127.0.0.1:9/")

    def write(name: str, pause: float = 0) -> Any:
        with connected(front) as client:
            docs = client.collections.use(name)
            with docs.batch.stream() as batch:
                for n in range(250):
                    batch.add_object({"title": f"text {n}"})
                    time.sleep(pause)
            return len(docs.batch.results.objs.uuids), docs.batch.failed_objects

    assert await asyncio.to_thread(write, "Open") == (250, [])
    messages = [each for name, each, _ in front.served.calls if name == "BatchStream"]
    assert sum(len(each.data.objects.values) for each in messages) == 250
    front.served.calls.clear()
    # The client looks at its stream when the next object is added: one that is denied at the end of
    # a batch is only in its log.
    with pytest.raises(WeaviateBaseError, match="allowed_sources"):
        await asyncio.to_thread(write, "Shut", 0.02)
    assert not [each for _, each, _ in front.served.calls if each.HasField("data")]
    assert (await front.sources())[-1] == OTHER


async def test_the_asynchronous_client_does_the_same(
    front: GrpcFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weaviate.connect.v4.PYPI_PACKAGE_URL", "http://127.0.0.1:9/")
    client = weaviate.use_async_with_local(
        "127.0.0.1", port=front.port, grpc_port=front.grpc_port
    )  # fmt: skip
    async with client:
        docs = client.collections.use("Open")
        async with docs.batch.stream() as batch:
            await batch.add_object({"title": "text"})
        assert len(docs.batch.results.objs.uuids) == 1


async def test_a_check_door_passes_no_stream(tmp_path: Path) -> None:
    address = "http://127.0.0.1:9"
    async with door(tmp_path, kind="weaviate", writes="allow", grpc=address) as asked:
        call = (b"content-type", b"application/grpc")
        verdict, _ = await asked.verdict("POST", PATH, call, body=ONE)
        assert verdict == "stop"
