"""`sluice policy fmt`: rewrites policy files in one layout, in place, and keeps their comments.

A file is replaced only if the loader reads the same values from the new text, and if the new text
has the same comments. A comment at the end of a line belongs to the entry that ends there. A
comment on a line of its own belongs to the entry below it, or to the end of the block that it is
indented like.

Not `ruamel.yaml`: it ties a comment to the key before it, so that sorting keys moves comments to
other keys.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deploy.commands.policy.layout import (
    BREAK,
    Collection,
    Entry,
    Scalar,
    Schema,
    parse,
    render,
    walk,
)
from deploy.commands.policy.schema import kind_of, schema
from deploy.commands.policy.sources import Unusable
from deploy.commands.policy.text import AddCommand
from policies.definitions.definition import DefinitionFaults, LoadError, Node, printable
from policies.definitions.load import parse_tree, read_text
from policies.definitions.policy_files import leads_inside

_LINE = re.compile("[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029])?")


class Comment(NamedTuple):
    """A comment and its place in the text, or a blank line, whose `text` is empty. `at` is its
    offset, `line` and `column` count from 0."""

    text: str
    at: int
    line: int
    column: int
    alone: bool
    """True if nothing else stands on the comment's line."""


def comments(text: str, tree: Collection) -> Iterator[Comment]:
    """Yield the comments and blank lines of `text`, in order. `tree` is the parsed text, which
    tells where a `#` belongs to a value."""
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
    """Return whether the `#` at offset `at` is part of the value `scalar`. On the line of a block
    scalar's header (`|` or `>`) it begins a comment instead."""
    if scalar is None:
        return False
    header = BREAK.search(text, scalar.start, at) is None and text[at - 1] in " \t"
    return not (scalar.block and header)


def attach(text: str, tree: Collection) -> None:
    """Attach each comment of `text` to the entry or collection of `tree` that it belongs to."""
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
        """Yield the collections that contain the entry, the innermost first."""
        parent = self._parents[id(entry)]
        yield parent
        while parent is not self._tree:
            parent = self._parents[id(self._owners[id(parent)])]
            yield parent


def _holds(block: Collection, outer: Collection | None, comment: Comment) -> bool:
    """Return whether a comment after the last entry of `block` still belongs to `block`, judged by
    its indentation; `outer` is the collection around it."""
    if block.flow:
        return block.start < comment.at < block.end
    # The items of a list may stand in the column of the keys around it.
    as_key = outer is not None and not outer.flow and outer.column == block.column
    if as_key and not comment.text.lstrip("# ").startswith("-"):
        return False
    return bool(block.entries) and block.column <= comment.column


class Unformattable(Exception):
    """a file that can't be laid out without a change of its meaning; it stays as it is"""


def read(path: Path) -> str:
    """Read a file's text, without a byte order mark. Raises `LoadError`."""
    faults = DefinitionFaults(str(path))
    text = read_text(path, faults)
    if text is None:
        raise LoadError(faults.found)
    return text


def formatted(text: str, schema: Schema, file: str) -> str:
    """Return the text of a file in the standard layout. Raises `LoadError` if the loader can't read
    the file, and `Unformattable` if the layout would change its values or lose a comment."""
    before = _values(text, file)
    foreign = set(before) - set(schema["properties"]) if isinstance(before, dict) else {"it"}
    if foreign:
        raise Unformattable(f"{file}: is not a file of the kind `{schema['title']}`")
    tree = parse(text)
    kept = _comments(text, tree)
    attach(text, tree)
    end = "\r\n" if "\r\n" in text else "\n"
    after = "".join(line + end for line in render(tree, schema))
    if _values(after, file) != before or _comments(after, parse(after)) != kept:
        raise Unformattable(f"{file}: can't be laid out without a change of its meaning")
    return after


def _comments(text: str, tree: Collection) -> list[str]:
    return sorted(each.text for each in comments(text, tree) if each.text)


def _values(text: str, file: str) -> Any:
    faults = DefinitionFaults(file)
    try:
        tree = parse_tree(text, faults)
    except DefinitionFaults.TooManyFaults:
        tree = None
    if tree is None or faults.found:
        raise LoadError(faults.found)
    return _without_lines(tree)


def _without_lines(node: Node) -> Any:
    if node.tag == "map":
        return {key: _without_lines(each) for key, each in node.value.items()}
    if node.tag == "list":
        return [_without_lines(each) for each in node.value]
    return (node.tag, None if node.tag == "null" else node.value)


def replace(path: Path, text: str) -> None:
    """Replace a file's content with `text` atomically: a reader sees the old content or the new
    one. A symbolic link stays a link, and the mode stays."""
    target = path.resolve()
    mode = target.stat().st_mode & 0o7777
    # Hidden, so that a service that watches the folder ignores it.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    made = Path(name)
    try:
        with open(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        made.chmod(mode)
        made.replace(target)
    except BaseException:
        made.unlink()
        raise


def add(add_command: AddCommand) -> None:
    """Add the command `fmt`. Its exit codes: 0, or 1 if `--check` finds a file that it would
    change."""
    command = add_command("fmt", "lay out policy, test and guardrail files in one way")
    command.add_argument(
        "path", metavar="PATH", nargs="?", default=Path(), type=Path, help="a file or a directory"
    )
    command.add_argument("--check", action="store_true", help="only say what would change")
    command.set_defaults(run=_fmt)


def _fmt(options: argparse.Namespace) -> int:
    changed, wrong = 0, 0
    word = "would change" if options.check else "changed"
    for path in _files(options.path):
        try:
            text = read(path)
            after = formatted(text, json.loads(schema(kind_of(path))), str(path))
        except (LoadError, Unformattable) as error:
            # The other files are laid out all the same.
            print(f"sluice policy: {error}", file=sys.stderr)
            wrong += 1
            continue
        if after == text:
            continue
        if not options.check:
            replace(path, after)
        print(f"{word}: {printable(str(path))}")
        changed += 1
    return 2 if wrong else int(options.check and changed > 0)


def _files(path: Path) -> Iterable[Path]:
    if path.is_dir():
        # Hidden ones are not policies: editors' copies, and `..data` of a mounted ConfigMap.
        # Nor are links out of the tree: a command that is given a folder writes nowhere else.
        return sorted(
            each
            for each in path.rglob("*.yaml")
            if not any(part.startswith(".") for part in each.relative_to(path).parts)
            and leads_inside(each, path.resolve())
        )
    if not path.exists():
        raise Unusable(f"`{path}` does not exist")
    return [path]
