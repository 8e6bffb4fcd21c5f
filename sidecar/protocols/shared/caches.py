"""Remembers, for a limited time, what data sources said: the sources for which continuations were
issued, and the collections that aliases stand for.

Every cache is bounded in entries and in bytes, and safe to use from the worker thread as well. Keys
are digests that cover the caller's credentials, which are never stored. A continuation (a token
with which a client gets the next part of a result) names no source itself (`protocols/RULES.md`,
Continuations): its sources are authorized at every use.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.protocols.protocol import RoutedRequest, SourceRef, Unresolved

TTL_SECONDS = 30.0
MAX_ENTRIES = 4096
MAX_BYTES = 8 * 1024 * 1024

Value = TypeVar("Value")

MAX_TOKENS = 16_384
TOKEN_SECONDS = 24 * 3600.0
MAX_TOKEN_BYTES = 16 * 1024 * 1024
MAX_SOURCES = 64
"""The most sources that a token may stand for, the same as for a request. A token with more is
forgotten."""

MAX_ALIAS_LISTS = 16
MAX_ALIAS_BYTES = 16 * 1024 * 1024
"""The total size in bytes of the cached lists of aliases. A larger list is fetched every time."""

# What a list shows depends on who asks. The list of another credential could lack an alias, which
# would then be mistaken for a collection of that name.
_CREDENTIALS = frozenset((b"authorization", b"api-key", b"x-api-key", b"cookie"))

Table = dict[str, str]


class LookupStart(NamedTuple):
    """Marks when a look-up began. Take it from `start_lookup` before the look-up, and pass it to
    `put` with the result."""

    generation: int
    at: float


class _Entry(NamedTuple, Generic[Value]):
    value: Value
    at: float
    size: int


class DigestCache(Generic[Value]):
    """A cache whose keys are digests. It holds at most `max_entries` values of `max_bytes` in
    total; the oldest are evicted first. A value expires after `ttl_seconds`."""

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
        """The sum of the sizes that were passed to `put`. Python's own overhead isn't included."""

    def __len__(self) -> int:
        return len(self._entries)

    def start_lookup(self) -> LookupStart:
        return LookupStart(self._generation, self._monotonic())

    def clear(self) -> None:
        """Forget all values, and discard the results of all look-ups under way. Call it when names
        are about to change: cached values may then be wrong."""
        with self._lock:
            # `put` compares this with the generation in which its look-up began.
            self._generation += 1
            self._entries.clear()
            self.bytes = 0

    def get(self, key: bytes, *, include_expired: bool = False) -> Value | None:
        """Return the value under the digest `key`; None if there is none, or if it has expired and
        not `include_expired`."""
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
        """Cache a value of about `size` bytes. The result of a look-up that began before the last
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
        """Remove an entry. The caller holds the lock."""
        if (former := self._entries.pop(key, None)) is not None:
            self.bytes -= former.size


def digest(*parts: bytes) -> bytes:
    """Return a cache key for a list of byte strings. Different lists have different keys, even if
    their concatenation is the same."""
    made = sha256()
    for part in parts:
        # The length separates the parts: ("ab", "c") and ("a", "bc") must not collide.
        made.update(b"%d:" % len(part))
        made.update(part)
    return made.digest()


