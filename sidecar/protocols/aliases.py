"""Which collection an alias stands for, as the data source says: its whole list of aliases, for 30
seconds at most and not past a change that went through us (data-sources.md, precedence).

What a list shows depends on whose credentials asked for it, so each credential has its own: asked
with a narrow one, an alias may be missing, and would be taken for a collection.
"""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.collections import KEPT_SECONDS
from sidecar.protocols.protocol import Asked, Unresolved

KEPT = 16

_CREDENTIALS = frozenset((b"authorization", b"api-key", b"x-api-key", b"cookie"))

Table = dict[str, str]
Credentials = tuple[tuple[bytes, bytes], ...]


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
        self._monotonic = monotonic
        self._target = target
        self._read = read
        self._absent = absent
        self._known: dict[Credentials, tuple[Table, float]] = {}
        self._era = 0

    def forget(self) -> None:
        """Names change: what is known may be wrong, and so may every answer under way."""
        self._era += 1
        self._known.clear()

    def known(self, asked: Asked) -> Table | None:
        """The aliases, where they can be told without asking."""
        found = self._known.get(credentials(asked))
        if found is None or self._monotonic() - found[1] > KEPT_SECONDS:
            return None
        return found[0]

    async def table(self, asked: Asked) -> Table:
        """The aliases, asked for where they are not known. Raises `Unresolved`."""
        known = self.known(asked)
        if known is not None:
            return known
        era, at = self._era, self._monotonic()
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
        # An answer to a question from before a change is good for the request that asked, which
        # set out before it too, and for no other.
        if era == self._era:
            key = credentials(asked)
            self._known.pop(key, None)
            while len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = table, at
        return table


def credentials(asked: Asked) -> Credentials:
    """What of a request's fields says on whose behalf the data source answers."""
    return tuple(field for field in _lowered(asked) if field[0] in _CREDENTIALS)


def _lowered(asked: Asked) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in asked.fields]
