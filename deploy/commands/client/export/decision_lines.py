"""`sluice export --format`: the decisions alone, a line each, into `FILE.part`.

After a break, in this run or in the next, the export continues behind the last whole line: its
sequence number is in it, in whatever format. Half a line is cut off. Knows no HTTP but a body.
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

from deploy.commands.client.export.download import (
    FAULTS,
    PIECE,
    Broken,
    CannotContinue,
    Readable,
    open_private,
)

FORMATS = ("ocsf", "ecs", "cloudevents", "otel", "csv")


class DecisionFile:
    """The lines that have arrived. `next_seq` is the entry to continue with, None before the first
    line; `entries` counts the decisions."""

    def __init__(self, path: Path, form: str) -> None:
        """Opens the file, and cuts off half a line. Raises `CannotContinue` if its last line is not
        of this format, and `OSError`."""
        self.path = path
        self.next_seq: int | None = None
        self.entries = 0
        self._form = form
        self._file = open_private(path)
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    def receive(self, body: Readable) -> None:
        """Add the lines of a response. Raises `Broken` if it ends early: what arrived is kept."""
        first = self.next_seq is None
        rest = b""
        try:
            while piece := body.read1(PIECE):
                lines, feed, rest = (rest + piece).rpartition(b"\n")
                if not first and self._form == "csv" and feed:
                    lines, first = lines.partition(b"\n")[2], True  # its header is there already
                self._file.write(lines + feed if lines else b"")
        except FAULTS as error:
            raise Broken(getattr(error, "strerror", None) or str(error) or "cut off") from error
        finally:
            self._file.flush()
            self._recover()
        if rest:
            raise Broken("the response ended within a line")

    def complete(self, path: Path) -> None:
        """Give the file its name, once it is on disk. Raises `OSError`."""
        os.fsync(self._file.fileno())
        self.close()
        self.path.rename(path)

    def close(self) -> None:
        self._file.close()

    def _recover(self) -> None:
        """Find out what the file holds."""
        self._file.seek(0)
        kept = lines = 0
        last = b""
        for line in self._file:
            if line.endswith(b"\n"):
                kept, lines, last = kept + len(line), lines + 1, line
        self._file.truncate(kept)
        self.entries = max(0, lines - (self._form == "csv"))
        if self.entries:
            self.next_seq = _seq(last, self._form, self.path) + 1


def _seq(line: bytes, form: str, path: Path) -> int:
    try:
        if form == "csv":
            return int(next(csv.reader([line.decode()]))[1])
        found: Any = json.loads(line)
        if form == "otel":
            values = {each["key"]: each["value"] for each in found["attributes"]}
            return int(values["sluice.seq"]["intValue"])
        member, name = _SEQ[form]
        return int(found[member][name])
    except (ValueError, LookupError, TypeError, StopIteration):
        raise CannotContinue(
            f"the last line of `{path}` is no decision in the format `{form}`: remove the file to "
            "start again"
        ) from None


_SEQ = {
    "ocsf": ("metadata", "sequence"),
    "ecs": ("event", "sequence"),
    "cloudevents": ("data", "seq"),
}
