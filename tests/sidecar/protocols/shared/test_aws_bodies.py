"""Signing of bodies: complete ones are signed, those still arriving are streamed."""

import asyncio
import hashlib

import pytest

from tests.sidecar.protocols.aws import (
    STREAMING,
    fault,
)
from tests.sidecar.protocols.shared.signing_front import SECRETS, SigningFront
from tests.support.scripted_source import Seen
from tests.support.waiting import until_async


async def test_a_body_that_is_at_hand_is_signed(front: SigningFront) -> None:
    await front.ask("PUT", "/lake/a", body=b"whole")
    [seen] = front.upstream.seen
    assert seen.values("x-amz-content-sha256") == [hashlib.sha256(b"whole").hexdigest()]


async def test_a_body_that_is_still_arriving_is_streamed_without_a_signature(
    front: SigningFront,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(b"PUT /lake/a HTTP/1.1\r\nHost: kb\r\nContent-Length: 300000\r\n\r\n")
    writer.write(b"x" * 100_000)
    await until_async(
        "the source has the body so far",
        lambda: bool(front.upstream.begun and front.upstream.begun[0].body),
    )
    assert not front.upstream.seen
    writer.write(b"x" * 200_000)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()
    [seen] = front.upstream.seen
    assert len(seen.body) == 300_000
    assert seen.values("x-amz-content-sha256") == ["UNSIGNED-PAYLOAD"]
    assert fault(seen, "s3", SECRETS) is None


async def test_a_large_answer_streams(front: SigningFront) -> None:
    going = asyncio.Event()

    async def slow(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 200000\r\n\r\n")
        writer.write(b"x" * 100_000)
        await going.wait()
        writer.write(b"x" * 100_000)

    front.upstream.script = slow
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=1 << 20)
    writer.write(b"GET /lake/a HTTP/1.1\r\nHost: kb\r\nRange: bytes=0-199999\r\n\r\n")
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 206")
        assert await reader.readexactly(100_000) == b"x" * 100_000
        going.set()
        assert await reader.readexactly(100_000) == b"x" * 100_000
    writer.close()
    assert front.upstream.seen[0].values("range") == ["bytes=0-199999"]


CHUNKS = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"


async def test_a_framed_body_without_signatures_passes_unchanged(front: SigningFront) -> None:
    fields = (
        f"x-amz-content-sha256: {STREAMING}", "Content-Encoding: aws-chunked",
        "x-amz-trailer: x-amz-checksum-crc32", "x-amz-decoded-content-length: 5",
    )  # fmt: skip
    assert (await front.ask("PUT", "/lake/a", *fields, body=CHUNKS)).status == 200
    [seen] = front.upstream.seen
    assert seen.body == CHUNKS
    assert seen.values("x-amz-content-sha256") == [STREAMING]
    assert fault(seen, "s3", SECRETS) is None


@pytest.mark.parametrize(
    "fields",
    [
        ("x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD",),
        ("x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",),
        ("x-amz-content-sha256: STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",),
        ("Content-Encoding: aws-chunked",),
        ("Content-Encoding: gzip, AWS-Chunked", "x-amz-content-sha256: UNSIGNED-PAYLOAD"),
    ],
)
async def test_a_body_that_holds_the_agents_signatures_is_refused(
    front: SigningFront, fields: tuple[str, ...]
) -> None:
    answered = await front.ask("PUT", "/lake/a", *fields, body=CHUNKS)
    assert answered.status == 400
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert front.upstream.begun == []
