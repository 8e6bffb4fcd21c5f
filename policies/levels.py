"""The sensitivity level of a source may be stated by the request, the sidecar and the tenant. The
highest of these levels holds. Knows nothing of where the levels are kept."""

from typing import Any, Literal, NamedTuple

from policies.definitions.model import RANK, Sensitivity

_KEPT = 4096
"""The most source ids whose level a `LevelLookup` remembers."""
Holder = Literal["request", "sidecar", "tenant"]


class Levels(NamedTuple):
    """The sensitivity levels that are stated for one source: by the request, by the sidecar's
    settings, and by the tenant (`/v1/sources`). A level is None where nothing is stated; at least
    one is stated."""

    request: Sensitivity | None
    sidecar: Sensitivity | None = None
    tenant: Sensitivity | None = None

    @property
    def effective(self) -> Sensitivity:
        """The highest of the stated levels, by which the retrieval is decided."""
        effective = highest(highest(self.request, self.sidecar), self.tenant)
        assert effective is not None  # one is stated
        return effective

    @property
    def stated_by(self) -> Holder:
        """The party whose level is the highest. If several state the same level, the request comes
        first, then the sidecar."""
        stated = self.stated()
        return max(stated, key=lambda name: RANK[stated[name]])

    def stated(self) -> dict[Holder, Sensitivity]:
        """Return only the levels that are stated, keyed by the party that states each."""
        named: tuple[tuple[Holder, Sensitivity | None], ...] = (
            ("request", self.request),
            ("sidecar", self.sidecar),
            ("tenant", self.tenant),
        )
        return {name: level for name, level in named if level is not None}

    def explained(self) -> dict[str, Any]:
        """Return the levels as an explanation shows them: `{request, sidecar, tenant, held,
        by}`."""
        return {**self._asdict(), "held": self.effective, "by": self.stated_by}


class LevelLookup:
    """Looks up the sensitivity levels of source ids, and remembers up to `_KEPT` of them: callers
    choose the ids, so memory must be bounded. A subclass implements `_find`, whose answer for an id
    must never change."""

    def __init__(self) -> None:
        self._known: dict[str, Sensitivity | None] = {}

    def level(self, source_id: str) -> Sensitivity | None:
        """Return the stated level of a source id; None if none is stated."""
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
