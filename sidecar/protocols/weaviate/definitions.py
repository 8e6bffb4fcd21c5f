"""Resolves a collection's name by the collection's own definition, cached for at most 30 seconds.
The list of aliases isn't enough: it leaves out those that the credentials may not see, although
Weaviate follows them.
"""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import RoutedRequest, Unresolved
from sidecar.protocols.shared.aliases import credential_key
from sidecar.protocols.shared.digest_cache import DigestCache


class CollectionDefinitions:
    """The collections of one Weaviate, as it described them under each credential."""

    def __init__(self, monotonic: Callable[[], float], schema_path: str) -> None:
        self._schema_path = schema_path
        self._known: DigestCache[str] = DigestCache(monotonic)
        self.clear = self._known.clear

    async def own_name(self, name: str, request: RoutedRequest) -> str:
        """The name in the definition of the collection `name`, or `name` itself if it has none.
        Raises `Unresolved`."""
        key = credential_key(request, name)
        known = self._known.get(key)
        if known is not None:
            return known
        # Before the request: a change during the look-up must prevent caching.
        started = self._known.start_lookup()
        own = await self._fetch(name, request)
        self._known.put(key, own, len(own), started)
        return own

    async def _fetch(self, name: str, request: RoutedRequest) -> str:
        try:
            response = await request.fetch(f"{self._schema_path}/{name}")
            # A name that doesn't exist is judged as written: a write may create it.
            if response.status == 404:
                return name
            found: Any = orjson.loads(response.body) if response.status == 200 else None
        except (UpstreamFailed, orjson.JSONDecodeError) as error:
            raise Unresolved(f"can't look up collection `{name}`: {error}") from error
        own = found.get("class") if isinstance(found, dict) else None
        if not isinstance(own, str) or not own:
            reason = f"status {response.status}, without a definition"
            raise Unresolved(f"can't look up collection `{name}`: {reason}")
        return own