def digest_of_fields(name: str, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a cache key for what `name` means to the sender of these header fields."""
    parts = [part for field in fields for part in field]
    return digest(name.encode("utf-8", "surrogatepass"), *parts)


# The token itself is not kept: its digest is the key.
class _Issued(NamedTuple):
    sources: tuple[SourceRef, ...]
    user: str
    session: str | None

    def is_for(self, who: Attribution) -> bool:
        return (self.user, self.session) == (who.user, who.session)


class Continuations:
    """The continuation tokens of one data source, each with its sources and its owner. Only digests
    of the tokens are kept; the oldest are evicted first."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._issued: DigestCache[_Issued] = DigestCache(
            monotonic, ttl_seconds=TOKEN_SECONDS, max_entries=MAX_TOKENS, max_bytes=MAX_TOKEN_BYTES
        )

    def remember(self, token: str, who: Attribution, sources: tuple[SourceRef, ...]) -> None:
        """Record that a response from these sources contained `token`. If the same user and session
        got the token before, it now stands for the sources of both responses: for its owner, a
        token never loses a source."""
        key = _key(token)
        # An expired entry counts too, or the token would come to stand for less.
        known = self._issued.get(key, include_expired=True)
        if known is not None and known.is_for(who):
            sources = tuple(dict.fromkeys((*known.sources, *sources)))
        if len(sources) > MAX_SOURCES:
            # A caller who chooses the token could make its sources grow without limit. From now on
            # the token is denied.
            self._issued.discard(key)
            return
        size = sum(len(source.source_id) for source in sources) + len(who.user)
        issued = _Issued(sources, who.user, who.session)
        self._issued.put(key, issued, size, self._issued.start_lookup())

    def sources_of(self, token: str, who: Attribution) -> tuple[SourceRef, ...]:
        """Return the sources for which `token` was issued. Raises `Unresolved` if it is unknown,
        has expired or belongs to another user or session."""
        # This grants nothing: the policy is asked about these sources at every use.
        known = self._issued.get(_key(token))
        if known is None:
            raise Unresolved("the continuation was not issued through this sidecar, or has expired")
        if not known.is_for(who):
            raise Unresolved("the continuation was issued to another user or session")
        return known.sources

    def check_owner(self, token: str, who: Attribution) -> None:
        """Raise `Unresolved` if `token`, a name that callers choose, belongs to another user or
        session. It belongs to the first caller who used it."""
        # An expired entry counts: what the owner said may still be in the session or memory.
        known = self._issued.get(_key(token), include_expired=True)
        if known is not None and not known.is_for(who):
            raise Unresolved("the session or memory belongs to another user or session")


def _key(token: str) -> bytes:
    # JSON strings may hold lone surrogates, and a token is whatever the data source sent.
    return digest(token.encode("utf-8", "surrogatepass"))


class Aliases:
    """The aliases of one data source, cached. `read` turns the JSON of the list into a mapping from
    alias to collection, and raises `UpstreamFailed`. `absent` are the HTTP statuses which mean that
    the server has no such list."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        target: str,
        read: Callable[[Any], Table],
        absent: tuple[int, ...] = (),
    ) -> None:
        self._target = target
        self._read = read
        self._absent = absent
        self._known: DigestCache[Table] = DigestCache(
            monotonic, max_entries=MAX_ALIAS_LISTS, max_bytes=MAX_ALIAS_BYTES
        )
        self.clear = self._known.clear

    def cached(self, request: RoutedRequest) -> Table | None:
        return self._known.get(credential_key(request, self._target))

    async def fetch(self, request: RoutedRequest) -> Table:
        """Return the aliases, from the cache or the data source. Raises `Unresolved` if they can't
        be fetched."""
        if (known := self.cached(request)) is not None:
            return known
        # Before the request: a change during the look-up must prevent caching.
        started = self._known.start_lookup()
        try:
            response = await request.fetch(self._target)
            if response.status in self._absent:
                # An older server without aliases: every name is a collection's own.
                table: Table = {}
            elif response.status == 200:
                table = self._read(orjson.loads(response.body))
            else:
                why = f"the data source answered with status {response.status}"
                raise Unresolved(f"can't look up aliases: {why}")
        except (UpstreamFailed, orjson.JSONDecodeError) as error:
            raise Unresolved(f"can't look up aliases: {error}") from error
        key = credential_key(request, self._target)
        self._known.put(key, table, len(response.body), started)
        return table


def credential_key(request: RoutedRequest, name: str) -> bytes:
    """Return a cache key for what `name` means under the credentials of the request."""
    lowered = ((name.lower(), value) for name, value in request.fields)
    return digest_of_fields(name, (field for field in lowered if field[0] in _CREDENTIALS))
