"""Calls to Qdrant that no client makes: what two readers could understand differently is refused,
recorded, and doesn't reach Qdrant."""

import asyncio
import gzip
import threading
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from qdrant_client import grpc as g

from policies.definitions.model import Policy
from sidecar.http.grpc.wire import bytes_field
from sidecar.protocols.protocol import RoutedRequest
from sidecar.protocols.qdrant import grpc_sources
from sidecar.protocols.qdrant.grpc_sources import requests_of_call
from tests.sidecar.protocols.minimal import minimal, scripted
from tests.sidecar.protocols.qdrant.calls import framed, message_of
from tests.sidecar.protocols.qdrant.front import OPEN
from tests.sidecar.protocols.qdrant.grpc_front import GrpcFront, grpc_front
from tests.sidecar.protocols.qdrant.server import Server
from tests.sidecar.proxy.http2_client import Exchange, Http2Client

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/protocols/qdrant/test_grpc_routes.py::test_a_message_that_two_readers_could_understand_differently_is_refused"
)
GRPC = ("content-type", "application/grpc")
COUNT = "/qdrant.Points/Count"
ASKED = message_of("Points/Count", {"collection_name": "open_docs"}).SerializeToString()
SHUT = message_of("Points/Count", {"collection_name": "shut_docs"}).SerializeToString()


class Caller:
    """A connection of HTTP/2 to the listener."""

    def __init__(self, made: GrpcFront, client: Http2Client) -> None:
        self.made = made
        self.client = client

    async def call(
        self, body: bytes, *fields: tuple[str, str], path: str = COUNT, kind: Any = GRPC
    ) -> Exchange:
        head = (kind, ("te", "trailers"), *fields)
        return await self.client.ask(path, *head, method="POST", host="kb", body=body)

    async def refused(self, *given: Any, code: bytes = b"3", **named: Any) -> str:
        """The reason of a refusal, which did not reach Qdrant."""
        before = len(self.made.calls)
        got = await self.call(*given, **named)
        assert (got.status, got.reset) == (200, None)
        assert got.fields[b"grpc-status"] == code, got.fields
        assert got.fields[b"x-sluice-decision"] == b"DENY"
        assert len(self.made.calls) == before
        return unquote(got.fields[b"grpc-message"].decode())


@asynccontextmanager
async def caller(
    tmp_path: Path, server: Server, *policies: Policy, **changes: Any
) -> AsyncIterator[Caller]:
    async with grpc_front(tmp_path, server, *(policies or (OPEN,)), **changes) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.front.port)
        try:
            yield Caller(made, Http2Client(reader, writer))
        finally:
            writer.close()


def count_of(got: Exchange) -> int:
    assert got.trailers.get(b"grpc-status") == b"0", (got.fields, got.trailers)
    assert got.body[:5] == b"\0" + (len(got.body) - 5).to_bytes(4, "big")
    return int(g.CountResponse.FromString(got.body[5:]).result.count)


async def test_messages_that_readers_understand_differently_are_refused(
    tmp_path: Path, server: Server
) -> None:
    lookup = b"\x72" + bytes([len(SHUT)]) + SHUT
    bodies = [
        (COUNT, framed(ASKED + SHUT), "stands twice"),
        (COUNT, framed(SHUT + ASKED), "stands twice"),
        (COUNT, framed(ASKED + b"\x3a\x01x"), "unknown field 7"),
        (COUNT, framed(ASKED + b"\x0b\x0c"), "wire type"),
        (COUNT, framed(ASKED[:-1]), "longer than its message"),
        ("/qdrant.Points/Query", framed(ASKED + lookup * 2), "stands twice"),
        (COUNT, b"", "torn"),
        (COUNT, framed(ASKED)[:-1], "torn"),
        (COUNT, framed(ASKED)[:3], "torn"),
        (COUNT, framed(ASKED) * 2, "more than one message"),
        (COUNT, framed(ASKED) + framed(SHUT), "more than one message"),
        (COUNT, framed(ASKED) + b"\0", "more than one message"),
        (COUNT, b"\x02" + framed(ASKED)[1:], "flag 2"),
        (COUNT, b"\x80" + framed(ASKED)[1:], "flag 128"),
    ]
    async with caller(tmp_path, server) as made:
        for path, body, reason in bodies:
            assert reason in await made.refused(body, path=path)
        records = await made.made.front.sidecar.decisions()
        assert [each[:2] for each in records] == [("DENY", "unreadable_request")] * len(bodies)
        # The connection goes on.
        assert count_of(await made.call(framed(ASKED))) == 2


async def test_compressed_messages_are_inflated_within_the_limit_or_refused(
    tmp_path: Path, server: Server
) -> None:
    def packed(message: bytes) -> bytes:
        return b"\x01" + framed(message)[1:]

    bomb = gzip.compress(ASKED + b"\0" * (8 * 1024 * 1024))
    async with caller(tmp_path, server) as made:
        for coding, squeezed in (("gzip", gzip.compress(ASKED)), ("deflate", zlib.compress(ASKED))):
            got = await made.call(packed(squeezed), ("grpc-encoding", coding))
            assert count_of(got) == 2
        # What arrived is not compressed any more.
        assert "grpc-encoding" not in made.made.served.seen[-1][2]
        for coding, squeezed, reason in (
            ("gzip", gzip.compress(SHUT)[:-9], "ends early"),
            ("gzip", gzip.compress(ASKED) + gzip.compress(SHUT), "bytes follow"),
            ("gzip", ASKED, "can't be inflated"),
            ("gzip", bomb, "larger than"),
            ("snappy", ASKED, "can't be inspected"),
            ("identity", ASKED, "can't be inspected"),
        ):
            assert reason in await made.refused(packed(squeezed), ("grpc-encoding", coding))
        denied = packed(gzip.compress(SHUT))
        reason = await made.refused(denied, ("grpc-encoding", "gzip"), code=b"7")
        assert "shut_docs" in reason


