"""One tenant's waiting update of its policy set in Redis. Knows neither Redis nor tasks."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from control_api.store.transaction import Published

MAX_DOCUMENTS = 500
"""Documents that may wait for a tenant. If there are more, they are dropped, and a reconciliation
finds the difference."""
MAX_SUSPECT = 256
"""Suspect fields that may wait for a tenant. Further ones are dropped."""


@dataclass(slots=True)
class PushJob:
    """An update of a tenant's set. `published` is the publication to write; None means that the set
    must be reconciled with the store. `since` is when the set began to lag, on the monotonic clock.
    `suspect` holds fields that sidecars report as wrong."""

    published: Published | None
    since: float
    suspect: set[bytes] = field(default_factory=set)

    def merge(self, published: Published | None, suspect: Iterable[bytes]) -> None:
        """Add another update to this one."""
        self.suspect.update(islice(suspect, max(0, MAX_SUSPECT - len(self.suspect))))
        before, self.published = self.published, None
        if before is None or published is None:
            return  # the change is not known
        if published.since != before.revision:
            return  # another replica has published in between: only the store knows its change
        if len(before.documents) > MAX_DOCUMENTS:
            return
        self.published = Published(
            before.since,
            published.revision,
            before.documents | published.documents,
            before.nodes | published.nodes,
        )
