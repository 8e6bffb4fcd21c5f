"""Changes documents at random, to compare two judges of them."""

from copy import deepcopy
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 60, 9_999_999, 10_000_000, 1.5, "", "high", "High", "low", "*", "60",
    "x" * 256, "x" * 257, "é" * 256, "a\nb", "a\n", "\x00", "\x7f", "\x85", "\u2028", "😀" * 256,
    [], [None], [1], [""], ["a"], ["a\n"], [["a"]], [{}], ["x" * 257], {}, {"a": "b"},
)  # fmt: skip
"""Replacements of a value: values at the limits of most rules."""


def mutated(document: Any, random: Random, times: int, keys: tuple[str, ...]) -> Any:
    """Return a copy of `document` with `times` changes: a value replaced or moved, a key removed,
    added or renamed. `keys` are names of keys that may appear."""
    changed = deepcopy(document)
    for _ in range(times):
        places = list(_places(changed))
        if not places:
            return random.choice(VALUES)
        within, at = random.choice(places)
        change = random.randrange(5)
        if change == 0:
            within[at] = deepcopy(random.choice(VALUES))
        elif change == 1:
            del within[at]
        elif change == 2:
            other, there = random.choice(places)
            within[at] = deepcopy(other[there])
        elif isinstance(within, dict):
            name = random.choice([*keys, "zzz", str(at).upper()])
            within[name] = within.pop(at) if change == 3 else deepcopy(random.choice(VALUES))
        else:
            within.insert(random.randint(0, len(within)), deepcopy(random.choice(VALUES)))
    return changed


def _places(value: Any) -> Any:
    """Yield every container and key or index in it."""
    if isinstance(value, dict | list):
        for at in value if isinstance(value, dict) else range(len(value)):
            yield value, at
            yield from _places(value[at])
