"""Which collection an id stands for, as long as that is known for certain: 30 seconds at most, and
not past a change of names that went through us (data-sources.md, precedence).

A collection's id never changes, its name may: a policy follows the name's present holder.
"""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from sidecar.protocols.protocol import SourceRef
from sidecar.protocols.shared.digest_cache import DigestCache, Moment


class KnownCollection(NamedTuple):
    """A collection by its present name, and what policies call it."""

    tenant: str
    database: str
    name: str
    place: SourceRef


class CollectionCache:
    """Ids learnt from the data source's answers."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._known: DigestCache[KnownCollection] = DigestCache(monotonic)
        self.moment = self._known.moment
        self.forget = self._known.forget

    def learn(self, identity: UUID, collection: KnownCollection, asked: Moment) -> None:
        """`identity` was `collection` when the data source was asked."""
        names = (collection.tenant, collection.database, collection.name)
        size = sum(map(len, names)) + len(collection.place.source_id)
        self._known.keep(identity.bytes, collection, size, asked)

    def find(self, identity: UUID) -> KnownCollection | None:
        return self._known.find(identity.bytes)
