"""The level that the settings give to a source id, for calls that name the source themselves.

A request through a proxy shows more than an id, such as its method, and has its level from its
route. Here each id gets the highest level that some request to it has:

    a name of `names`, and the plain name that it gives     the level stated there
    an id of a rule in `routes`                             the highest of the rules that it fits
    any other id of the source, and the source as a whole   the source's `sensitivity`

Pure.
"""

from collections.abc import Iterable

from policies.definitions.model import Sensitivity
from policies.levels import LevelLookup, highest
from sidecar.protocols.shared.path_pattern import PathPattern
from sidecar.settings.model import RestRule, Source


class ConfiguredLevels(LevelLookup):
    """The levels of all configured sources; None for an id that the settings don't know."""

    def __init__(self, sources: Iterable[Source]) -> None:
        super().__init__()
        self._sources = [_SourceLevel(each) for each in sources]

    def _find(self, source_id: str) -> Sensitivity | None:
        found: Sensitivity | None = None
        for source in self._sources:
            found = highest(found, source.level(source_id))
        return found


class _SourceLevel:
    """The levels of one source."""

    def __init__(self, source: Source) -> None:
        self._level = source.sensitivity
        self._root = f"{source.kind}://{source.alias}"
        self._named: dict[str, Sensitivity] = {}
        for name, named in source.names.items():
            for each in (name, named.source_id):
                known = highest(self._named.get(each), named.sensitivity)
                self._named[each] = known or named.sensitivity
        self._rules = [_Rule(self._root, rule, source.sensitivity) for rule in source.routes]

    def level(self, source_id: str) -> Sensitivity | None:
        if (named := self._named.get(source_id)) is not None:
            return named
        found: Sensitivity | None = None
        for rule in self._rules:
            if rule.fits(source_id):
                found = highest(found, rule.level)
        if found is None and (source_id == self._root or source_id.startswith(self._root + "/")):
            return self._level
        return found


class _Rule:
    """The ids that requests which a rule covers can have."""

    def __init__(self, root: str, rule: RestRule, level: Sensitivity) -> None:
        self.level = rule.sensitivity or level
        # Without an id of its own, a request's id is the source's root and the path.
        self._prefix = root if rule.source_id is None else ""
        self._pattern = PathPattern(rule.path if rule.source_id is None else f"/{rule.source_id}")

    def fits(self, source_id: str) -> bool:
        if not source_id.startswith(self._prefix):
            return False
        path = source_id.removeprefix(self._prefix) if self._prefix else f"/{source_id}"
        return path.startswith("/") and self._pattern.match(path) is not None