async def test_a_long_message_is_walked_beside_the_loop_even_if_its_body_is_short(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[bool] = []

    def recorded(request: RoutedRequest, batch: str) -> list[Any]:
        walked.append(threading.current_thread() is threading.main_thread())
        return requests_of_call(request, batch)

    monkeypatch.setattr(grpc_sources, "requests_of_call", recorded)
    # Filters of conditions without a content, of two bytes each.
    messages = [ASKED + bytes_field(2, b"\x0a\0" * each) for each in (8_200, 99_990)]
    async with caller(tmp_path, server) as made:
        assert count_of(await made.call(framed(ASKED))) == 2
        assert walked == [True]
        for message in messages:
            walked.clear()
            squeezed = b"\x01" + framed(gzip.compress(message))[1:]
            assert len(squeezed) < 4096
            await made.call(squeezed, ("grpc-encoding", "gzip"))
            assert walked
            assert not any(walked)


async def test_the_fields_of_a_message_count_to_the_budget_of_bodies(
    tmp_path: Path, server: Server
) -> None:
    # Its 200 KB become 17 MB of objects.
    message = ASKED + bytes_field(2, b"\x0a\2\x0a\0" * 49_990)
    body = b"\1" + framed(gzip.compress(message))[1:]
    head = (GRPC, ("te", "trailers"), ("grpc-encoding", "gzip"))
    async with caller(tmp_path, server) as made:
        begun = [
            made.client.begin(COUNT, *head, method="POST", host="kb", body=body) for _ in range(12)
        ]
        codes = []
        for each in begun:
            got = await made.client.result(each)
            codes.append((got.trailers or got.fields)[b"grpc-status"])
        assert b"14" in codes
        assert codes.count(b"14") < len(codes)
        # Tried again, it has room.
        assert count_of(await made.call(framed(ASKED))) == 2


async def test_a_path_is_read_as_its_content_type_says_or_not_at_all(
    tmp_path: Path, server: Server
) -> None:
    body, fields = framed(ASKED), ("content-type", "application/json")
    async with caller(tmp_path, server) as made:
        # A method of gRPC as JSON, and a route over HTTP as gRPC.
        got = await made.call(body, kind=fields)
        assert got.status == 403
        assert b"no known route" in got.body
        rest = "/collections/open_docs/points/count"
        assert "no known route" in await made.refused(body, path=rest, code=b"7")
        for path in (
            "/qdrant.Points/Teleport",
            "/qdrant.points/Count",
            "/qdrant.Points/Count/",
            "/proxy/qdrant.Points/Count",
        ):
            assert "no known route" in await made.refused(body, path=path, code=b"7")
        assert "has a query" in await made.refused(body, path=f"{COUNT}?/qdrant.Points/Get")
        kind = ("content-type", "application/grpc+json")
        assert "content type" in await made.refused(body, kind=kind)
        # Reflection is a stream of requests, and the others are for the nodes of a cluster.
        reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
        assert "is closed" in await made.refused(body, path=reflection, code=b"7")
        for service in ("PointsInternal", "CollectionsInternal", "Raft", "StorageRead"):
            path = f"/qdrant.{service}/Scroll"
            assert "is closed" in await made.refused(body, path=path, code=b"7")
        got = await made.call(framed(b""), path="/qdrant.Qdrant/HealthCheck")
        assert g.HealthCheckReply.FromString(got.body[5:]).version == "1.19.0"


async def test_a_source_that_only_reports_gets_every_call_where_calls_go(
    tmp_path: Path, server: Server
) -> None:
    async with caller(tmp_path, server, mode="report") as made:
        # A method that the sidecar doesn't know, one that is closed, and a write.
        for method in ("Points/Teleport", "Snapshots/Create", "Points/Delete"):
            got = await made.call(framed(ASKED), path=f"/qdrant.{method}")
            assert got.fields[b"x-sluice-decision"] == b"DENY"
            assert b"grpc-status" in (got.trailers or got.fields), got.fields
        # Nothing went to the other interface.
        assert made.made.front.lines == []
        records = await made.made.front.sidecar.decisions()
        assert [each[1] for each in records] == [
            "unclassified_route", "route_denied", "write_denied",
        ]  # fmt: skip


async def test_an_alias_that_moved_is_judged_again(tmp_path: Path, server: Server) -> None:
    asked = framed(message_of("Points/Count", {}).SerializeToString())
    async with caller(tmp_path, server) as made:
        assert count_of(await made.call(asked)) == 2
        server.alias("docs", "shut_docs")
        made.made.front.ticking.ahead = 31
        assert "shut_docs" in await made.refused(asked, code=b"7")


async def test_what_arrives_is_the_canonical_form_of_what_was_judged(
    tmp_path: Path, server: Server
) -> None:
    # `exact` stands before the name.
    async with caller(tmp_path, server) as made:
        for sent in (b"\x18\x01" + ASKED, ASKED + b"\x18\x01"):
            assert count_of(await made.call(framed(sent))) == 2
            assert made.made.served.raw[-1] == ASKED + b"\x18\x01"


async def test_calls_need_an_address_for_grpc(tmp_path: Path, server: Server) -> None:
    async with minimal(tmp_path, "qdrant", scripted(server.answer), OPEN) as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        client = Http2Client(reader, writer)
        body = framed(ASKED)
        got = await client.ask(COUNT, GRPC, method="POST", host="kb", body=body)
        assert got.fields[b"grpc-status"] == b"7"
        assert b"setting `grpc`" in got.fields[b"grpc-message"]
        assert front.lines == []
        writer.close()
