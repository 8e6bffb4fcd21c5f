"""The sensitivity levels that a tenant states for its sources (`/v1/sources`), as a document of the
policy set.

    {"levels": [["salaries*", "critical"], …]}        in order of pattern; absent without any

A source gets the highest level of the patterns that match its id. Sidecars that are older than this
document ignore it. Knows nothing of where it is stored.
"""

import hashlib
from collections.abc import Mapping

import orjson

from policies.definitions.model import RANK, SENSITIVITIES, Sensitivity
from policies.definitions.wildcard import Matcher, matcher
from policies.ground.canonical import encode
from policies.levels import LevelLookup, Levels
from policies.retrieval import Retrieval

SOURCES = "sources"
"""The name of the document."""


class SourceLevels(LevelLookup):
    """The levels that a tenant states for its sources, parsed from the document's bytes. Raises
    `KeyError`, `TypeError` or `ValueError` for a form that is not known."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.digest = hashlib.sha256(body).hexdigest()
        self._matchers = _matchers(stated_levels(body))

    def _find(self, source_id: str) -> Sensitivity | None:
        return next((level for level, matches in self._matchers if matches(source_id)), None)


def sources_document(levels: Mapping[str, Sensitivity]) -> bytes | None:
    """Return the document for these levels, which are keyed by pattern; None if there are none."""
    return encode({"levels": [list(each) for each in sorted(levels.items())]}) if levels else None


def stated_levels(body: bytes | None) -> dict[str, Sensitivity]:
    """Parse a document's bytes into levels by pattern: the reverse of `sources_document`. Raises
    errors as `SourceLevels` does."""
    found: dict[str, Sensitivity] = {}
    for pattern, level in [] if body is None else orjson.loads(body)["levels"]:
        if level not in RANK:
            raise ValueError(f"`{level}` is not a sensitivity level")
        found[pattern] = level
    return found


def at_effective_level(retrieval: Retrieval, sources: SourceLevels | None) -> Retrieval:
    """Return the retrieval at the sensitivity level that holds: the highest of its own and the one
    that the tenant states. If that is its level already, return the same object."""
    levels = retrieval.levels
    if sources is not None:
        tenant = sources.level(retrieval.source_id)
        if levels is None and tenant is not None:
            levels = Levels(retrieval.sensitivity_level)
        if levels is not None and levels.tenant != tenant:
            levels = levels._replace(tenant=tenant)
    if levels is None:
        return retrieval
    if levels is retrieval.levels and levels.effective == retrieval.sensitivity_level:
        return retrieval
    return retrieval._replace(sensitivity_level=levels.effective, levels=levels)


def _matchers(levels: Mapping[str, Sensitivity]) -> list[tuple[Sensitivity, Matcher]]:
    """Return one matcher of source ids for each level that is stated, the highest level first."""
    return [
        (level, matcher(patterns))
        for level in reversed(SENSITIVITIES)
        if (patterns := [pattern for pattern, stated in levels.items() if stated == level])
    ]
