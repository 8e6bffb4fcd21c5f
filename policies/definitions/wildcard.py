"""Whether a name is in a list that may hold wildcards. Knows nothing of what the names mean.

`*` is any run and `?` one character; everything else is itself, `[` too, and case counts
(contract, section 3). A list without wildcards costs one look into a set.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

Matcher = Callable[[str], bool]


def is_pattern(entry: str) -> bool:
    return "*" in entry or "?" in entry


def matcher(entries: Iterable[str]) -> Matcher:
    """A function that says whether a name is an entry of the list or matches one."""
    listed = tuple(entries)
    if "*" in listed:
        return _everything
    exact = frozenset(entry for entry in listed if not is_pattern(entry))
    patterns = [entry for entry in listed if is_pattern(entry)]
    if not patterns:
        return exact.__contains__
    search = re.compile("|".join(_expression(entry) for entry in patterns), re.DOTALL).fullmatch
    return lambda name: name in exact or search(name) is not None


def may_begin(pattern: str, prefix: str) -> bool:
    """Whether any name that begins with `prefix` is the entry `pattern`, or matches it."""
    fixed, star, _ = pattern.partition("*")
    if not star and len(fixed) < len(prefix):
        return False
    # What is behind the first `*` can be had by any beginning: the name may go on as it likes.
    return all(mine in ("?", its) for mine, its in zip(fixed, prefix, strict=False))


def literal_prefixes(entries: Iterable[str]) -> tuple[str, ...]:
    """What each entry says before its first wildcard, sorted: what `shared_prefix` searches."""
    return tuple(sorted({entry.partition("*")[0].partition("?")[0] for entry in entries}))


def shared_prefix(prefixes: Sequence[str], name: str) -> int:
    """How many leading characters `name` shares with the closest of these sorted prefixes.

    In sorted order the closest one stands next to where `name` would be inserted, so a list of any
    length costs a binary search.
    """
    at = bisect_left(prefixes, name)
    return max((_shared(each, name) for each in prefixes[max(0, at - 1) : at + 1]), default=0)


def _shared(one: str, other: str) -> int:
    for at, (mine, its) in enumerate(zip(one, other, strict=False)):
        if mine != its:
            return at
    return min(len(one), len(other))


def _everything(_name: str) -> bool:
    return True


def _expression(pattern: str) -> str:
    """The pattern as a regular expression in which each run but the last is atomic: after `*` the
    leftmost place where the next piece fits is as good as any later one, so nothing is ever tried
    again and a hostile name costs no more than pattern times name."""
    first, *pieces = [_literal(piece) for piece in re.sub(r"\*+", "*", pattern).split("*")]
    if not pieces:
        return f"(?:{first})"
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[:-1])
    return f"(?:{first}{middle}.*{pieces[-1]})"


def _literal(piece: str) -> str:
    return ".".join(re.escape(part) for part in piece.split("?"))
