"""Which collection an id stands for, as long as that is known for certain: 30 seconds at most, and
not past a change of names that went through us (data-sources.md, precedence).

A collection's id never changes, its name may: a policy follows the name's present holder.
"""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from sidecar.protocols.messages import SourceRef
from sidecar.protocols.shared.digest_cache import DigestCache, LookupStart


class KnownCollection(NamedTuple):
    """A collection by its present name, and what policies call it."""

    tenant: str
    database: str
    name: str
    source: SourceRef


class CollectionCache:
    """Ids learnt from the data source's answers."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._known: DigestCache[KnownCollection] = DigestCache(monotonic)
        self.start_lookup = self._known.start_lookup
        self.clear = self._known.clear

    def put(self, identity: UUID, collection: KnownCollection, asked: LookupStart) -> None:
        """`identity` was `collection` when the data source was asked."""
        names = (collection.tenant, collection.database, collection.name)
        size = sum(map(len, names)) + len(collection.source.source_id)
        self._known.put(identity.bytes, collection, size, asked)

    def get(self, identity: UUID) -> KnownCollection | None:
        return self._known.get(identity.bytes)
