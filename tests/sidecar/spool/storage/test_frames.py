"""The bytes of a segment, without files: what is a good frame, and what a bad one means."""

from __future__ import annotations

from struct import pack

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.spool.storage.frames import (
    FRAME,
    MAX_PAYLOAD,
    Header,
    frame_at,
    frame_bytes,
    header_bytes,
    payloads,
    read_header,
    scan,
)

HEADER = Header("sidecar-1", "0" * 32, 7, "")


def frame(n: int, payload: bytes) -> bytes:
    body = n.to_bytes(8, "big") + payload
    return pack(">II", len(payload), google_crc32c.value(body)) + body


def segment(count: int, first: int = 7) -> tuple[bytes, list[int]]:
    """Frames in 4 KiB of zeros, and where each begins; the last number is where they end."""
    data, starts = b"", []
    for n in range(first, first + count):
        starts.append(len(data))
        data += frame(n, b'{"core":{"n":%d},"open":{}}' % n)
    return data.ljust(4096, b"\0"), [*starts, len(data)]


def test_a_frame_consists_of_length_checksum_number_and_payload() -> None:
    # The sum of `n` and payload, by an implementation of its own: RFC 3720, appendix B.4.
    assert frame(1, b'{"a":1}').hex() == "000000076efb16300000000000000001" + b'{"a":1}'.hex()
    found = frame_at(frame(1, b'{"a":1}'), 0)
    assert found == (1, FRAME, FRAME + 7, False)


def test_a_header_reads_back_and_no_flipped_bit_passes() -> None:
    data = header_bytes(HEADER)
    assert read_header(data + b"\0" * 100) == (HEADER, len(data))
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            assert read_header(bytes(flipped) + b"\0" * 100) is None
    for torn in range(len(data)):
        assert read_header(data[:torn]) is None
        assert read_header(data[:torn].ljust(4096, b"\0")) is None


def test_whole_frames_with_zeros_behind_are_clean() -> None:
    data, starts = segment(5)
    found = scan(data, 0, 7)
    assert (found.end, found.next, found.beyond, found.clean) == (starts[5], 12, None, True)
    assert found.last == b'{"core":{"n":11},"open":{}}'
    assert scan(b"\0" * 64, 0, 7) == (0, 7, None, None, True)


def test_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_frame() -> None:
    data, starts = segment(4)
    for torn in range(starts[3] + 1, starts[4]):
        cut = data[:torn].ljust(4096, b"\0")
        found = scan(cut, 0, 7)
        assert (found.end, found.next, found.beyond) == (starts[3], 10, None)
        assert found.clean == (not any(cut[starts[3] :]))


def test_a_bit_flipped_in_the_middle_leaves_the_good_frames_behind_it_visible() -> None:
    data, starts = segment(4)
    for at in range(starts[1], starts[2]):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            found = scan(bytes(flipped), 0, 7)
            assert (found.end, found.next, found.beyond) == (starts[1], 8, 11)


def test_a_bit_flipped_in_the_last_frame_looks_torn() -> None:
    data, starts = segment(3)
    flipped = bytearray(data)
    flipped[starts[2] + FRAME + 3] ^= 1
    assert scan(bytes(flipped), 0, 7)[:2] == (starts[2], 9)
    assert scan(bytes(flipped), 0, 7).beyond is None


def test_a_good_frame_with_another_number_ends_the_scan() -> None:
    data = frame(7, b'{"a":1}') + frame(9, b'{"a":1}') + b"\0" * 64
    found = scan(data, 0, 7)
    assert (found.next, found.beyond, found.clean) == (8, 10, False)


def test_a_payload_larger_than_allowed_is_no_frame() -> None:
    assert frame_at(frame(1, b"x" * MAX_PAYLOAD), 0) is not None
    assert frame_at(frame(1, b"x" * (MAX_PAYLOAD + 1)), 0) is None
    assert frame_at(frame(1, b""), 0) is None


