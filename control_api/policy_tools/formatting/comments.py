"""Gives each comment and blank line of a file to the entry that it is about.

A comment at the end of a line belongs to what ends there; one on a line of its own to the entry
below it, or to the end of the block that it is indented like.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from control_api.policy_tools.formatting.source import BREAK, Collection, Entry, Scalar, walk

_LINE = re.compile("[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029])?")


class Comment(NamedTuple):
    """A comment and its place; without text it is a blank line."""

    text: str
    at: int
    line: int
    column: int
    alone: bool
    """Whether nothing else is on its line."""


def comments(text: str, tree: Collection) -> Iterator[Comment]:
    """The comments and blank lines of `text`, in order."""
    scalars = sorted(
        (each for entry, _ in walk(tree) for each in entry.scalars()), key=lambda each: each.start
    )
    starts = [each.start for each in scalars]

    def around(at: int) -> Scalar | None:
        last = bisect_right(starts, at) - 1
        return scalars[last] if last >= 0 and at < scalars[last].end else None

    for number, match in enumerate(_LINE.finditer(text)):
        begin, line = match.start(), match.group().rstrip()
        at = text.find("#", begin, begin + len(line))
        while at >= 0 and _is_text(at, around(at), text):
            at = text.find("#", at + 1, begin + len(line))
        if at >= 0:
            alone = not text[begin:at].strip()
            yield Comment(text[at : begin + len(line)], at, number, at - begin, alone)
        elif match.group() and not line and around(begin) is None:
            yield Comment("", begin, number, 0, True)


def _is_text(at: int, scalar: Scalar | None, text: str) -> bool:
    """Whether the `#` at `at` is part of a scalar. Behind the `|` of a block it begins a
    comment."""
    if scalar is None:
        return False
    header = BREAK.search(text, scalar.start, at) is None and text[at - 1] in " \t"
    return not (scalar.block and header)


def attach(text: str, tree: Collection) -> None:
    """Give each comment of `text` to an entry or collection of its `tree`."""
    _Attachment(tree).attach(list(comments(text, tree)))


class _Attachment:
    def __init__(self, tree: Collection) -> None:
        self._tree = tree
        pairs = list(walk(tree))
        # Sorted is stable: of those that begin at one place, the outermost comes first.
        self._entries = sorted((entry for entry, _ in pairs), key=lambda entry: entry.start)
        self._starts = [entry.start for entry in self._entries]
        self._ending: dict[int, list[Entry]] = {}
        for entry in self._entries:
            self._ending.setdefault(entry.last_line, []).append(entry)
        self._parents = {id(entry): parent for entry, parent in pairs}
        self._owners = {
            id(entry.value): entry for entry, _ in pairs if isinstance(entry.value, Collection)
        }

    def attach(self, found: list[Comment]) -> None:
        blank: list[Comment] = []
        for each in found:
            if not each.text:
                blank.append(each)
                continue
            lines = self._above_or_below(each) if each.alone else self._beside(each)
            # A blank line belongs to what is below it: the comment, or an entry before the comment.
            for empty in blank:
                after = self._next(empty)
                between = after is not None and after.start < each.at
                (after.above if after is not None and between else lines).append("")
            blank = []
            lines.append(each.text)
        for empty in blank:
            after = self._next(empty)
            if after is not None:
                after.above.append("")

    def _next(self, comment: Comment) -> Entry | None:
        at = bisect_right(self._starts, comment.at)
        return self._entries[at] if at < len(self._entries) else None

    def _beside(self, comment: Comment) -> list[str]:
        ended = [each for each in self._ending.get(comment.line, ()) if each.end <= comment.at]
        if ended:
            # Of those that end at one place, the innermost is the last.
            last = max(each.end for each in ended)
            return [each for each in ended if each.end == last][-1].beside
        at = bisect_right(self._starts, comment.at) - 1
        # `policies:  # all of them` has begun on this line, and ends later.
        if at >= 0 and self._starts[at] >= comment.at - comment.column:
            return self._entries[at].beside
        after = self._next(comment)
        return self._tree.below if after is None else after.above

    def _above_or_below(self, comment: Comment) -> list[str]:
        after = self._next(comment)
        open_after = set() if after is None else {id(each) for each in self._around(after)}
        at = bisect_right(self._starts, comment.at) - 1
        if at >= 0:
            before = self._entries[at]
            inner = [before.value] if isinstance(before.value, Collection) else []
            around = (*inner, *self._around(before))
            for each, outer in zip(around, (*around[1:], None), strict=True):
                if id(each) in open_after:
                    break
                if _holds(each, outer, comment):
                    return each.below if each.entries else self._owners[id(each)].above
        return self._tree.below if after is None else after.above

    def _around(self, entry: Entry) -> Iterator[Collection]:
        """The collections that the entry is in, from the inside."""
        parent = self._parents[id(entry)]
        yield parent
        while parent is not self._tree:
            parent = self._parents[id(self._owners[id(parent)])]
            yield parent


def _holds(block: Collection, outer: Collection | None, comment: Comment) -> bool:
    """Whether a comment behind the last entry of `block` is in it still."""
    if block.flow:
        return block.start < comment.at < block.end
    # The items of a list may stand in the column of the keys around it.
    as_key = outer is not None and not outer.flow and outer.column == block.column
    if as_key and not comment.text.lstrip("# ").startswith("-"):
        return False
    return bool(block.entries) and block.column <= comment.column
