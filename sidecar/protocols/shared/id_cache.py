"""Which collection an id stands for, cached for at most 30 seconds and cleared by any change of
names that the sidecar forwards (data-sources.md, precedence).

A collection's id never changes, but its name may: a policy applies to the name's present holder.
"""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from sidecar.protocols.messages import SourceRef
from sidecar.protocols.shared.digest_cache import DigestCache, LookupStart


class KnownCollection(NamedTuple):
    """A collection by its present name, and its source in policies."""

    tenant: str
    database: str
    name: str
    source: SourceRef


class CollectionCache:
    """Ids learnt from the data source's responses."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._known: DigestCache[KnownCollection] = DigestCache(monotonic)
        self.start_lookup = self._known.start_lookup
        self.clear = self._known.clear

    def __len__(self) -> int:
        return len(self._known)

    def put(self, identity: UUID, collection: KnownCollection, started: LookupStart) -> None:
        """`identity` was `collection` when the look-up began."""
        names = (collection.tenant, collection.database, collection.name)
        size = sum(map(len, names)) + len(collection.source.source_id)
        self._known.put(identity.bytes, collection, size, started)

    def get(self, identity: UUID) -> KnownCollection | None:
        return self._known.get(identity.bytes)
