"""The limits on the frames that a peer may send, and the translation of heads, without a
connection."""

from collections.abc import Callable

import httptools
import pytest

from sidecar.http.http2.frame_limits import SAVED_PINGS, TURN, Flood, FrameLimits
from sidecar.http.http2.heads import METHODS, BadHead, TranslatedHead
from sidecar.http.http2.session import PREFACE
from sidecar.http.messages.request_parser import HeadLimits
from tests.sidecar.http.http2 import frames

LIMITS = HeadLimits(line=100, field=50, fields=4)
FLOODS: dict[str, tuple[bytes, int]] = {
    "SETTINGS": (frames.settings(), 32),
    "answers to SETTINGS": (frames.settings(flags=frames.ACK), 32),
    "PING": (frames.ping(), 100),
    "answers to PING": (frames.ping(frames.ACK), 1_000),
    "RST_STREAM": (frames.reset(1), 1_000),
    "DATA without a byte": (frames.data(1), 100),
    "DATA of padding alone": (frames.data(1, pad=255), 100),
    "WINDOW_UPDATE": (frames.update(0, 1), 1_000),
    "PRIORITY": (frames.frame(frames.PRIORITY, 1, bytes(5)), 1_000),
    "PRIORITY_UPDATE": (frames.frame(frames.PRIORITY_UPDATE, 0, bytes(4)), 1_000),
    "GOAWAY": (frames.goaway(), 1_000),
    "unknown": (frames.frame(frames.UNKNOWN, 0, b"x"), 1_000),
    "CONTINUATION": (frames.frame(frames.CONTINUATION, 1), 8),
}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def begun(clock: Callable[[], float]) -> FrameLimits:
    limits = FrameLimits(clock)
    limits.feed(PREFACE)
    return limits


@pytest.mark.parametrize("kind", FLOODS)
def test_a_frame_above_the_limit_of_its_kind_is_a_flood(kind: str) -> None:
    frame, most = FLOODS[kind]
    limits = begun(Clock())
    limits.feed(frame * most)
    with pytest.raises(Flood):
        limits.feed(frame)


def test_padding_makes_no_frame_of_data_empty() -> None:
    limits = begun(Clock())
    limits.feed(frames.data(1, b"x", pad=200) * 200)
    with pytest.raises(Flood):
        limits.feed(frames.data(1, pad=200) * 101)


@pytest.mark.parametrize("kind", [each for each in FLOODS if each != "CONTINUATION"])
def test_frames_that_come_slowly_are_no_flood(kind: str) -> None:
    frame, most = FLOODS[kind]
    clock = Clock()
    limits = begun(clock)
    for _ in range(3):
        limits.feed(frame * most + frames.data(1, b"x"))
        clock.now += 31


def test_the_more_is_sent_the_more_updates_of_windows_are_allowed() -> None:
    limits = begun(Clock())
    limits.sent(100 * 16_384)
    limits.feed(frames.update(0, 1) * 2_000)
    with pytest.raises(Flood):
        limits.feed(frames.update(0, 1) * 11)


def test_a_client_may_measure_the_round_trip_of_each_response() -> None:
    limits = begun(Clock())
    limits.feed(frames.ping() * 100)
    for _ in range(50):
        limits.feed(frames.headers(1))
        limits.answered(1)
    limits.sent(50 * 16_384)
    limits.feed(frames.ping() * 100)
    limits.sent(17 * 900)  # answers to PINGs explain none
    with pytest.raises(Flood):
        limits.feed(frames.ping())


def test_the_pings_that_much_data_allows_are_not_saved_for_a_flood() -> None:
    limits = begun(Clock())
    limits.sent(5_000 * 16_384)
    limits.feed(frames.ping() * (100 + SAVED_PINGS))
    with pytest.raises(Flood):
        limits.feed(frames.ping())


def test_heads_that_begin_no_request_count_as_resets() -> None:
    limits = begun(Clock())
    for _ in range(1_000):
        limits.feed(frames.headers(1) * 5)
        limits.answered(4)
    limits.feed(frames.headers(1))
    with pytest.raises(Flood):
        limits.answered(0)


@pytest.mark.parametrize("size", [1, 8, 9, 10, 23, 1_000])
def test_frames_are_passed_on_whole(size: int) -> None:
    sent = [
        PREFACE,
        frames.settings({frames.MAX_STREAMS: 1}),
        frames.settings(),
        frames.headers(1, end=False),
        frames.data(1, b"x" * 500),
        frames.data(1),
        frames.ping(),
    ]
    limits, passed = FrameLimits(Clock()), b""
    ends = {sum(map(len, sent[:count])) for count in range(len(sent) + 1)}
    data = b"".join(sent)
    for at in range(0, len(data), size):
        passed += limits.feed(data[at : at + size])
        assert len(passed) in ends
    assert passed == data


