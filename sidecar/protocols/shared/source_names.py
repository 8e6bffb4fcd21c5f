"""Names sources: the ids that policies use, plain names from the configuration or `<kind>://<alias>/…`
(`protocols/RULES.md`, Source ids), and the level that the settings give to an id.

A request through a proxy shows more than an id, such as its method, and has its level from its
route. For calls that name the source themselves, each id gets the highest level that some request
to it has:

    a name of `names`, and the plain name that it gives     the level stated there
    an id of a rule in `routes`                             the highest of the rules that it fits
    any other id of the source, and the source as a whole   the source's `sensitivity`

Pure.
"""

from collections.abc import Iterable

from policies.definitions.model import Sensitivity
from policies.levels import LevelLookup, highest
from sidecar.http.request_target import encode_segment
from sidecar.protocols.messages import SourceRef
from sidecar.protocols.shared.path_pattern import PathPattern
from sidecar.settings.model import RestRule, Source


class SourceNames:
    """The names of one configured source."""

    def __init__(self, source: Source) -> None:
        # INVARIANT: the alias comes from the configuration, never from a header: `Host` and
        # `X-Forwarded-…` are the agent's to choose (`protocols/RULES.md`, Source ids).
        self._names = source.names
        self._level = source.sensitivity
        self._root = f"{source.kind}://{source.alias}"
        self.whole = SourceRef(self._root, source.sensitivity)
        """The data source as a whole, where nothing more specific is known."""

    def of(self, *segments: str) -> SourceRef:
        """Return the source with these name segments."""
        # Encoded, so that a `/` inside a segment can't be mistaken for a separator.
        return self.named(self._root + "/" + "/".join(map(encode_segment, segments)))

    def below(self, *segments: str) -> tuple[SourceRef, tuple[SourceRef, ...]]:
        """Return the prefix of the ids of all sources below these name segments, and the sources
        among them that the configuration gives a plain name."""
        start = self._root + "/" + "".join(f"{encode_segment(each)}/" for each in segments)
        named = (known for name, known in self._names.items() if name.startswith(start))
        refs = tuple(SourceRef(known.source_id, known.sensitivity) for known in named)
        return SourceRef(start, self._level), refs

    def of_path(self, path: str, level: Sensitivity | None = None) -> SourceRef:
        """Return the source of a canonical path."""
        return self.named(self._root + path, level)

    def named(self, source_id: str, level: Sensitivity | None = None) -> SourceRef:
        """Return the source `source_id`, or the plain name that the configuration gives it."""
        named = self._names.get(source_id)
        if named is not None:
            return SourceRef(named.source_id, named.sensitivity)
        return SourceRef(source_id, level or self._level)


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
