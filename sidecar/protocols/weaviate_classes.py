"""Which collection Weaviate says a name is, by that collection's own definition, for 30 seconds at
most: its list of aliases leaves out those that the credentials may not see, and follows them all
the same.
"""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.aliases import Credentials, credentials
from sidecar.protocols.collections import KEPT, KEPT_SECONDS
from sidecar.protocols.protocol import Asked, Unresolved


class Classes:
    """The collections of one Weaviate, each as one credential was told of it."""

    def __init__(self, monotonic: Callable[[], float], schema: str) -> None:
        self._monotonic = monotonic
        self._schema = schema
        self._known: dict[tuple[Credentials, str], tuple[str, float]] = {}
        self._era = 0

    def forget(self) -> None:
        """Names change: what is known may be wrong, and so may every answer under way."""
        self._era += 1
        self._known.clear()

    async def own_name(self, name: str, asked: Asked) -> str:
        """The name by which the collection `name` is defined; `name` itself where there is none.
        Raises `Unresolved`."""
        key = credentials(asked), name
        found = self._known.get(key)
        if found is not None and self._monotonic() - found[1] <= KEPT_SECONDS:
            return found[0]
        era, at = self._era, self._monotonic()
        own = await self._asked(name, asked)
        if era == self._era:
            self._known.pop(key, None)
            while len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = own, at
        return own

    async def _asked(self, name: str, asked: Asked) -> str:
        try:
            answer = await asked.fetch(f"{self._schema}/{name}")
            if answer.status == 404:
                return name
            found: Any = orjson.loads(answer.body) if answer.status == 200 else None
        except (UpstreamFailed, orjson.JSONDecodeError) as error:
            raise Unresolved(f"collection `{name}` can't be looked up: {error}") from error
        own = found.get("class") if isinstance(found, dict) else None
        if not isinstance(own, str) or not own:
            status = answer.status
            raise Unresolved(f"collection `{name}` can't be looked up: the answer is {status}")
        return own
