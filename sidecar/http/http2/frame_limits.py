"""Counts the frames that a peer sends, before the library reads them, and ends connections whose
peer sends more of a cheap kind than any use explains: each costs the peer next to nothing, and us
work, memory or an answer.

    SETTINGS, PING                  each is answered (CVE-2019-9512, CVE-2019-9515)
    RST_STREAM, and resets that     a request is begun and dropped (Rapid Reset, CVE-2023-44487;
    the peer provokes               MadeYouReset, CVE-2025-8671)
    HEADERS that begin no request   as resets: refused, malformed, or on a closed stream
    DATA without bytes, PRIORITY,   work without progress (CVE-2019-9518, CVE-2019-9513,
    WINDOW_UPDATE, unknown kinds    CVE-2019-9511)
    CONTINUATION                    a head that never ends (CVE-2024-27316)

Pure: knows the heads of frames (RFC 9113 section 4.1), and a clock.
"""

from collections.abc import Callable

from sidecar.http.http2.session import CONTINUATIONS, MAX_FRAME, PREFACE

_HEAD = 9
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = (
    0, 1, 3, 4, 6, 8, 9,
)  # fmt: skip
_END_STREAM = _ACK = 1
_END_HEADERS = 4
_PADDED = 8
_MAX_PADDED = 257
"""The most bytes of a padded frame that may be padding alone."""

EMPTY_DATA = 100
"""The most DATA frames in a row that carry no byte."""
SETTINGS = (32, 10.0)
"""The most frames, and the seconds in which they may come."""
PINGS = (100, 10.0)
RESETS = (1_000, 30.0)
OTHERS = (1_000, 10.0)
"""PRIORITY, PRIORITY_UPDATE, GOAWAY, answers to PING and frames of unknown kinds, together."""
WINDOW_UPDATES = (1_000, 10.0)
UPDATES_PER_DATA = 10
"""The further WINDOW_UPDATE frames that each DATA frame to the peer allows it."""


class Flood(Exception):
    """the peer sends too many frames of one kind"""


class _Rate:
    """At most `limit` events in each period of so many seconds."""

    __slots__ = ("_begin", "_count", "_most", "_name", "_seconds", "allowance")

    def __init__(self, name: str, limit: tuple[int, float]) -> None:
        self._name = name
        self._most, self._seconds = limit
        self._begin, self._count = 0.0, 0
        self.allowance = 0
        """Events beyond the limit that something else allows; used up one by one."""

    def add(self, now: float) -> None:
        """Count an event. Raises `Flood`."""
        if now - self._begin > self._seconds:
            self._begin, self._count = now, 0
        self._count += 1
        if self._count > self._most:
            if not self.allowance:
                raise Flood(f"more than {self._most} {self._name} in {self._seconds:g} s")
            self.allowance -= 1


class FrameLimits:
    """The frames of one connection so far. `time` is a clock in seconds; `preface` says that the
    peer is a client, whose first bytes are the preface."""

    __slots__ = (
        "_continuations", "_counted", "_empty", "_ends_head", "_heads", "_held", "_others",
        "_pings", "_resets", "_settings", "_size", "_time", "_updates", "head_since",
    )  # fmt: skip

    def __init__(self, time: Callable[[], float], *, preface: bool = True) -> None:
        self._time = time
        self._held = bytearray()
        """The beginning of the frame that is arriving."""
        self._size = len(PREFACE) if preface else _HEAD
        """The bytes of that frame, or of its head alone before it is counted. The preface passes
        like a frame."""
        self._counted = preface
        self._empty = self._continuations = self._heads = 0
        self._settings = _Rate("SETTINGS frames", SETTINGS)
        self._pings = _Rate("PING frames", PINGS)
        self._resets = _Rate("streams reset", RESETS)
        self._updates = _Rate("WINDOW_UPDATE frames", WINDOW_UPDATES)
        self._others = _Rate("frames of other kinds", OTHERS)
        self._ends_head = False
        """True if the frame under way ends a head."""
        self.head_since: float | None = None
        """The time since which a request's head is arriving; None outside of a head."""

    def feed(self, data: bytes) -> bytes:
        """Count the frames that begin in `data`, and return those that are whole now. Raises
        `Flood`."""
        held = self._held
        if len(held) + len(data) < self._size:
            held += data
            return b""
        if held:
            data = bytes(held) + data
            held.clear()
        at, end = 0, len(data)
        while at + self._size <= end:
            if not self._counted:
                self._size += self._count(data[at : at + _HEAD])
                self._counted = True
                continue
            at += self._size
            self._size, self._counted = _HEAD, False
            self._end_head()
        if at == end:
            return data
        held += data[at:]
        return data[:at]

    def answered(self, count: int) -> None:
        """Count as resets the heads that have ended since the last call, but for `count` that were
        those of requests, or trailers. Raises `Flood`."""
        heads, self._heads = self._heads, 0
        for _ in range(heads - count):
            self.provoked()

    def provoked(self) -> None:
        """Count a reset that a mistake of the peer's made us send. Raises `Flood`."""
        self._resets.add(self._time())

    def sent(self, count: int) -> None:
        """Allow the updates of windows that so many bytes to the peer explain."""
        self._updates.allowance = min(
            100_000, self._updates.allowance + UPDATES_PER_DATA * (1 + count // 16_384)
        )

    def allow_answers(self) -> None:
        """Allow one reset, and one PING, for a request or a part of its body that was sent: a
        server may refuse it, and measures the round trip when a body arrives."""
        for rate in (self._resets, self._pings):
            rate.allowance = min(100_000, rate.allowance + 1)

    def _count(self, head: bytes) -> int:
        """Count one frame, and return the length of its payload."""
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if kind == _DATA:
            carries = length > (_MAX_PADDED if flags & _PADDED else 0)
            self._empty = 0 if carries or flags & _END_STREAM else self._empty + 1
            if self._empty > EMPTY_DATA:
                raise Flood(f"more than {EMPTY_DATA} DATA frames in a row without a byte")
        elif kind in (_HEADERS, _CONTINUATION):
            self._count_head(kind, flags)
        elif kind == _WINDOW_UPDATE:
            self._updates.add(self._time())
        elif kind == _RST_STREAM:
            self._resets.add(self._time())
        elif kind == _SETTINGS:
            self._settings.add(self._time())
        elif kind == _PING and not flags & _ACK:
            self._pings.add(self._time())
        else:
            self._others.add(self._time())
        # The library refuses a longer frame at its head.
        return length if length <= MAX_FRAME else 0

    def _count_head(self, kind: int, flags: int) -> None:
        if kind == _HEADERS:
            self._continuations, self.head_since = 0, self._time()
        else:
            self._continuations += 1
            if self._continuations > CONTINUATIONS:
                raise Flood(f"a head continues in more than {CONTINUATIONS} frames")
        self._ends_head = bool(flags & _END_HEADERS)

    def _end_head(self) -> None:
        if self._ends_head:
            self.head_since, self._ends_head = None, False
            self._heads += 1
