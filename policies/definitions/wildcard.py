"""Matches names against lists of names and patterns. Knows nothing of what the names mean.

`*` matches any run of characters and `?` exactly one. Everything else, `[` too, matches itself, and
case counts (`CONTRACT.md`, Wildcards and empty lists). To match a list without wildcards costs one
set lookup.

`steps` defines what a pattern means. The matcher here and the exact analysis (`policies/analysis`)
are both made from it.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Matcher = Callable[[str], bool]


class Step(NamedTuple):
    """One character that a pattern requires; None if any character will do. With `after_run`, any
    run of characters, even an empty one, may come before it."""

    character: str | None
    after_run: bool


class Steps(NamedTuple):
    """A pattern as it is matched: the steps one after another, and then, with `open_end`, any run
    of characters."""

    steps: tuple[Step, ...]
    open_end: bool


def steps(pattern: str) -> Steps:
    """Return the steps of `pattern`, which define what it matches. Two patterns with equal steps
    match the same names."""
    found: list[Step] = []
    run = False
    for character in pattern:
        if character == "*":
            run = True
            continue
        found.append(Step(None if character == "?" else character, run))
        run = False
    return Steps(tuple(found), run)


def is_pattern(entry: str) -> bool:
    return "*" in entry or "?" in entry


def matcher(entries: Iterable[str]) -> Matcher:
    """Return a function that tells if a name equals or matches an entry of the list."""
    listed = tuple(entries)
    if "*" in listed:
        return _everything  # whatever else is listed
    # One step each, however long the list is: a set for plain names, a tuple for patterns that say
    # only how a name begins, which most do, and one expression for the rest.
    exact = frozenset(entry for entry in listed if not is_pattern(entry))
    patterns = dict.fromkeys(entry for entry in listed if is_pattern(entry))
    prefixes = tuple(entry[:-1] for entry in patterns if _is_prefix(entry))
    rest = [_expression(entry) for entry in patterns if not _is_prefix(entry)]
    if rest:
        search = re.compile("|".join(rest), re.DOTALL).fullmatch
        return lambda name: name in exact or name.startswith(prefixes) or search(name) is not None
    if prefixes:
        return lambda name: name in exact or name.startswith(prefixes)
    return exact.__contains__


def _is_prefix(pattern: str) -> bool:
    """Return whether the pattern's only wildcard is a `*` at its end."""
    return pattern.endswith("*") and not is_pattern(pattern[:-1])


def may_begin(pattern: str, prefix: str) -> bool:
    """Return whether `pattern` can match any name that begins with `prefix`."""
    fixed, star, _ = pattern.partition("*")
    if not star and len(fixed) < len(prefix):
        return False
    # The part after the first `*` never matters: the rest of the name can always satisfy it.
    return all(mine in ("?", its) for mine, its in zip(fixed, prefix, strict=False))


def literal_prefixes(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the text of each entry before its first wildcard, sorted and without duplicates, for
    `shared_prefix`."""
    return tuple(sorted({entry.partition("*")[0].partition("?")[0] for entry in entries}))


def shared_prefix(prefixes: Sequence[str], name: str) -> int:
    """Return the number of leading characters that `name` shares with the closest of the sorted
    prefixes.

    In sorted order the closest prefix is next to where `name` would be inserted, so a binary search
    finds it.
    """
    at = bisect_left(prefixes, name)
    longest = 0
    for each in prefixes[max(0, at - 1) : at + 1]:
        shared = len(each) if name.startswith(each) else _shared(each, name)
        longest = max(longest, shared)
    return longest


def _shared(one: str, other: str) -> int:
    for at, (mine, its) in enumerate(zip(one, other, strict=False)):
        if mine != its:
            return at
    return min(len(one), len(other))


def _everything(_name: str) -> bool:
    return True


def _expression(pattern: str) -> str:
    """Return the pattern as a regular expression in which each run (`*`) but the last is an atomic
    group.

    After a run, the leftmost match of the next piece is as good as any later one. So there is no
    backtracking, and matching a hostile name costs at most pattern length times name length.
    """
    found, open_end = steps(pattern)
    pieces = [""]  # the text between runs
    for step in found:
        if step.after_run:
            pieces.append("")
        pieces[-1] += "." if step.character is None else re.escape(step.character)
    if open_end:
        pieces.append("")
    first, *rest = pieces
    if not rest:
        return f"(?:{first})"
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return f"(?:{first}{middle}.*{rest[-1]})"
