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

A head is passed on once it is whole: of one that never ends, nothing is held but the bytes that
arrived, however long the fields are that they stand for.

Pure: knows the heads of frames (RFC 9113 section 4.1), and a clock.
"""

from collections.abc import Callable
from enum import Enum

from sidecar.http.http2.session import CONTINUATIONS, HEAD_BYTES, MAX_FRAME, PREFACE

_HEAD = 9
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = (
    0, 1, 3, 4, 6, 8, 9,
)  # fmt: skip
_END_STREAM = _ACK = 1
_END_HEADERS = 4
_PADDED = 8
_MOST_PADDING = 255
_LONGEST_HEAD = HEAD_BYTES + 1024
"""The most bytes of a head's frames: padding and the frames' own heads come to the fields, whose
list counts more than they take (RFC 9113 section 6.5.2)."""

EMPTY_DATA = 100
"""The most DATA frames in a row that carry no byte."""
SETTINGS = (32, 10.0)
"""The most frames, and the seconds in which they may come."""
PINGS = (100, 10.0)
SAVED_PINGS = 1_000
"""The most further PINGs that are kept for later, however many requests and bytes allowed them: so
many at once cost a few milliseconds."""
RESETS = (1_000, 30.0)
OTHERS = (1_000, 10.0)
"""PRIORITY, PRIORITY_UPDATE, GOAWAY, answers to PING and frames of unknown kinds, together."""
WINDOW_UPDATES = (1_000, 10.0)
UPDATES_PER_DATA = 10
"""The further WINDOW_UPDATE frames that each DATA frame to the peer allows it."""

TURN = 512
"""The frames that one connection may have handled before others have their turn: about a
millisecond of work. One that begins or ends a message counts as many (`_MESSAGE`)."""
_MESSAGE = 64


class Cause(Enum):
    """What a connection is cut off for: a kind of frames, or something else."""

    SETTINGS = "settings"
    PING = "ping"
    RESET = "reset"
    DATA = "empty_data"
    WINDOW_UPDATE = "window_update"
    OTHER = "other_frames"
    HEAD = "unfinished_head"
    """A head that continues too long, or takes too long, or for which there is no room."""
    PROTOCOL = "protocol_error"
    UNREAD = "nothing_taken"
    """The peer takes nothing of what is sent to it."""


class Flood(Exception):
    """the peer sends too many frames of one kind"""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class _Rate:
    """At most `limit` events in each period of so many seconds."""

    __slots__ = (
        "_allowance", "_begin", "_cause", "_count", "_most", "_name", "_saved", "_seconds",
    )  # fmt: skip

    def __init__(
        self, cause: Cause, name: str, limit: tuple[int, float], saved: int = 100_000
    ) -> None:
        self._cause = cause
        self._name = name
        self._most, self._seconds = limit
        self._begin, self._count = 0.0, 0
        self._allowance = 0
        """Events beyond the limit that something else allows; used up one by one."""
        self._saved = saved
        """The most of those."""

    def allow(self, count: int) -> None:
        """Allow so many events beyond the limit."""
        self._allowance = min(self._saved, self._allowance + count)

    def add(self, now: float) -> None:
        """Count an event. Raises `Flood`."""
        if now - self._begin > self._seconds:
            self._begin, self._count = now, 0
        self._count += 1
        if self._count > self._most:
            if not self._allowance:
                message = f"more than {self._most} {self._name} in {self._seconds:g} s"
                raise Flood(self._cause, message)
            self._allowance -= 1


class FrameLimits:
    """The frames of one connection so far. `time` is a clock in seconds; `preface` says that the
    peer is a client, whose first bytes are the preface."""

    __slots__ = (
        "_at", "_continuations", "_empty", "_ends_head", "_heads", "_held", "_message", "_others",
        "_partial_since", "_pings", "_resets", "_settings", "_size", "_time", "_updates",
        "head_since", "more",
    )  # fmt: skip

    def __init__(self, time: Callable[[], float], *, preface: bool = True) -> None:
        self._time = time
        self._held = bytearray()
        """The bytes that are not passed on yet."""
        self._at = 0
        """The number of those that are frames of a head that has not ended."""
        self._size = len(PREFACE) if preface else 0
        """The bytes of the frame behind those; 0 before its own head has arrived. The preface
        passes like a frame."""
        self._message = False
        """True if that frame begins or ends a message."""
        self._empty = self._continuations = self._heads = 0
        self._settings = _Rate(Cause.SETTINGS, "SETTINGS frames", SETTINGS)
        self._pings = _Rate(Cause.PING, "PING frames", PINGS, SAVED_PINGS)
        self._resets = _Rate(Cause.RESET, "streams reset", RESETS)
        self._updates = _Rate(Cause.WINDOW_UPDATE, "WINDOW_UPDATE frames", WINDOW_UPDATES)
        self._others = _Rate(Cause.OTHER, "frames of other kinds", OTHERS)
        self._ends_head = False
        """True if the frame under way ends a head."""
        self.head_since: float | None = None
        """The time since which a request's head is arriving; None outside of a head."""
        self._partial_since: float | None = None
        """The time since which the last frame is arriving; None if it is whole."""
        self.more = False
        """True if frames that are whole wait for the next turn."""

    @property
    def held(self) -> int:
        """The number of bytes that are not passed on yet."""
        return len(self._held)

    @property
    def unfinished_since(self) -> float | None:
        """The time since which a frame, or a head of several, is arriving; None between them."""
        return self._partial_since if self.head_since is None else self.head_since

    def feed(self, data: bytes, most: int = 1 << 31) -> bytes:
        """Add `data` to the bytes that wait, count their frames, and return those that are whole
        now, up to about `most` of them (`TURN`). Raises `Flood`."""
        held = self._held
        held += data
        at, end, whole, count = self._at, len(held), 0, 0
        while count < most or at > whole:
            if not self._size:
                if end - at < _HEAD:
                    break
                length = self._count(held[at : at + _HEAD + 1])
                if length > MAX_FRAME:
                    at = whole = at + _HEAD  # there, the library ends the connection
                    break
                self._size = _HEAD + length
                if self.head_since is None:
                    whole = at
            if end - at < self._size:
                break
            at += self._size
            self._size = 0
            count += _MESSAGE if self._message else 1
            self._end_head()
            if self.head_since is None:
                whole = at
            elif at - whole > _LONGEST_HEAD:
                raise Flood(Cause.HEAD, f"a head has more than {HEAD_BYTES} bytes")
        if at == end:
            self._partial_since = None
        elif at > self._at or self._partial_since is None:
            self._partial_since = self._time()
        self.more = count >= most and end > at
        self._at = at - whole
        if whole == end:
            passed = bytes(held)
            held.clear()
        else:
            passed = bytes(held[:whole])
            del held[:whole]
        return passed

    def answered(self, count: int) -> None:
        """Count as resets the heads that have ended since the last call, but for `count` that were
        those of requests, or trailers. Raises `Flood`."""
        self._pings.allow(count)  # clients measure the round trip when a response arrives
        heads, self._heads = self._heads, 0
        for _ in range(heads - count):
            self.provoked()

    def provoked(self) -> None:
        """Count a reset that a mistake of the peer's made us send. Raises `Flood`."""
        self._resets.add(self._time())

    def sent(self, count: int) -> None:
        """Allow the updates of windows, and the PINGs, that so many bytes to the peer explain."""
        self._updates.allow(UPDATES_PER_DATA * (1 + count // 16_384))
        self._pings.allow(count // 16_384)

    def allow_answers(self) -> None:
        """Allow one reset, and one PING, for a request or a part of its body that was sent: a
        server may refuse it, and measures the round trip when a body arrives."""
        self._resets.allow(1)
        self._pings.allow(1)

    def _count(self, head: bytearray) -> int:
        """Count the frame that begins with `head`, and return the length of its payload."""
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        self._message = kind == _HEADERS or (kind == _DATA and bool(flags & _END_STREAM))
        if kind not in (_HEADERS, _CONTINUATION):
            self.head_since = None  # within a head, it makes the library end the connection
        if kind == _DATA:
            padding = 0
            if flags & _PADDED:
                # Behind the length of the padding, which may not have arrived.
                padding = 1 + (head[_HEAD] if len(head) > _HEAD else _MOST_PADDING)
            carries = length > padding
            self._empty = 0 if carries or flags & _END_STREAM else self._empty + 1
            if self._empty > EMPTY_DATA:
                message = f"more than {EMPTY_DATA} DATA frames in a row without a byte"
                raise Flood(Cause.DATA, message)
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
        return length

    def _count_head(self, kind: int, flags: int) -> None:
        if kind == _HEADERS:
            self._continuations = 0
            if self.head_since is None:
                self.head_since = self._time()
        else:
            self._continuations += 1
            if self._continuations > CONTINUATIONS:
                message = f"a head continues in more than {CONTINUATIONS} frames"
                raise Flood(Cause.HEAD, message)
        self._ends_head = bool(flags & _END_HEADERS)

    def _end_head(self) -> None:
        if self._ends_head:
            self.head_since, self._ends_head = None, False
            self._heads += 1
