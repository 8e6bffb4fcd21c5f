"""The frames of gRPC's messages: torn, too many, and compressed."""

from __future__ import annotations

import gzip
import re
import tracemalloc
import zlib
from collections.abc import Callable
from functools import partial

import pytest
import zstandard

from policies.ground.errors import Malformed
from sidecar.http.grpc.framing import frame, split, unframe

LIMIT = 4096
TEXT = b"text" * 100
CODED: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": partial(gzip.compress, mtime=0),
    b"deflate": zlib.compress,
    b"zstd": zstandard.ZstdCompressor().compress,
}


def framed(message: bytes, flag: int = 1) -> bytes:
    return bytes((flag,)) + frame(message)[1:]


@pytest.mark.parametrize("message", [b"", b"a", TEXT])
def test_a_message_is_the_same_in_its_frame(message: bytes) -> None:
    assert unframe(frame(message), b"", LIMIT) == message
    # The flag says whether this message is compressed, not the coding of the call.
    assert unframe(frame(message), b"gzip", LIMIT) == message
    assert split(frame(message) + b"rest", b"", LIMIT) == (message, b"rest")


@pytest.mark.parametrize("coding", CODED)
@pytest.mark.parametrize("size", [0, 1, LIMIT - 1, LIMIT])
def test_a_compressed_message_is_inflated(coding: bytes, size: int) -> None:
    assert unframe(framed(CODED[coding](b"x" * size)), coding, LIMIT) == b"x" * size


SMALL = {coding: compress(TEXT) for coding, compress in CODED.items()}


REFUSED = [
    (b"", b"", "no message"),
    (b"\0\0\0\0", b"", "no message"),
    (frame(b"ab")[:-1], b"", "torn"),
    (b"\0\xff\xff\xff\xff" + b"a", b"", "torn"),
    (frame(b"a") + frame(b"b"), b"", "more than one message"),
    (frame(b"a") + b"\0", b"", "bytes after its message"),
    (framed(b"a", 2), b"", "the flag 2"),
    (framed(b"a", 0x80), b"", "the flag 128"),
    (framed(b"a", 0x81), b"gzip", "the flag 129"),
    (framed(b"a"), b"", "can't be inspected"),
    (framed(b"a"), b"identity", "can't be inspected"),
    (framed(SMALL[b"gzip"]), b"snappy", "can't be inspected"),
    (framed(SMALL[b"gzip"]), b"GZIP", "can't be inspected"),
    (framed(SMALL[b"gzip"]), b"deflate", "can't be inflated"),
    (framed(SMALL[b"deflate"]), b"zstd", "can't be inflated"),
    (framed(zlib.compress(TEXT)[2:-4]), b"deflate", "can't be inflated"),
    (framed(SMALL[b"gzip"][:-4] + b"0000"), b"gzip", "can't be inflated"),
    *[
        (framed(data), coding, reason)
        for coding, small in SMALL.items()
        for data, reason in (
            (b"", "ends early"), (small[:-1], "ends early"), (small + small, "bytes follow"),
            (small + b"x", "bytes follow"), (CODED[coding](b"x" * (LIMIT + 1)), "larger"),
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("body", "coding", "reason"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_a_body_that_is_not_one_message_is_refused(body: bytes, coding: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=re.escape(reason)):
        unframe(body, coding, LIMIT)


@pytest.mark.deep(stands_in="test_a_body_that_is_not_one_message_is_refused")
@pytest.mark.parametrize("coding", CODED)
def test_a_bomb_takes_no_more_memory_than_the_limit(coding: bytes) -> None:
    bomb = framed(CODED[coding](bytes(16 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="larger"):
            unframe(bomb, coding, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < (6 << 20) + 2 * len(bomb)
    finally:
        tracemalloc.stop()


def test_a_window_larger_than_anything_inspected_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    coder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(Malformed, match="can't be inflated"):
        unframe(framed(coder.compress(TEXT) + coder.flush()), b"zstd", LIMIT)