def test_payloads_are_read_up_to_the_limit_or_the_first_broken_frame() -> None:
    data, starts = segment(4)
    assert len(payloads(data, 0, 7, 10)) == 4
    assert len(payloads(data, 0, 7, 3)) == 3
    assert len(payloads(data, starts[1], 8, 10)) == 3
    assert len(payloads(data[: starts[3] + 5], 0, 7, 10)) == 3
    assert payloads(data, 0, 8, 10) == []
    assert payloads(data, starts[1] + 1, 8, 10) == []


@given(st.binary(max_size=300), st.integers(0, 300))
def test_no_bytes_make_the_readers_fail(data: bytes, offset: int) -> None:
    frame_at(data, offset)
    scan(data, min(offset, len(data)), 0)
    payloads(data, offset, 0, 10)
    assert read_header(data) is None


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6), st.data())
def test_exactly_the_whole_frames_before_any_cut_are_kept(
    bodies: list[bytes], draw: st.DataObject
) -> None:
    written = [frame(n, b'{"' + body) for n, body in enumerate(bodies)]
    data = b"".join(written)
    cut = draw.draw(st.integers(0, len(data)))
    complete = sum(1 for n in range(len(written)) if len(b"".join(written[: n + 1])) <= cut)
    assert scan(data[:cut], 0, 0).next == complete


@pytest.mark.parametrize("source", ["ü" * 256, "a" * 256, 'q"\\'])
def test_any_source_id_fits_a_header(source: str) -> None:
    header = Header(source, "f" * 32, 2**53 - 1, "A" * 43 + "=")
    data = header_bytes(header)
    assert len(data) < 4096
    assert read_header(data) == (header, len(data))


def grouped(sizes: list[int]) -> tuple[bytes, list[int]]:
    """Groups of so many frames each, from number 0 on, and the offset behind each group."""
    data, ends, n = b"", [], 0
    for size in sizes:
        for at in range(size):
            payload = b'{"core":{"n":%d}}' % n
            data += b"".join(frame_bytes(n, payload, more=at < size - 1))
            n += 1
        ends.append(len(data))
    return data, ends


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_a_group_cut_anywhere_is_kept_whole_or_not_at_all(
    sizes: list[int], draw: st.DataObject
) -> None:
    data, ends = grouped(sizes)
    cut = draw.draw(st.integers(0, len(data)))
    found = scan(data[:cut].ljust(len(data) + 64, b"\0"), 0, 0)
    complete = [end for end in ends if end <= cut]
    assert found.next == sum(sizes[: len(complete)])
    assert found.end == (complete[-1] if complete else 0)
    # Whatever is left of the torn group is to be zeroed before anything is appended.
    assert found.clean == (found.end == len(data) or not any(data[found.end : cut]))
    assert found.beyond is None


def test_the_records_of_a_group_are_read_back_one_by_one() -> None:
    data, _ = grouped([3, 1])
    assert len(payloads(data, 0, 0, 10)) == 4
    assert payloads(data, 0, 0, 2) == [b'{"core":{"n":0}}', b'{"core":{"n":1}}']
    assert frame_at(data, 0) == (0, FRAME, FRAME + 16, True)


def test_a_damaged_frame_within_a_group_affects_none_before_it() -> None:
    # Good frames behind the bad one: the group was whole once, and may have been answered.
    data, _ = grouped([1, 3, 1])
    size = len(data) // 5
    flipped = bytearray(data)
    flipped[2 * size + FRAME + 3] ^= 1
    found = scan(bytes(flipped), 0, 0)
    assert (found.end, found.next, found.beyond) == (2 * size, 2, 5)


def test_the_mark_of_a_group_is_covered_by_the_checksum() -> None:
    data = bytearray(b"".join(frame_bytes(0, b'{"a":1}', more=False)))
    data[8] ^= 0x80
    assert frame_at(bytes(data), 0) is None
