"""The sensitivity of a source as the request, the sidecar and the tenant state it. The highest
holds. Knows nothing of where the levels are kept."""

from typing import Any, Literal, NamedTuple

from policies.definitions.model import RANK, Sensitivity

_KEPT = 4096
"""The ids that are remembered."""
Holder = Literal["request", "sidecar", "tenant"]


class Levels(NamedTuple):
    """The levels of one source, each None where nothing is stated: by the request, by the settings
    of the sidecar, and by the tenant (`/v1/sources`). At least one is stated."""

    request: Sensitivity | None
    sidecar: Sensitivity | None = None
    tenant: Sensitivity | None = None

    @property
    def held(self) -> Sensitivity:
        """The highest level: the one to decide by."""
        held = highest(highest(self.request, self.sidecar), self.tenant)
        assert held is not None  # one is stated
        return held

    @property
    def by(self) -> Holder:
        """The party whose level holds. Of equal ones, the request's comes first, then the
        sidecar's."""
        stated = self.stated()
        return max(stated, key=lambda name: RANK[stated[name]])

    def stated(self) -> dict[Holder, Sensitivity]:
        """Return the levels that are stated, by the party that states each."""
        named: tuple[tuple[Holder, Sensitivity | None], ...] = (
            ("request", self.request),
            ("sidecar", self.sidecar),
            ("tenant", self.tenant),
        )
        return {name: level for name, level in named if level is not None}

    def explained(self) -> dict[str, Any]:
        """Return `{request, sidecar, tenant, held, by}` of an explanation."""
        return {**self._asdict(), "held": self.held, "by": self.by}


class LevelLookup:
    """Looks up the levels of source ids, and remembers them. Callers choose the ids, so memory is
    bounded; what a subclass finds for an id must never change."""

    def __init__(self) -> None:
        self._known: dict[str, Sensitivity | None] = {}

    def level(self, source_id: str) -> Sensitivity | None:
        """Return the level of a source id; None if none is stated."""
        try:
            return self._known[source_id]
        except KeyError:
            pass
        found = self._find(source_id)
        # Emptied at once: a worker thread may look up a level at the same time.
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[source_id] = found
        return found

    def _find(self, source_id: str) -> Sensitivity | None:
        raise NotImplementedError


def highest(one: Sensitivity | None, other: Sensitivity | None) -> Sensitivity | None:
    """Return the higher of two levels; None if neither is stated."""
    if one is None or other is None:
        return other if one is None else one
    return one if RANK[one] >= RANK[other] else other
