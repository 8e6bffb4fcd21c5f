"""Looks up the collection that an alias stands for in the data source's complete list of aliases,
which is cached for at most 30 seconds. A change of names that the sidecar forwards clears the cache
(`protocols/RULES.md`, Precedence).

Each credential has its own entry.
"""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import RoutedRequest, Unresolved
from sidecar.protocols.shared.digest_cache import DigestCache, digest_of_fields

MAX_ENTRIES = 16
MAX_BYTES = 16 * 1024 * 1024
"""The total size of the cached lists, as the data source sent them. A list that is larger by itself
is fetched every time."""

# What a list shows depends on who asks. The list of another credential could lack an alias, which
# would then be mistaken for a collection of that name.
_CREDENTIALS = frozenset((b"authorization", b"api-key", b"x-api-key", b"cookie"))

Table = dict[str, str]


class Aliases:
    """The aliases of one data source. `read` turns the list's JSON into alias -> collection, and
    raises `UpstreamFailed`; `absent` are the statuses that mean there is no such list."""

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
            monotonic, max_entries=MAX_ENTRIES, max_bytes=MAX_BYTES
        )
        self.clear = self._known.clear

    def cached(self, request: RoutedRequest) -> Table | None:
        """The aliases, if they are cached."""
        return self._known.get(credential_key(request, self._target))

    async def fetch(self, request: RoutedRequest) -> Table:
        """The aliases, from the cache or the data source. Raises `Unresolved`."""
        known = self.cached(request)
        if known is not None:
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
                raise Unresolved(
                    f"can't look up aliases: the data source answered with status {response.status}"
                )
        except (UpstreamFailed, orjson.JSONDecodeError) as error:
            raise Unresolved(f"can't look up aliases: {error}") from error
        key = credential_key(request, self._target)
        self._known.put(key, table, len(response.body), started)
        return table


def credential_key(request: RoutedRequest, name: str) -> bytes:
    """A cache key for the meaning of `name` under the request's credentials."""
    lowered = ((name.lower(), value) for name, value in request.fields)
    return digest_of_fields(name, (field for field in lowered if field[0] in _CREDENTIALS))
