"""Where one message ends and the next begins, whatever the sender says."""

from __future__ import annotations

import re
import struct

import pytest

from sidecar.postgres import backend, frontend
from sidecar.postgres.frames import (
    AGENT_BYTES,
    RUN_BYTES,
    SHORT_BYTES,
    Frame,
    FrameReader,
    Limits,
    ProtocolFault,
    from_agent,
    from_server,
)
from tests.support.properties import chance

ROW = backend.data_row([b"1", None, b"three"])
SENT = [
    frontend.prepare(b"s", b"SELECT $1", [23]),
    frontend.bind(b"p", b"s", [b"1"], [1], [0]),
    frontend.describe(b"P", b"p"),
    frontend.execute(b"p", 5),
    frontend.SYNC,
    frontend.query(b"SELECT '" + b"x" * 20_000 + b"'"),
    frontend.FLUSH,
    frontend.TERMINATE,
]


def frames(data: bytes, limits: Limits, *cuts: int) -> list[Frame]:
    """Return the frames of `data`, which arrives in pieces."""
    reader = FrameReader(limits)
    found = []
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        reader.feed(data[start:end])
        while (frame := reader.take()) is not None:
            found.append(frame)
        assert reader.starved
    return found


def test_messages_are_the_same_wherever_the_stream_is_cut() -> None:
    data = b"".join(SENT)
    random = chance("frames")
    for _ in range(20):
        cuts = sorted(random.randrange(len(data)) for _ in range(random.randrange(20)))
        found = frames(data, from_agent(), *cuts)
        assert [frame.raw for frame in found] == SENT
        assert [frame.kind for frame in found] == [each[:1] for each in SENT]
        assert [frame.payload for frame in found] == [each[5:] for each in SENT]


def head(kind: bytes, length: int) -> bytes:
    return kind + struct.pack("!I", length)


FAULTS = [
    (head(b"Q", 0), "length of a message is 0"),
    (head(b"Q", 3), "length of a message is 3"),
    # Negative for those who read a signed number.
    (head(b"Q", 0xFFFFFFFF), "4,294,967,295 bytes, over the limit"),
    (head(b"Q", 0x80000000), "over the limit"),
    (head(b"Q", AGENT_BYTES + 1), "over the limit of 16,777,216"),
    (head(b"B", AGENT_BYTES + 1), "over the limit"),
    (head(b"S", SHORT_BYTES + 1), "over the limit of 10,000"),
    (head(b"p", 5), "kind 0x70 can't stand here"),
    (b"Z", "kind 0x5a can't stand here"),
    (b"\0", "kind 0x00"),
    (b"\x16", "kind 0x16"),
]


@pytest.mark.parametrize(("data", "reason"), FAULTS, ids=map(str, range(len(FAULTS))))
def test_a_message_is_refused_by_its_head(data: bytes, reason: str) -> None:
    for before in (b"", frontend.SYNC):
        reader = FrameReader(from_agent())
        reader.feed(before + data)
        if before:
            assert reader.take() == Frame(b"S", frontend.SYNC)
        for _ in range(2):
            with pytest.raises(ProtocolFault, match=re.escape(reason)):
                reader.take()


@pytest.mark.parametrize("length", [0, 3, 7, 10_001, 0xFFFFFFFF, int.from_bytes(b"GET ", "big")])
def test_a_startup_message_is_refused_by_its_length(length: int) -> None:
    reader = FrameReader(from_agent())
    reader.feed(struct.pack("!I", length))
    with pytest.raises(ProtocolFault, match=f"a length of {length:,}"):
        reader.take_startup(10_000)


def test_rows_that_arrive_together_are_one_run() -> None:
    ready = backend.ready(b"I")
    data = ROW * 3 + ready + ROW
    found = frames(data, from_server(1000))
    assert found == [Frame(b"D", ROW * 3, 3), Frame(b"Z", ready), Frame(b"D", ROW)]
    assert list(backend.rows(found[0])) == [(b"1", None, b"three")] * 3
    # A row that is not whole waits for its rest, and a run doesn't wait for more rows.
    assert frames(ROW * 2 + ROW, from_server(1000), len(ROW) * 2 + 3) == [
        Frame(b"D", ROW * 2, 2),
        Frame(b"D", ROW),
    ]
    many = RUN_BYTES // len(ROW) + 1
    assert [each.messages for each in frames(ROW * (many + 5), from_server(1000))] == [many, 5]


def test_an_agents_messages_are_frames_of_their_own() -> None:
    # A Describe has the kind of a DataRow.
    describe = frontend.describe(b"S", b"s")
    assert frames(describe * 3, from_agent()) == [Frame(b"D", describe)] * 3


def test_a_row_in_a_run_is_refused_when_its_turn_comes() -> None:
    reader = FrameReader(from_server(1000))
    reader.feed(ROW + head(b"D", 1001) + b"x" * 1001)
    assert reader.take() == Frame(b"D", ROW)
    with pytest.raises(ProtocolFault, match="1,001 bytes, over the limit of 1,000"):
        reader.take()
    # Only DataRow may be as long as the source's limits say; a status never is.
    with pytest.raises(ProtocolFault, match="over the limit of 30,000"):
        frames(head(b"Z", 30_001), from_server(1 << 30))


def test_random_bytes_are_frames_or_a_fault() -> None:
    random = chance("random frames")
    data = bytearray(b"".join(SENT))
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(random.randrange(1, 4)):
            changed[random.randrange(400)] = random.randrange(256)
        reader = FrameReader(from_agent(30_000))
        reader.feed(bytes(changed))
        try:
            while (frame := reader.take()) is not None:
                assert len(frame.raw) == 1 + int.from_bytes(frame.raw[1:5], "big")
        except ProtocolFault:
            pass
