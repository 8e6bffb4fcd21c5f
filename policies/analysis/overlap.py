"""Whether entries can match the same name. Knows nothing of what the names mean."""

from collections.abc import Iterable
from functools import lru_cache

from policies.analysis.intersection import meet
from policies.definitions.wildcard import Matcher, is_pattern, matcher


def overlaps_with(others: Iterable[str]) -> Matcher:
    """A function that says whether an entry can match a name which one of `others` matches."""
    listed = tuple(others)
    matches = matcher(listed)

    def overlaps(entry: str) -> bool:
        if is_pattern(entry):
            return any(_overlap(entry, each) for each in listed)
        return matches(entry)

    return overlaps


@lru_cache(maxsize=1 << 16)
def _overlap(one: str, other: str) -> bool:
    # The work is bounded by the product of both lengths, so that it needs no budget.
    return meet(one, other, lambda _steps: None)
