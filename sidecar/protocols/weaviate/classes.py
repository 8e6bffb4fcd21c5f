"""Which collection Weaviate says a name is, by that collection's own definition, for 30 seconds at
most: its list of aliases leaves out those that the credentials may not see, and follows them all
the same.
"""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import RoutedRequest, Unresolved
from sidecar.protocols.shared.aliases import credential_key
from sidecar.protocols.shared.digest_cache import DigestCache


class Classes:
    """The collections of one Weaviate, each as one credential was told of it."""

    def __init__(self, monotonic: Callable[[], float], schema: str) -> None:
        self._schema = schema
        self._known: DigestCache[str] = DigestCache(monotonic)
        self.clear = self._known.clear

    async def own_name(self, name: str, asked: RoutedRequest) -> str:
        """The name by which the collection `name` is defined; `name` itself where there is none.
        Raises `Unresolved`."""
        key = credential_key(asked, name)
        known = self._known.get(key)
        if known is not None:
            return known
        moment = self._known.start_lookup()
        own = await self._asked(name, asked)
        self._known.put(key, own, len(own), moment)
        return own

    async def _asked(self, name: str, asked: RoutedRequest) -> str:
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
