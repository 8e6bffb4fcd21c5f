"""Names sources: makes the ids that policies use, which are plain names from the configuration or
`<kind>://<alias>/…` (`protocols/RULES.md`, Source ids). Also finds the sensitivity level that the
settings give to an id.

For calls that name the source themselves, each id gets the highest level that some request to it
has:

    a name of `names`, and the plain name that it gives     the level stated there
    an id of a rule in `routes`                             the highest of the rules that it fits
    any other id of the source, and the source as a whole   the source's `sensitivity`
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain

from policies.definitions.model import RANK, Sensitivity
from policies.levels import LevelLookup, highest
from sidecar.http.request_target import encode_segment
from sidecar.protocols.protocol import SourceRef
from sidecar.settings.model import Source

NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

_ANY_SEGMENTS = "**"

Values = tuple[str, ...]


class PathPattern:
    def __init__(self, pattern: str) -> None:
        self.names: list[str] = NAME.findall(pattern)
        # The runs of segments around each `**`: the first begins the path, the last ends it.
        runs: list[list[_Segment]] = [[]]
        for segment in pattern[1:].split("/"):
            if segment == _ANY_SEGMENTS:
                runs.append([])
            else:
                runs[-1].append(_Segment(segment))
        self._first, *self._others = runs

    def match(self, path: str) -> Values | None:
        """Return the values that the pattern's names have in `path`; None if the pattern doesn't
        match. Where there is a choice, each wildcard, from left to right, takes as much as it
        can."""
        # The caller chooses the path, so nothing here backtracks, as a regular expression with
        # several wildcards would.
        segments = path[1:].split("/")
        if not self._others:
            return _values(self._first, segments)
        *inner, last = self._others
        start, end = len(self._first), len(segments) - len(last)
        if end < start:
            return None
        found = [_values(last, segments[end:])]
        for run in reversed(inner):
            # INVARIANT: each run is placed as far to the right as it fits. That leaves the most
            # room for those before it, so no placement ever has to be reconsidered.
            at = end - len(run)
            while at >= start and (values := _values(run, segments[at : at + len(run)])) is None:
                at -= 1
            if at < start:
                return None
            found.append(values)
            end = at
        found.append(_values(self._first, segments[:start]))
        return None if None in found else tuple(chain.from_iterable(filter(None, reversed(found))))


class _Segment:
    """One segment of a pattern: literal text with `{names}` in between."""

    def __init__(self, text: str) -> None:
        self._literals = NAME.split(text)[::2]

    def match(self, segment: str) -> Values | None:
        first, *others = self._literals
        if not others:
            return () if segment == first else None
        *inner, last = others
        start, end = len(first), len(segment) - len(last)
        if end <= start or not segment.startswith(first) or not segment.endswith(last):
            return None
        values: list[str] = []
        for literal in reversed(inner):
            # As far to the right as it fits, like the runs above. Each name needs one character.
            at = segment.rfind(literal, start + 1, end - 1)
            if at < 0:
                return None
            values.append(segment[at + len(literal) : end])
            end = at
        return (segment[start:end], *reversed(values))


def _values(run: Sequence[_Segment], segments: Sequence[str]) -> Values | None:
    if len(run) != len(segments):
        return None
    values: Values = ()
    for pattern, segment in zip(run, segments, strict=True):
        found = pattern.match(segment)
        if found is None:
            return None
        values += found
    return values


class SourceNames:
    def __init__(self, source: Source) -> None:
        # INVARIANT: the alias comes from the configuration, never from a header: `Host` and
        # `X-Forwarded-…` are the agent's to choose (`protocols/RULES.md`, Source ids).
        self._names = source.names
        self._level = source.sensitivity
        self._root = f"{source.kind}://{source.alias}"
        self.whole = SourceRef(self._root, source.sensitivity)
        """The data source as a whole, used where nothing more specific is known."""
        # Each document may have a level of its own, and any of them may be the most sensitive one.
        level = "critical" if source.sensitivity_field is not None else _highest_level(source)
        self.whole_at_highest = self.whole._replace(sensitivity=level)
        """The data source as a whole, at the highest level of anything in it."""

    def of(self, *segments: str) -> SourceRef:
        # Encoded, so that a `/` inside a segment can't be mistaken for a separator.
        return self.named(self._root + "/" + "/".join(map(encode_segment, segments)))

    def below(self, *segments: str) -> tuple[SourceRef, tuple[SourceRef, ...]]:
        """Return the common prefix of the ids of all sources below these name segments, as a
        source; and the sources among them that the configuration gives a plain name instead."""
        start = self._root + "/" + "".join(f"{encode_segment(each)}/" for each in segments)
        named = (known for name, known in self._names.items() if name.startswith(start))
        refs = tuple(SourceRef(known.source_id, known.sensitivity) for known in named)
        return SourceRef(start, self._level), refs

    def of_path(self, path: str, level: Sensitivity | None = None) -> SourceRef:
        return self.named(self._root + path, level)

    def named(self, source_id: str, level: Sensitivity | None = None) -> SourceRef:
        """Return the source with the id `source_id`, or under the plain name that the configuration
        gives it. `level` is its sensitivity if the configuration gives it none."""
        named = self._names.get(source_id)
        if named is not None:
            return SourceRef(named.source_id, named.sensitivity)
        return SourceRef(source_id, level or self._level)


def _highest_level(source: Source) -> Sensitivity:
    levels = [source.sensitivity, *(named.sensitivity for named in source.names.values())]
    levels += [rule.sensitivity for rule in source.routes if rule.sensitivity is not None]
    return max(levels, key=RANK.__getitem__)


class ConfiguredLevels(LevelLookup):
    """Finds the sensitivity level of a source id in the settings of all sources; None for an id
    that the settings don't know."""

    def __init__(self, sources: Iterable[Source]) -> None:
        super().__init__()
        self._sources = [_SourceLevel(each) for each in sources]

    def _find(self, source_id: str) -> Sensitivity | None:
        found: Sensitivity | None = None
        for source in self._sources:
            found = highest(found, source.level(source_id))
        return found


class _SourceLevel:
    def __init__(self, source: Source) -> None:
        self._level = source.sensitivity
        root = self._root = f"{source.kind}://{source.alias}"
        self._named: dict[str, Sensitivity] = {}
        for name, named in source.names.items():
            for each in (name, named.source_id):
                known = highest(self._named.get(each), named.sensitivity)
                self._named[each] = known or named.sensitivity
        # Without an id of its own, a request's id is the source's root and the path.
        self._rules = [
            (each.sensitivity or self._level, PathPattern(f"/{each.source_id or root + each.path}"))
            for each in source.routes
        ]

    def level(self, source_id: str) -> Sensitivity | None:
        if (named := self._named.get(source_id)) is not None:
            return named
        found: Sensitivity | None = None
        for level, pattern in self._rules:
            if pattern.match(f"/{source_id}") is not None:
                found = highest(found, level)
        if found is None and (source_id == self._root or source_id.startswith(self._root + "/")):
            return self._level
        return found
