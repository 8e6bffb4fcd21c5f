"""Ways around the decision about a gRPC call: messages, frames, codings, content types and paths
that could be read in two ways. Each goes through a whole sidecar, and none reaches Weaviate."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from weaviate.proto.v1 import search_get_pb2

from sidecar.http.grpc.framing import frame
from tests.sidecar.protocols.weaviate.front import OPEN
from tests.sidecar.protocols.weaviate.grpc_front import GrpcFront, grpc_front
from tests.sidecar.protocols.weaviate.server import Server
from tests.sidecar.protocols.weaviate.test_grpc_sources import AMBIGUOUS
from tests.sidecar.proxy.http2_client import Exchange, Http2Client

SEARCH = "/weaviate.v1.Weaviate/Search"
CALL = ("content-type", "application/grpc")
ALLOWED = search_get_pb2.SearchRequest(collection="Open").SerializeToString()
FORBIDDEN = search_get_pb2.SearchRequest(collection="Shut").SerializeToString()


def compressed(data: bytes) -> bytes:
    return b"\1" + len(data).to_bytes(4, "big") + data


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[GrpcFront]:
    async with grpc_front(tmp_path, Server("low"), OPEN) as front:
        yield front


async def call(
    front: GrpcFront, body: bytes, *fields: tuple[str, str], path: str = SEARCH
) -> Exchange:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.grpc_port)
    try:
        client = Http2Client(reader, writer)
        host = f"127.0.0.1:{front.grpc_port}"
        head = (*(fields or (CALL,)), ("te", "trailers"))
        return await client.ask(path, *head, method="POST", host=host, body=body)
    finally:
        writer.close()


def status(got: Exchange) -> tuple[int, bytes]:
    fields = {**got.fields, **got.trailers}
    return int(fields.get(b"grpc-status", b"-1")), fields.get(b"grpc-message", b"")


TORN = {
    "no message": b"",
    "a torn head": frame(ALLOWED)[:3],
    "a torn message": frame(ALLOWED)[:-1],
    "two messages": frame(ALLOWED) + frame(FORBIDDEN),
    "bytes behind the message": frame(ALLOWED) + b"\0",
    "an unknown flag": b"\2" + frame(ALLOWED)[1:],
    "gRPC-Web's trailers": frame(ALLOWED) + b"\x80\0\0\0\0",
    "a message that claims to be compressed": compressed(ALLOWED),
}


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_a_message_that_readers_could_take_differently_is_refused"
)
async def test_what_could_be_read_in_two_ways_is_refused(front: GrpcFront) -> None:
    bodies = [*TORN.values(), *map(frame, AMBIGUOUS.values())]
    for body in bodies:
        got = await call(front, body)
        assert (got.status, status(got)[0]) == (200, 3), body
    assert front.served.calls == []
    names = [each[1] for each in await front.sidecar.decisions()]
    assert names == ["unreadable_request"] * len(bodies)


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_a_message_that_readers_could_take_differently_is_refused"
)
async def test_a_compressed_message_is_judged_by_what_is_in_it(front: GrpcFront) -> None:
    deflated = zlib.compress(FORBIDDEN)
    for coding, data in (("gzip", gzip.compress(FORBIDDEN)), ("deflate", deflated)):
        got = await call(front, compressed(data), CALL, ("grpc-encoding", coding))
        assert status(got)[0] == 7, coding
    bomb = gzip.compress(bytes(12 << 20))  # of what fits into one frame of HTTP/2
    for coding, data in (("gzip", bomb), ("snappy", ALLOWED), ("gzip", b"x")):
        got = await call(front, compressed(data), CALL, ("grpc-encoding", coding))
        assert status(got)[0] == 3, coding
    assert front.served.calls == []
    got = await call(front, compressed(gzip.compress(ALLOWED)), CALL, ("grpc-encoding", "gzip"))
    assert status(got)[0] == 0
    [(method, request, metadata)] = front.served.calls
    assert (method, request.SerializeToString()) == ("Search", ALLOWED)
    assert "grpc-encoding" not in metadata


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_a_message_that_readers_could_take_differently_is_refused"
)
async def test_what_is_forwarded_is_written_anew_unless_it_was_canonical(front: GrpcFront) -> None:
    # The same request with its fields in another order, and an empty one that counts for nothing.
    odd = b"\xf0\x01\x05" + b"\x52\x00" + ALLOWED
    assert search_get_pb2.SearchRequest.FromString(odd).limit == 5
    assert status(await call(front, frame(odd)))[0] == 0
    [(_, request, _)] = front.served.calls
    assert request.SerializeToString() == ALLOWED + b"\xf0\x01\x05"


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_a_message_that_readers_could_take_differently_is_refused"
)
@pytest.mark.parametrize(
    ("path", "media", "name"),
    [
        (SEARCH, "application/json", "unclassified_route"),
        (SEARCH, "application/grpc-web+proto", "unclassified_route"),
        (SEARCH, "application/grpc+json", "unreadable_request"),
        ("/v1/graphql", "application/grpc", "unclassified_route"),
        ("/v1/objects", "application/grpc", "unclassified_route"),
        ("/weaviate.v1.Weaviate/search", "application/grpc", "unclassified_route"),
        ("/weaviate.v1.Weaviate/Search/", "application/grpc", "unclassified_route"),
        ("/weaviate.v1.Weaviate//Search", "application/grpc", "unreadable_request"),
        ("/weaviate.v1.Weaviate/New", "application/grpc", "unclassified_route"),
        ("/weaviate.v1.Weaviate/BatchStream", "application/grpc", "write_denied"),
        ("/weaviate.v1.FileReplicationService/GetFile", "application/grpc", "route_denied"),
        ("/weaviate.v1.FileReplicationService/New", "application/grpc", "unclassified_route"),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "application/grpc",
         "route_denied"),
    ],
)  # fmt: skip
async def test_no_other_path_or_content_type_leads_around(
    front: GrpcFront, path: str, media: str, name: str
) -> None:
    await call(front, frame(ALLOWED), ("content-type", media), path=path)
    assert front.served.calls == []
    assert not [each for each in front.upstream.seen if each.line.startswith("POST")]
    assert [each[1] for each in await front.sidecar.decisions()] == [name]


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_sources.py::test_a_message_that_readers_could_take_differently_is_refused"
)
async def test_an_escaped_path_is_judged_and_forwarded_as_what_it_means(front: GrpcFront) -> None:
    path = "/weaviate.v1.Weaviate/%53earch"
    assert status(await call(front, frame(FORBIDDEN), path=path))[0] == 7
    assert status(await call(front, frame(ALLOWED), path=path))[0] == 0
    assert front.served.names == ["Search"]
