"""Pinecone's clients over gRPC, through a sidecar: the one over grpcio (8.1.2) and the one in Rust
(10.2). And what no client would send."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pinecone.errors.exceptions import ForbiddenError

from sidecar.http.grpc.framing import frame
from sidecar.http.grpc.wire import bytes_field, varint_field
from tests.sidecar.protocols.pinecone import quick_start, wheel
from tests.sidecar.protocols.pinecone.front import LEVELS, MARKED, OPEN, READERS
from tests.sidecar.protocols.pinecone.grpc_front import CALL, Called, in_front_of_calls
from tests.sidecar.protocols.pinecone.grpc_server import GrpcServer
from tests.sidecar.protocols.pinecone.server import Server
from tests.sidecar.proxy.raw_client import one
from tests.support.proxy import listening, sidecar, source


class ClientFailed(Exception):
    """the message is what the client's program wrote to its standard error"""


async def by_grpcio(address: str, namespace: str) -> dict[str, Any]:
    """What the client 8.1.2 reads, in an environment of its own."""
    path = os.pathsep.join(map(str, wheel.folders()))
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", quick_start.__file__, address, namespace,
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await program.communicate()
    if program.returncode:
        raise ClientFailed(errors.decode())
    found: dict[str, Any] = json.loads(output)
    return found


async def by_rust(address: str, namespace: str) -> dict[str, Any]:
    return await asyncio.to_thread(quick_start.read, address, namespace)


HIDDEN = {"total": 2, "stats": {"__default__": 1, "open": 1}, "namespaces": ["__default__", "open"]}
METHODS = [
    "Query", "Fetch", "FetchByMetadata", "DescribeIndexStats", "Upsert", "Query", "List",
    "ListNamespaces", "DescribeNamespace",
]  # fmt: skip


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/pinecone/test_grpc_routes.py::test_a_call_is_judged_as_its_twin_in_rest"
)
@pytest.mark.parametrize("client", [by_grpcio, by_rust])
async def test_a_quick_start_reads_through_the_sidecar_as_from_pinecone(
    tmp_path: Path, client: Any
) -> None:
    async with in_front_of_calls(tmp_path, Server("low"), OPEN, writes="allow") as called:
        direct = await client(called.direct, "open")
        called.upstream.seen.clear()
        through = await client(called.address, "open")
        assert direct["stats"]["shut"] == 1
        # Alike, but for what the agent may not know of.
        assert through == direct | HIDDEN
        assert called.upstream.methods == METHODS
        decided = await called.front.sources()
    assert decided == [("ALLOW", "pinecone://kb/open")] * 7


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/pinecone/test_grpc_routes.py::test_a_call_is_judged_as_its_twin_in_rest"
)
async def test_a_denied_namespace_raises_with_the_reason_and_is_not_called(called: Called) -> None:
    reason = "source `pinecone://kb/shut` is in `denied_sources`"
    with pytest.raises(ClientFailed, match=f"PineconeException.*{reason}"):
        await by_grpcio(called.address, "shut")
    with pytest.raises(ForbiddenError, match=reason):
        await by_rust(called.address, "shut")
    assert await called.front.sources() == [("DENY", "pinecone://kb/shut")] * 2
    assert called.upstream.seen == []


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/pinecone/test_grpc_routes.py::test_a_query_returns_only_visible_records"
)
async def test_a_client_gets_only_visible_records(tmp_path: Path) -> None:
    async with in_front_of_calls(tmp_path, Server(*LEVELS), READERS, **MARKED) as called:

        def read() -> None:
            index, named = quick_start.opened(called.address), {"namespace": "open"}
            found = index.query(vector=[1.0], top_k=9, **named).matches
            assert [(each.id, each.metadata) for each in found] == [("1", None), ("3", None)]
            assert sorted(index.fetch(ids=["1", "2", "3"], **named).vectors) == ["1", "3"]
            # From these, nothing can be withheld.
            for unfiltered in (
                partial(index.query, id="1", top_k=9), partial(index.list_paginated),
            ):  # fmt: skip
                with pytest.raises(ForbiddenError, match="`critical`"):
                    unfiltered(**named)

        await asyncio.to_thread(read)
        assert called.upstream.methods == ["Query", "Fetch"]


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/pinecone/test_grpc_routes.py::test_a_call_is_judged_as_its_twin_in_rest"
)
async def test_calls_go_to_the_address_of_rest_unless_another_is_set(tmp_path: Path) -> None:
    with GrpcServer(Server("low")).running() as upstream:
        async with (
            sidecar(tmp_path, OPEN) as made,
            listening(made, source(upstream.port, "pinecone")) as port,
        ):
            index = quick_start.opened(f"127.0.0.1:{port}")
            found = await asyncio.to_thread(lambda: index.fetch(ids=["1"], namespace="open"))
    assert list(found.vectors) == ["1"]
    assert upstream.methods == ["Fetch"]


