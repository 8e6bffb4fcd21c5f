"""Which collection an id stands for, as long as that is known for certain: 30 seconds at most, and
not past a change of names that went through us (data-sources.md, precedence).

A collection's id never changes, its name may: a policy follows the name's present holder.
"""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from sidecar.protocols.protocol import Place

KEPT_SECONDS = 30.0
KEPT = 4096


class Collection(NamedTuple):
    """A collection by its present name, and what policies call it."""

    tenant: str
    database: str
    name: str
    place: Place


class Moment(NamedTuple):
    """When the data source was asked: to be taken before, and handed in with the answer."""

    era: int
    at: float


class Collections:
    """Ids learnt from the data source's answers; the oldest of more than `KEPT` is forgotten."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: dict[UUID, tuple[Collection, float]] = {}
        self._era = 0

    def moment(self) -> Moment:
        return Moment(self._era, self._monotonic())

    def forget(self) -> None:
        """Names change: what is known may be wrong, and so may every answer under way."""
        self._era += 1
        self._known.clear()

    def learn(self, identity: UUID, collection: Collection, asked: Moment) -> None:
        """`identity` was `collection` when the data source was asked."""
        # An answer to a question from before a change may tell the name from before the change.
        if asked.era != self._era:
            return
        self._known.pop(identity, None)
        while len(self._known) >= KEPT:
            del self._known[next(iter(self._known))]
        self._known[identity] = collection, asked.at

    def find(self, identity: UUID) -> Collection | None:
        found = self._known.get(identity)
        if found is None or self._monotonic() - found[1] > KEPT_SECONDS:
            return None
        return found[0]
