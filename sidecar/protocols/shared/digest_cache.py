"""What was learnt from a data source and is good for a while. Every cache of the protocols is one
of these, so that all of them are bounded in entries and in bytes.

Keys are digests: what tells one caller from another is their credentials, and those are neither
kept nor paid for in memory. Pure, and safe to use from the worker thread beside the loop.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

TTL_SECONDS = 30.0
MAX_ENTRIES = 4096
MAX_BYTES = 8 * 1024 * 1024

Value = TypeVar("Value")


class LookupStart(NamedTuple):
    """When the data source was asked: to be taken before, and handed in with the answer."""

    generation: int
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
        ttl_seconds: float = TTL_SECONDS,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._monotonic = monotonic
        self._ttl_seconds = ttl_seconds
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: dict[bytes, _Entry[Value]] = {}
        self._generation = 0
        self._lock = Lock()
        self.bytes = 0
        """What the values take, as told."""

    def __len__(self) -> int:
        return len(self._entries)

    def start_lookup(self) -> LookupStart:
        return LookupStart(self._generation, self._monotonic())

    def clear(self) -> None:
        """Names change: what is known may be wrong, and so may every answer under way."""
        with self._lock:
            self._generation += 1
            self._entries.clear()
            self.bytes = 0

    def get(self, key: bytes, *, include_expired: bool = False) -> Value | None:
        """The value under a digest, unless it expired; with `include_expired`, even then."""
        found = self._entries.get(key)
        if found is None or (
            not include_expired and self._monotonic() - found.at > self._ttl_seconds
        ):
            return None
        return found.value

    def discard(self, key: bytes) -> None:
        """Forgets one value."""
        with self._lock:
            former = self._entries.pop(key, None)
            if former is not None:
                self.bytes -= former.size

    def put(self, key: bytes, value: Value, size: int, asked: LookupStart) -> None:
        """Keeps a value of about `size` bytes that was asked for at `asked`. An answer to a
        question from before a change is good for the request that asked, which set out before the
        change too, and for no other: it is not kept."""
        with self._lock:
            former = self._entries.pop(key, None)
            if former is not None:
                self.bytes -= former.size
            if asked.generation != self._generation or size > self._max_bytes:
                return
            while len(self._entries) >= self._max_entries or self.bytes + size > self._max_bytes:
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
