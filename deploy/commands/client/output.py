"""Prints results: aligned tables for people, JSON for programs. Also creates the file that a
command writes a secret or a report to, before the command sends its request.

Text from the server has many authors, and a terminal obeys control characters. Tables therefore
show control characters as escapes, and JSON is ASCII.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from policies.ground.process.api_client import UnusableArguments

BOLD, RED = "1", "31"
ALARMING = frozenset({"DENY", "suspended", "revoked"})

Columns = Sequence[tuple[str, str]]
"""The columns of a table: for each one its heading, and the field of a row that it shows."""


class Output:
    """Prints to standard output, as text or as JSON."""

    def __init__(self, *, as_json: bool, environ: Mapping[str, str]) -> None:
        self._json = as_json
        self._file: TextIO = sys.stdout
        # https://no-color.org: any value that is not empty turns colours off.
        self._colours = self._file.isatty() and not environ.get("NO_COLOR")

    @property
    def as_json(self) -> bool:
        return self._json

    def document(self, value: object, text: str) -> None:
        """Print a response: `value` as JSON if `--json` is given, else `text`."""
        self._print(as_json(value) if self._json else safe(text))

    def members(self, value: Mapping[str, Any]) -> None:
        """Print one object, with a line for each of its fields."""
        if self._json:
            self._print(as_json(value))
            return
        width = max((len(key) for key in value), default=0)
        for key, each in value.items():
            self._print(f"{self._paint(BOLD, f'{safe(key):<{width}}')}  {cell(each)}")

    def rows(self, pages: Iterable[list[dict[str, Any]]], columns: Columns) -> None:
        """Print a list as one JSON array or one table. Only one page is held in memory at a
        time."""
        if self._json:
            self._array(pages)
            return
        table = TextTable(columns)
        for page in pages:
            self.page(table, page)
        self.page(table, [])

    def page(self, table: TextTable, rows: list[dict[str, Any]]) -> None:
        """Print further rows of a list that is still growing: as lines of `table`, or as one JSON
        document on each line."""
        if self._json:
            for row in rows:
                self._print(as_json(row))
            return
        for number, line in enumerate(table.lines(rows)):
            # Colour the padded line: padding would count the escapes as text.
            heading = table.headed and number == 0
            self._print(self._paint(BOLD, line) if heading else self._highlight(line))
        table.headed = False

    def _array(self, pages: Iterable[list[dict[str, Any]]]) -> None:
        # Print row by row, so that a long list never has all its rows in memory.
        before = "["
        for page in pages:
            for row in page:
                self._print(before + as_json(row), end="")
                before = ",\n"
        self._print("[]" if before == "[" else "]")

    def _highlight(self, line: str) -> str:
        if not self._colours:
            return line  # a pipe gets the plain text
        return "".join(
            self._paint(RED, part) if part in ALARMING else part for part in _words(line)
        )

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text

    def _print(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=self._file, flush=True)


class TextTable:
    """Formats rows as text below a line of headings. Each column is as wide as its widest cell so
    far."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._widths = [len(heading) for heading, _ in columns]
        self.headed = False
        self._begun = False

    def lines(self, rows: list[dict[str, Any]]) -> list[str]:
        """Return `rows` as lines of text. The first call puts the headings before them."""
        cells = [[cell(row.get(member)) for _, member in self._columns] for row in rows]
        if not self._begun:
            cells.insert(0, [heading for heading, _ in self._columns])
            self._begun = self.headed = True
        for row in cells:
            # Printed rows can't be widened any more; the widths hold for this and later pages.
            self._widths = [
                max(width, wide(text)) for width, text in zip(self._widths, row, strict=True)
            ]
        return [self._line(row) for row in cells]

    def _line(self, row: list[str]) -> str:
        padded = (
            text + " " * (width - wide(text)) for text, width in zip(row, self._widths, strict=True)
        )
        return "  ".join(padded).rstrip()


def as_json(value: object) -> str:
    """Return a value as ASCII JSON without control characters. `json` escapes all of these except
    DEL, which is escaped here."""
    return json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f")


def cell(value: object) -> str:
    """Format a value of an API response as text on one line: `-` for an empty value, `yes` or `no`
    for a boolean."""
    if value is None or value in ([], ""):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return safe(", ".join(value))
    return safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def safe(text: str) -> str:
    """Return `text` with unprintable characters escaped: control characters, line and paragraph
    separators, and characters that change the writing direction."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def wide(text: str) -> int:
    """Return the number of columns that `text` occupies on a terminal."""
    # Combining marks take no column, and East Asian wide characters two.
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def _words(line: str) -> list[str]:
    """Split the line into its words and the spaces between them; joined again, they give the same
    line."""
    parts: list[str] = []
    for index, word in enumerate(line.split(" ")):
        parts += [" ", word] if index else [word]
    return parts


@contextlib.contextmanager
def new_file(name: str | None) -> Iterator[int | None]:
    """Create an empty file that only its owner may read, and yield it open for writing; yield None
    if `name` is None. The file is removed at the end if nothing was written. Raises
    `UnusableArguments` if the file exists already, or can't be created."""
    if name is None:
        yield None
        return
    try:
        # O_EXCL: an existing file may be open to others, or hold what is still needed.
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UnusableArguments(f"`{name}` can't be created: {error.strerror}") from error
    try:
        yield file
    finally:
        # What was written stays, whatever failed afterwards.
        if not os.fstat(file).st_size:
            Path(name).unlink(missing_ok=True)
        os.close(file)
