"""Which collection an alias stands for, as the data source says: its whole list of aliases, for 30
seconds at most and not past a change that went through us (data-sources.md, precedence).

What a list shows depends on whose credentials asked for it, so each credential has its own: asked
with a narrow one, an alias may be missing, and would be taken for a collection.
"""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import RoutedRequest, Unresolved
from sidecar.protocols.shared.digest_cache import DigestCache, digest_of_fields

MAX_ENTRIES = 16
MAX_BYTES = 16 * 1024 * 1024
"""Of lists of aliases, as the data source sent them. A longer one is asked for each time."""

_CREDENTIALS = frozenset((b"authorization", b"api-key", b"x-api-key", b"cookie"))

Table = dict[str, str]


class Aliases:
    """The aliases of one data source. `read` makes alias -> collection of the list's JSON and
    raises `UpstreamFailed`; `absent` are the statuses that say there is no such list."""

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

    def cached(self, asked: RoutedRequest) -> Table | None:
        """The aliases, where they can be told without asking."""
        return self._known.get(credential_key(asked, self._target))

    async def fetch(self, asked: RoutedRequest) -> Table:
        """The aliases, asked for where they are not known. Raises `Unresolved`."""
        known = self.cached(asked)
        if known is not None:
            return known
        moment = self._known.start_lookup()
        try:
            answer = await asked.fetch(self._target)
            if answer.status in self._absent:
                table: Table = {}
            elif answer.status == 200:
                table = self._read(orjson.loads(answer.body))
            else:
                raise Unresolved(
                    f"aliases can't be looked up: the data source answers {answer.status}"
                )
        except (UpstreamFailed, orjson.JSONDecodeError) as error:
            raise Unresolved(f"aliases can't be looked up: {error}") from error
        self._known.put(credential_key(asked, self._target), table, len(answer.body), moment)
        return table


def credential_key(asked: RoutedRequest, name: str) -> bytes:
    """A key for what `name` is to those on whose behalf the data source answers."""
    lowered = ((name.lower(), value) for name, value in asked.fields)
    return digest_of_fields(name, (field for field in lowered if field[0] in _CREDENTIALS))