TOP = varint_field(2, 3)
SHUT, ASKED = bytes_field(1, b"shut"), bytes_field(1, b"open")
COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}


def coded(data: bytes, flag: bytes = b"\1") -> bytes:
    return flag + frame(data)[1:]


MESSAGES: dict[str, tuple[bytes, int]] = {
    "the name alone": (SHUT, 7),
    "last": (TOP + SHUT, 7),
    "the name twice": (ASKED + SHUT, 3),
    "the name twice, backwards": (SHUT + ASKED, 3),
    "an empty name first": (bytes_field(1, b"") + SHUT, 3),
    "within a query of several": (ASKED + bytes_field(6, bytes_field(3, b"shut")), 7),
    "within, twice": (bytes_field(6, bytes_field(3, b"open") + bytes_field(3, b"shut")), 3),
    "beside an unknown field": (ASKED + bytes_field(99, b"shut"), 3),
    "in a group": (ASKED + b"\x0b" + SHUT + b"\x0c", 3),
    "behind a tag of two bytes": (b"\x8a\0\4shut", 3),
    "behind a length of two bytes": (b"\x0a\x84\0shut", 3),
    "as a number": (varint_field(1, 5), 3),
    "not UTF-8": (bytes_field(1, b"shut\xff"), 3),
    "cut": (SHUT[:-1], 3),
}
HEADS: dict[str, tuple[str, bytes, tuple[tuple[str, str], ...], int | None]] = {
    # Path, body, header fields, gRPC's status or None for an answer in HTTP.
    **{
        f"by {coding}": ("/VectorService/Query", coded(compress(SHUT)),
                         (*CALL, ("grpc-encoding", coding)), 7)
        for coding, compress in COMPRESSED.items()
    },
    "a flag without a coding": ("/VectorService/Query", coded(gzip.compress(ASKED)), CALL, 3),
    "two codings": ("/VectorService/Query", coded(gzip.compress(ASKED)),
                    (*CALL, ("grpc-encoding", "gzip"), ("grpc-encoding", "identity")), 3),
    "two messages": ("/VectorService/Query", frame(ASKED) + frame(SHUT), CALL, 3),
    "no message": ("/VectorService/Query", b"", CALL, 3),
    "a torn frame": ("/VectorService/Query", frame(ASKED)[:-1], CALL, 3),
    "bytes behind": ("/VectorService/Query", frame(ASKED) + b"\0", CALL, 3),
    "a flag of trailers": ("/VectorService/Query", coded(ASKED, b"\x80"), CALL, 3),
    "an escaped path": ("/VectorService/Quer%79", frame(SHUT), CALL, 7),
    "an empty segment": ("/VectorService//Query", frame(SHUT), CALL, 3),
    "an unknown method": ("/VectorService/Export", frame(ASKED), CALL, 7),
    "reflection": ("/grpc.reflection.v1.ServerReflection/Info", frame(b""), CALL, 7),
    "a write": ("/VectorService/Delete", frame(bytes_field(3, b"open")), CALL, 7),
    "messages of JSON": ("/VectorService/Query", frame(b'{"namespace":"open"}'),
                         (("content-type", "application/grpc+json"),), 3),
    "of the web": ("/VectorService/Query", frame(SHUT),
                   (("content-type", "application/grpc-web+proto"),), None),
    "no call": ("/VectorService/Query", frame(SHUT), (("content-type", "application/json"),), None),
    "a call of REST": ("/query", b'{"namespace":"open","topK":1}', CALL, 7),
}  # fmt: skip


