"""Path patterns of configured routes: `{name}` matches one or more characters of a segment, `**`
zero or more segments; everything else is literal (`CONTRACT.md`, Proxied requests).

Matching takes at most as many steps as the product of the lengths of pattern and path. Pure.
"""

import re
from collections.abc import Sequence
from itertools import chain

NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

_ANY_SEGMENTS = "**"

Values = tuple[str, ...]


class PathPattern:
    """One pattern. `names` are those of its `{names}`, in order."""

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
        """Return the values of the names in `path`; None if the pattern doesn't match. Where there
        is a choice, each wildcard, from left to right, takes as much as it can."""
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
    """One segment of a pattern: literals with names between them."""

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
