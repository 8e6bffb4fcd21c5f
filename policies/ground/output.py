"""Writes the output of commands safely: a terminal obeys no text of strangers, and a reader, such
as `head`, may go away before all is written."""

import os
import sys
from collections.abc import Callable

GONE = 0
"""The exit code of a command whose reader went away before the command had its own."""


def printable(text: str) -> str:
    """Return `text` on one line, with unprintable characters escaped: control characters, ends of
    lines and paragraphs, and characters that change the writing direction. A terminal would obey
    them."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def plural(count: int, noun: str) -> str:
    """Write a number with its noun, which is regular: `1 entry`, `2,000 entries`."""
    if count == 1:
        return f"1 {noun}"
    many = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {many}"


def for_a_reader(run: Callable[[], int], gone: int = GONE) -> int:
    """Run a command that writes to standard output, and flush it. Returns the exit code.

    A reader that goes away ends the command without a complaint: with the command's exit code if
    it has one by then, else with `gone`."""
    code = gone
    try:
        code = run()
        if sys.stdout is not None:  # the shell may have closed it
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes its buffer once more at exit, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
