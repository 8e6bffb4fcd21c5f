"""The parser of `text/event-stream`: the same result however the stream is cut, in linear time."""

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.protocol import ForwardedPart
from sidecar.proxy.messages import sse as events
from sidecar.proxy.messages.sse import EventParser

_LIMIT = 1000

# What line ends, names of fields and a BOM can be made of, and little else.
_PIECES = st.lists(
    st.sampled_from(
        (b"\r", b"\n", b"\r\n", b"\n\n", b"data", b"data:", b"data: ", b"id: 7", b"retry:1",
         b":", b" ", b"x", b"drop", b"change", b"\xef", b"\xef\xbb\xbf", b"dat", b"event: e")
    ),
    max_size=40,
)  # fmt: skip


def _judged(data: bytes) -> ForwardedPart | None:
    """A stand-in for a protocol: it leaves out some events and changes others."""
    if b"drop" in data:
        return None
    if b"change" in data:
        return ForwardedPart(data.replace(b"change", b"changed\nhere"), 2)
    return ForwardedPart(data)


def _lines(stream: bytes) -> list[bytes]:
    """The complete lines of a stream, read one byte at a time."""
    found, line, after_cr = [], b"", False
    for byte in (stream[at : at + 1] for at in range(len(stream))):
        if byte == b"\n" and after_cr:
            after_cr = False
            continue
        after_cr = byte == b"\r"
        if byte in (b"\r", b"\n"):
            found.append(line)
            line = b""
        else:
            line += byte
    return found


def _expected(stream: bytes) -> tuple[bytes, int]:
    """What the standard's own wording comes to (WHATWG HTML, 9.2.6), with what is passed on."""
    passed, withheld, event = b"", 0, list[bytes]()
    for number, line in enumerate(_lines(stream)):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
        if text:
            event.append(text)
            continue
        fields = [(each, *each.partition(b":")[::2]) for each in event]
        values = [value.removeprefix(b" ") for _, name, value in fields if name == b"data"]
        data = b"\n".join(values)
        judged = _judged(data) if values else ForwardedPart(b"")
        kept = event
        if judged is None:
            withheld += 1
            kept = [each for each, name, _ in fields if name in (b"id", b"retry")]
        else:
            withheld += judged.withheld
            if values and judged.body != data:
                kept = [each for each, name, _ in fields if name != b"data"]
                kept += [b"data: " + each for each in judged.body.split(b"\n")]
        if kept or judged is not None:
            passed += b"".join(each + b"\n" for each in kept) + b"\n"
        event = []
    return passed, withheld


def _fed(pieces: Iterable[bytes], limit: int = _LIMIT) -> tuple[bytes, int]:
    stream = EventParser(_judged, limit)
    return b"".join(map(stream.feed, pieces)), stream.withheld


@example([b"data: a", b"\r", b"\n", b"\r", b"\n", b"data: b\r\r"])
@example([b"\xef", b"\xbb", b"\xbf", b"data: a\n\n"])
@example([b"\xef\xbb\xbf\n\ndata: a\n\n"])
@given(_PIECES)
def test_a_stream_is_the_same_however_it_is_split(pieces: list[bytes]) -> None:
    stream = b"".join(pieces)
    expected = _expected(stream)
    assert _fed(pieces) == expected
    assert _fed([stream]) == expected
    assert _fed(stream[at : at + 1] for at in range(len(stream))) == expected


def test_an_event_that_ends_in_a_carriage_return_is_not_held_back() -> None:
    stream = EventParser(_judged, _LIMIT)
    assert stream.feed(b"data: a\r\r") == b"data: a\n\n"
    assert stream.feed(b"\ndata: b\n\n") == b"data: b\n\n"


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_an_event_over_the_limit_ends_the_stream_however_it_is_split(size: int) -> None:
    def fed(length: int) -> tuple[bytes, int]:
        stream = b"data: %b\n\n" % (b"x" * (length - len(b"data: \n")))
        return _fed(stream[at : at + size] for at in range(0, len(stream), size))

    assert len(fed(_LIMIT)[0]) == _LIMIT + 1
    with pytest.raises(UpstreamFailed, match="larger than 1000 bytes"):
        fed(_LIMIT + 1)


class _Counted(bytearray):
    """A buffer that counts the bytes that are copied into it, searched in it, and moved in it."""

    work = 0

    def __iadd__(self, more: bytes) -> "_Counted":  # type: ignore[override,misc]
        _Counted.work += len(more)
        return super().__iadd__(more)

    def find(self, what: bytes, start: int = 0) -> int:  # type: ignore[override]
        at = super().find(what, start)
        _Counted.work += (len(self) if at < 0 else at) - start
        return at

    def __delitem__(self, which: slice) -> None:  # type: ignore[override]
        if which.stop:
            _Counted.work += len(self) - which.stop
        super().__delitem__(which)


def _check_one_event(count: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "bytearray", _Counted, raising=False)
    body = b"data: " + b"x" * count
    work = []
    for times in (1, 2):
        _Counted.work = 0
        pieces = [body[at : at + size] for at in range(0, len(body), size)] * times
        stream = EventParser(ForwardedPart, 4 * count)
        assert len(b"".join(map(stream.feed, [*pieces, b"\n\n"]))) == len(body) * times + 2
        work.append(_Counted.work)
    # Copied once, searched once with at most one byte twice a piece, and copied out once.
    assert count < work[0] < 5 * count
    assert work[1] < 2.1 * work[0]


def test_the_work_for_an_event_in_single_bytes_is_linear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _check_one_event(2000, 1, monkeypatch)


@pytest.mark.deep(stands_in="test_the_work_for_an_event_in_single_bytes_is_linear")
@pytest.mark.parametrize("size", [1, 1460])
def test_the_work_is_linear_in_the_length_of_one_event(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check_one_event(100_000, size, monkeypatch)


def test_the_work_is_linear_in_the_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "bytearray", _Counted, raising=False)
    _Counted.work = 0
    stream = EventParser(ForwardedPart, 1000)
    whole = b"data: x\n\n" * 20_000
    assert stream.feed(whole) == whole
    assert len(whole) < _Counted.work < 5 * len(whole)
