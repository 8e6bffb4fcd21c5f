"""A cache for what a data source said, valid for a limited time. Every cache of a protocol is one
of these, so each is bounded in entries and in bytes.

Keys are digests. They cover the caller's credentials, which are never stored themselves. Pure, and
safe to use from the worker thread as well as the event loop.
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
    """When a look-up began. Take it before the look-up, and pass it to `put` with the result."""

    generation: int
    at: float


class _Entry(NamedTuple, Generic[Value]):
    value: Value
    at: float
    size: int


class DigestCache(Generic[Value]):
    """Holds at most `max_entries` values of `max_bytes` in total; the oldest are evicted first. A
    value expires after `ttl_seconds`."""

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
        """The sum of the sizes that `put` got. Python's own overhead isn't included."""

    def __len__(self) -> int:
        return len(self._entries)

    def start_lookup(self) -> LookupStart:
        return LookupStart(self._generation, self._monotonic())

    def clear(self) -> None:
        """Forgets everything, and the result of every look-up under way too. For when names are
        about to change: what is cached may then be wrong."""
        with self._lock:
            # `put` compares this with the generation in which its look-up began.
            self._generation += 1
            self._entries.clear()
            self.bytes = 0

    def get(self, key: bytes, *, include_expired: bool = False) -> Value | None:
        """The value under a digest unless it has expired; with `include_expired`, even then."""
        # Needs no lock: a single look-up in a dict is atomic.
        found = self._entries.get(key)
        if found is None:
            return None
        expired = self._monotonic() - found.at > self._ttl_seconds
        return None if expired and not include_expired else found.value

    def discard(self, key: bytes) -> None:
        with self._lock:
            self._remove(key)

    def put(self, key: bytes, value: Value, size: int, started: LookupStart) -> None:
        """Caches a value of about `size` bytes. A result whose look-up began before the last
        `clear` is not cached: it is valid only for the request that looked it up, which began
        before the change as well."""
        with self._lock:
            # Removed first, even if the new value is not kept: the old one may no longer be right.
            self._remove(key)
            if started.generation != self._generation or size > self._max_bytes:
                return
            # A dict keeps the order of insertion, so its first entry is the oldest.
            while len(self._entries) >= self._max_entries or self.bytes + size > self._max_bytes:
                self._remove(next(iter(self._entries)))
            # Age counts from the start of the look-up: the data source may have answered before a
            # change that somebody else made while the response was on its way.
            self._entries[key] = _Entry(value, started.at, size)
            self.bytes += size

    def _remove(self, key: bytes) -> None:
        """The caller holds the lock."""
        former = self._entries.pop(key, None)
        if former is not None:
            self.bytes -= former.size


def digest(*parts: bytes) -> bytes:
    """A cache key for these parts. Different lists of parts have different keys."""
    made = sha256()
    for part in parts:
        # The length separates the parts: ("ab", "c") and ("a", "bc") must not collide.
        made.update(b"%d:" % len(part))
        made.update(part)
    return made.digest()


def digest_of_fields(name: str, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A cache key for the meaning of `name` to the sender of these header fields."""
    parts = [part for field in fields for part in field]
    return digest(name.encode("utf-8", "surrogatepass"), *parts)