def test_a_frame_that_is_too_long_is_passed_on_with_its_head() -> None:
    limits = begun(Clock())
    head = frames.frame(frames.DATA, 1, bytes(16_385))[:9]
    assert limits.feed(head) == head


def test_a_head_is_under_way_until_its_last_byte() -> None:
    clock = Clock()
    limits = begun(clock)
    clock.now = 7.0
    head = frames.headers(1, flags=0)
    limits.feed(head[:9])
    assert limits.head_since == limits.unfinished_since == 7.0
    limits.feed(head[9:])
    end = frames.frame(frames.CONTINUATION, 1, b"\x00\x01a\x01b", frames.END_HEADERS)
    clock.now = 8.0
    limits.feed(end[:-1])
    assert limits.head_since == limits.unfinished_since == 7.0
    limits.feed(end[-1:])
    assert limits.head_since is limits.unfinished_since is None


def test_a_frame_is_under_way_until_its_last_byte() -> None:
    clock = Clock()
    clock.now = 8.0
    limits = begun(clock)
    data = frames.data(1, b"xy")
    for part, since in ((data + data[:1], 9.0), (data[1:-1], 9.0), (data[-1:] + data[:10], 11.0)):
        clock.now += 1.0
        limits.feed(part)
        assert (limits.unfinished_since, limits.head_since) == (since, None)
    limits.feed(data[10:])
    assert limits.unfinished_since is None


def test_a_head_is_passed_on_whole() -> None:
    limits = begun(Clock())
    begin = frames.data(1, b"x") + frames.headers(3, flags=0)
    end = frames.frame(frames.CONTINUATION, 3, b"\x00\x01a\x01b", frames.END_HEADERS)
    assert limits.feed(begin) == begin[:10]
    assert limits.held == len(begin) - 10
    assert limits.feed(end[:-1]) == b""
    assert limits.feed(end[-1:] + begin) == begin[10:] + end + begin[:10]
    # What may not stand within a head is the library's to refuse.
    assert limits.feed(frames.ping()[:9]) == begin[10:]
    assert limits.head_since is None


def test_a_head_longer_than_its_limit_is_a_flood() -> None:
    limits = begun(Clock())
    long = frames.frame(frames.CONTINUATION, 1, bytes(16_000))
    limits.feed(frames.headers(1, flags=0) + long * 4)
    with pytest.raises(Flood, match="65536 bytes"):
        limits.feed(long)


def test_a_turn_takes_so_many_frames_and_fewer_messages() -> None:
    limits = begun(Clock())
    update, get, end = frames.update(0, 1), frames.headers(1), frames.data(1, b"x", end=True)
    sent = update * 600 + (get + end) * 10 + update
    assert limits.feed(sent, TURN) == update * TURN
    assert limits.more
    assert (limits.feed(b"", 0), limits.held) == (b"", len(sent) - len(update) * TURN)
    # 88, and 7 that begin or end a message.
    assert limits.feed(b"", TURN) == update * 88 + (get + end) * 3 + get
    assert limits.feed(b"", TURN) == end + (get + end) * 3 + get
    assert limits.feed(b"", TURN) == end + (get + end) * 2 + update
    assert limits.held == 0


def test_the_methods_of_http_2_are_those_that_the_parser_of_http_1_knows() -> None:
    def known(method: bytes) -> bool:
        try:
            httptools.HttpRequestParser(object()).feed_data(b"%b / HTTP/1.1\r\n\r\n" % method)
        except httptools.HttpParserError:
            return False
        return True

    assert all(map(known, METHODS))
    others = {b"get", b"Get", b"GETS", b"FOO", b"DESCRIBE", b"FLUSH"}
    assert not others & METHODS
    assert not any(map(known, others))


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({b":method": b"get"}, ()),
        ({b":method": b"CONNECT"}, ()),
        ({b":scheme": b"https"}, ()),
        ({b":path": b"*"}, ()),
        ({b":path": b"http://kb.test/a"}, ()),
        ({b":path": b"/\xff"}, ()),
        ({b":path": b"/" + b"a" * 100}, ()),
        ({}, [(b"host", b"other.test")]),
        ({}, [(b"x", b"a" * 50)]),
        ({}, [(b"x", b"1")] * 5),
    ],
)
def test_a_head_that_http_1_would_not_have_is_refused(
    changed: dict[bytes, bytes], more: list[tuple[bytes, bytes]]
) -> None:
    TranslatedHead(frames.GET, (b"http",), LIMITS)
    with pytest.raises(BadHead):
        TranslatedHead([*{**dict(frames.GET), **changed}.items(), *more], (b"http",), LIMITS)
