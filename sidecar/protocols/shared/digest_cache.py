"""What was learnt from a data source and is good for a while. Every cache of the protocols is one
of these, so that all of them are bounded in entries and in bytes.

Keys are digests: what tells one caller from another is their credentials, and those are neither
kept nor paid for in memory. Pure, and safe to use from the worker thread beside the loop.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

KEPT_SECONDS = 30.0
KEPT = 4096
KEPT_BYTES = 8 * 1024 * 1024

Value = TypeVar("Value")


class Moment(NamedTuple):
    """When the data source was asked: to be taken before, and handed in with the answer."""

    era: int
    at: float


class _Entry(NamedTuple, Generic[Value]):
    value: Value
    at: float
    size: int


class DigestCache(Generic[Value]):
    """At most `most` values, and `most_bytes` of them by the sizes that `keep` is told; the oldest
    go first. `seconds` is how long a value is good."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        seconds: float = KEPT_SECONDS,
        most: int = KEPT,
        most_bytes: int = KEPT_BYTES,
    ) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._most = most
        self._most_bytes = most_bytes
        self._entries: dict[bytes, _Entry[Value]] = {}
        self._era = 0
        self._lock = Lock()
        self.bytes = 0
        """What the values take, as told."""

    def __len__(self) -> int:
        return len(self._entries)

    def moment(self) -> Moment:
        return Moment(self._era, self._monotonic())

    def forget(self) -> None:
        """Names change: what is known may be wrong, and so may every answer under way."""
        with self._lock:
            self._era += 1
            self._entries.clear()
            self.bytes = 0

    def find(self, key: bytes, *, aged: bool = False) -> Value | None:
        """The value that is kept under a digest, and is still good; with `aged`, however old."""
        found = self._entries.get(key)
        if found is None or (not aged and self._monotonic() - found.at > self._seconds):
            return None
        return found.value

    def drop(self, key: bytes) -> None:
        """Forgets one value."""
        with self._lock:
            former = self._entries.pop(key, None)
            if former is not None:
                self.bytes -= former.size

    def keep(self, key: bytes, value: Value, size: int, asked: Moment) -> None:
        """Keeps a value of about `size` bytes that was asked for at `asked`. An answer to a
        question from before a change is good for the request that asked, which set out before the
        change too, and for no other: it is not kept."""
        with self._lock:
            former = self._entries.pop(key, None)
            if former is not None:
                self.bytes -= former.size
            if asked.era != self._era or size > self._most_bytes:
                return
            while len(self._entries) >= self._most or self.bytes + size > self._most_bytes:
                self.bytes -= self._entries.pop(next(iter(self._entries))).size
            self._entries[key] = _Entry(value, asked.at, size)
            self.bytes += size


def digest(*parts: bytes) -> bytes:
    """A key of these parts: no two lists of parts have the same one."""
    made = sha256()
    for part in parts:
        made.update(b"%d:" % len(part))
        made.update(part)
    return made.digest()


def digest_of_fields(name: str, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A key for `name` as the sender of these header fields was told of it."""
    parts = [part for field in fields for part in field]
    return digest(name.encode("utf-8", "surrogatepass"), *parts)
