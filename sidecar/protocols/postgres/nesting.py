"""Bounds how deep the parse tree of a text can be, by its tokens alone.

libpg_query writes the tree by recursion, so a tree that is too deep ends the process. The grammar's
own stack stops constructs that nest to the right, but not those that nest to the left: `a || b ||
c`, joins, `UNION`.
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_DEPTH = 1500
"""The largest bound that is accepted. A thread of 1 MiB holds 2,000 levels of subqueries, which
take the most stack."""

_OPEN = frozenset({b"(", b"[", b"case"})
_CLOSE = {b")": b"(", b"]": b"[", b"end": b"case"}
_CHAINS = frozenset({b"join", b"union", b"except", b"intersect"})
# Each ends an expression in the list, clause or condition that it stands in. All are reserved, so
# that none is a name unless it follows a dot.
_ENDS = frozenset({
    b",", b"and", b"or", b"on", b"select", b"from", b"where", b"having", b"union", b"except",
    b"intersect", b"join", b"when", b"then", b"else",
})  # fmt: skip
_OPERATOR = frozenset(b"-+*/<>=~!@#%^&|`?:")
_OPERATORS = frozenset({
    b"collate", b"at", b"is", b"isnull", b"notnull", b"like", b"ilike", b"similar", b"between",
    b"in", b"operator", b"not", b"overlaps",
})  # fmt: skip
_COMMENTS = (b"--", b"/*")
# What binds the parts that `_ENDS` separates: AND, OR, NOT, the clause.
_BINDING = 6


class _Level:
    """What stands between two brackets, or between `CASE` and `END`."""

    __slots__ = ("betweens", "chain", "deepest", "inner", "opened_by", "operators")

    def __init__(self, opened_by: bytes) -> None:
        self.opened_by = opened_by
        self.betweens = 0
        self.chain = 0
        self.deepest = 0
        self.operators = 0
        self.inner = 0

    def end_part(self) -> None:
        self.deepest = max(self.deepest, self.operators + self.inner)
        self.operators = self.inner = 0

    def depth(self) -> int:
        self.end_part()
        return self.chain + self.deepest + _BINDING


def nesting_of(words: Iterable[bytes]) -> int:
    """Return an upper bound of the levels of a text's parse tree. `words` are its tokens, in order
    and in lower case."""
    levels = [_Level(b"")]
    before = b""
    for word in words:
        if word.startswith(_COMMENTS):
            continue  # or it would hide the dot before a name
        level = levels[-1]
        previous, before = before, word
        if previous == b".":
            continue  # a name
        if word in _OPEN:
            levels.append(_Level(word))
        elif word in _CLOSE:
            _close(levels, _CLOSE[word])
        elif word == b";":
            _close_all(levels)
        elif word == b"and" and level.betweens:
            level.betweens -= 1  # that of `a BETWEEN b AND c`, which goes on
        elif previous == b"distinct" and word == b"from":
            pass  # so does `a IS DISTINCT FROM b`
        elif word in _ENDS:
            level.end_part()
            level.chain += word in _CHAINS
        elif word in _OPERATORS or word[0] in _OPERATOR:
            level.operators += 1
            level.betweens += word == b"between"
    _close_all(levels)
    return levels[0].depth()


def _close(levels: list[_Level], opened_by: bytes) -> None:
    """Close the level that `opened_by` began, and what is still open inside it. A closing word
    without it, such as `END` for `COMMIT`, closes nothing."""
    if opened_by == b"case":
        if levels[-1].opened_by == opened_by:
            _join_last(levels)
        return
    while len(levels) > 1:
        closed = levels[-1].opened_by
        _join_last(levels)
        if closed != b"case":
            return


def _close_all(levels: list[_Level]) -> None:
    while len(levels) > 1:
        _join_last(levels)


def _join_last(levels: list[_Level]) -> None:
    depth = levels.pop().depth()
    levels[-1].inner = max(levels[-1].inner, depth)