@pytest.mark.deep(
    stands_in="tests/sidecar/http/grpc/test_protobuf.py::test_what_two_readers_could_read_differently_is_refused"
)
async def test_no_call_gets_by_what_it_says(called: Called) -> None:
    cases = {
        name: ("/VectorService/Query", frame(data), CALL, status)
        for name, (data, status) in MESSAGES.items()
    }
    for asked, (name, case) in enumerate({**cases, **HEADS}.items(), 1):
        path, body, fields, status = case
        got = await called.ask(path, body, *fields)
        if status is None:
            assert got.status == 403, name
        else:
            found = {**got.fields, **got.trailers}
            assert (got.status, int(found[b"grpc-status"])) == (200, status), (name, found)
        decided = await called.front.sources()
        assert [each[0] for each in decided] == ["DENY"] * asked, name
    assert called.upstream.seen == []
    assert called.front.lines == []
    # By HTTP/1.1 too, where only a message in REST is expected.
    head = b"POST /VectorService/Query HTTP/1.1\r\nHost: kb\r\nContent-Type: application/grpc\r\n"
    body = frame(SHUT)
    answered = await one(called.front.port, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert answered.status == 403
    assert called.upstream.seen == []


@pytest.mark.deep(
    stands_in="tests/sidecar/http/grpc/test_protobuf.py::test_what_two_readers_could_read_differently_is_refused"
)
async def test_what_is_forwarded_is_the_canonical_encoding(called: Called) -> None:
    fields = (("x-sluice-user", "ada"), ("baggage", "sluice.task=t"), ("api-key", "k"))
    vector = b"\x3d\0\0\x80\x3f"  # a number of a list, by itself
    got = await called.call("Query", vector + TOP + ASKED, *fields)
    assert got.trailers[b"grpc-status"] == b"0"
    [(method, data, metadata)] = called.upstream.seen
    assert (method, data) == ("Query", ASKED + TOP + bytes_field(7, b"\0\0\x80\x3f"))
    assert metadata["api-key"] == "k"
    assert not {name for name in metadata if name.startswith("x-sluice") or name == "baggage"}


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/pinecone/test_grpc_routes.py::test_a_call_is_judged_as_its_twin_in_rest"
)
async def test_a_page_token_is_valid_for_its_user_alone(called: Called) -> None:
    token = bytes_field(3, b"more") + bytes_field(4, b"open")
    assert (await called.call("List", token)).fields[b"grpc-status"] == b"7"
    assert (await called.call("List", bytes_field(4, b"open"))).trailers[b"grpc-status"] == b"0"
    assert (await called.call("List", token)).trailers[b"grpc-status"] == b"0"
    other = await called.call("List", token, ("x-sluice-user", "bob"))
    assert other.fields[b"grpc-status"] == b"7"
    names = [each[:2] for each in await called.front.sidecar.decisions()]
    assert names[0] == names[3] == ("DENY", "unresolved_source")
    # The same token in REST.
    target = "/vectors/list?namespace=open&paginationToken=more"
    assert (await called.front.ask("GET", target)).status == 200


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/pinecone/test_grpc_routes.py::test_a_call_is_judged_as_its_twin_in_rest"
)
async def test_a_call_needs_no_record_for_the_health_of_the_source(called: Called) -> None:
    got = await called.ask("/grpc.health.v1.Health/Check", frame(b""), *CALL)
    assert got.body == frame(b"\x08\x01")
    assert await called.front.sources() == []
