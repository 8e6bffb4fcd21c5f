"""A write that names its source in the body alone, at a source with `writes: deny`: it is denied as
a write whatever its body is, and recorded under the source that the body names, or for the data
source as a whole if the body can't be read. It is never forwarded."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.http.request_body import BodyBudget
from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.http2_client import Http2Client
from tests.sidecar.proxy.raw_client import INTERIM, Answered, one
from tests.support.proxy import Sidecar, listening, policy, sidecar, source
from tests.support.scripted_source import DataSource, answer, data_source

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/protocols/pinecone/test_routes.py::"
    "test_a_closed_route_is_denied_and_not_forwarded"
)

LIMIT = 64 * 1024
LONG = b'{"namespace": "ours", "x": "' + b"x" * LIMIT + b'"}'
SHORT = b'{"namespace": "ours"}'
UPSERT = "/vectors/upsert"
NAMED, WHOLE = "pinecone://kb/ours", "pinecone://kb"
JSON = ("content-type", "application/json")


@dataclass
class Front:
    port: int
    upstream: DataSource
    sidecar: Sidecar

    async def recorded(self, *sources: str) -> None:
        """These sources are recorded as denied writes, and nothing was forwarded."""
        decisions = await self.sidecar.decisions()
        assert decisions == [("DENY", "write_denied", each) for each in sources]
        assert self.upstream.seen == []


@asynccontextmanager
async def front(tmp_path: Path, kind: str = "pinecone", **changes: Any) -> AsyncIterator[Front]:
    limits = replace(LIMITS, inspected_bytes=LIMIT, inspected_seconds=2.0)
    async with data_source(answer()) as upstream, sidecar(tmp_path, policy()) as made:
        configured = source(upstream.port, kind, **changes)
        async with listening(made, configured, limits) as port:
            yield Front(port, upstream, made)


def head(*lines: str) -> bytes:
    fields = ("Host: kb", "Content-Type: application/json", *lines)
    return "\r\n".join((f"POST {UPSERT} HTTP/1.1", *fields)).encode() + b"\r\n\r\n"


def with_length(body: bytes, *lines: str) -> bytes:
    return head(f"Content-Length: {len(body)}", *lines) + body


def chunked(body: bytes) -> bytes:
    return head("Transfer-Encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def is_denied(answered: Answered) -> None:
    assert answered.status == 403, answered.raw
    assert answered.json["decision"]["policy_name"] == "write_denied"
    assert "`writes` is `deny`" in answered.json["decision"]["reason"]


async def test_a_denied_write_is_recorded_under_what_its_body_names_over_http_1(
    tmp_path: Path,
) -> None:
    async with front(tmp_path) as made:
        for request in (with_length(SHORT), chunked(SHORT)):
            is_denied(await one(made.port, request))
        unread = (
            with_length(SHORT[:-1]),
            with_length(b'{"namespace": "ours", "namespace": "theirs"}'),
            with_length(b'{"namespace": 1}'),
            with_length(b""),
            with_length(gzip.compress(SHORT), "Content-Encoding: gzip"),
            # Refused by its length, and not asked for: nothing of it is here.
            head(f"Content-Length: {len(LONG)}", "Expect: 100-continue"),
            chunked(LONG),
            # The rest doesn't come in time.
            with_length(SHORT)[:-1],
        )
        for request in unread:
            is_denied(await one(made.port, request))
        await made.recorded(NAMED, NAMED, *[WHOLE] * len(unread))


async def test_a_denied_write_is_recorded_under_what_its_body_names_over_http_2(
    tmp_path: Path,
) -> None:
    async with front(tmp_path) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        client = Http2Client(reader, writer)
        length = ("content-length", str(len(LONG)))
        for body, fields in (
            (SHORT, ()), (SHORT[:-1], ()), (LONG[: LIMIT // 2], (length,)),
        ):  # fmt: skip
            end = not fields
            stream = client.begin(UPSERT, JSON, *fields, method="POST", body=body[:16384], end=end)
            got = await client.result(stream)
            assert (got.status, b"write_denied" in got.body) == (403, True)
        # Without a stated length, it is read until it is too long.
        stream = client.begin(UPSERT, JSON, method="POST", end=False)
        sent = 0
        while not client.exchanges[stream].over and sent <= 2 * LIMIT:
            if client.h2.local_flow_control_window(stream) >= 8192:
                client.h2.send_data(stream, b"x" * 8192)
                sent += 8192
                client.flush()
                await asyncio.sleep(0)
            else:
                await client.exchange()
        assert (await client.result(stream)).status == 403
        writer.close()
        await made.recorded(NAMED, WHOLE, WHOLE, WHOLE)


async def test_an_agent_that_waits_to_send_the_body_of_a_denied_write_is_asked_for_it(
    tmp_path: Path,
) -> None:
    async with front(tmp_path) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(head(f"Content-Length: {len(SHORT)}", "Expect: 100-continue"))
        assert await reader.readexactly(len(INTERIM)) == INTERIM
        writer.write(SHORT)
        assert Answered(await reader.readuntil(b"\r\n\r\n")).status == 403
        writer.close()
        await made.recorded(NAMED)


async def test_without_room_for_its_body_a_write_is_denied_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BodyBudget.__init__, "__defaults__", (8,))
    async with front(tmp_path) as made:
        is_denied(await one(made.port, with_length(SHORT)))
        await made.recorded(WHOLE)


async def test_a_source_that_only_reports_forwards_a_denied_write_as_it_came(
    tmp_path: Path,
) -> None:
    async with front(tmp_path, mode="report") as made:
        for request in (with_length(SHORT), with_length(LONG), chunked(SHORT), chunked(LONG)):
            assert (await one(made.port, request)).status == 200
        assert [each.body for each in made.upstream.seen] == [SHORT, LONG, SHORT, LONG]
        recorded = await made.sidecar.decisions()
        assert {each[:2] for each in recorded} == {("DENY", "write_denied")}
        assert [each[2] for each in recorded] == [NAMED, WHOLE, NAMED, WHOLE]
        # What was read of it is gone, so it can't be forwarded, and isn't recorded as if it were.
        late = await one(made.port, with_length(SHORT)[:-1])
        assert late.status == 400
        assert (await made.sidecar.decisions())[-1] == ("DENY", "unreadable_request", WHOLE)
        assert len(made.upstream.seen) == 4
