"""`sluice export`: writes the audit trail to a file that can be verified elsewhere, or with
`--format` only the decisions, one on each line, in a format of security tools. Continues after
broken connections, and shows the progress.

After a break, in this run or in the next one, an export of decisions continues behind the last
whole line: every format states the decision's sequence number. An incomplete last line is cut off.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, TypeVar
from urllib.parse import urlsplit

from deploy.commands.client.client import Client, common, moment
from deploy.commands.client.download import (
    FAULTS,
    PIECE,
    Broken,
    CannotContinue,
    Download,
    PartialFile,
    Readable,
    codings,
    decoded,
    open_private,
)
from policies.ground.clock import ACCEPTED
from policies.ground.log_line import plural
from policies.ground.process.api_client import (
    LOOPBACK,
    ControlApiClient,
    RequestRefused,
    ServiceUnusable,
    UnusableArguments,
    first_line,
)

FORMATS = ("ocsf", "ecs", "cloudevents", "otel", "csv")


class DecisionFile:
    """The file of an export with `--format`: the lines with decisions that have arrived so far.
    `entries` counts the decisions. `next_seq` is the number of the entry to continue with, None
    before the first decision has arrived."""

    def __init__(self, path: Path, form: str) -> None:
        """Open or create the file, and cut off an incomplete last line. `form` is the format.
        Raises `CannotContinue` if the last line is not in this format, and `OSError`."""
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
        """Append the lines of a response. Raises `Broken` if the response ends early; the lines
        that arrived are kept."""
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
        """Sync the file to disk, close it, and rename it to `path`. Raises `OSError`."""
        os.fsync(self._file.fileno())
        self.close()
        self.path.rename(path)

    def close(self) -> None:
        self._file.close()

    def _recover(self) -> None:
        """Count the lines in the file, cut off an incomplete last one, and note the entry to
        continue with."""
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


PATH = "/v1/audit/export"
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""The seconds to wait before each further attempt. The sequence starts again once an attempt has
brought new entries."""
BUSY = 503
SHOWN_EVERY = 0.5

File = TypeVar("File", PartialFile, DecisionFile)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Exports the audit trail, or a part of it, as a file that anyone can verify offline "
        "(`sluice verify`). If the connection breaks, it continues; if the command is interrupted, "
        "the same command continues FILE.part. The file is compressed only on its way."
    )
    common(parser, _export)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    parser.add_argument(
        "--from",
        dest="first",
        type=_place,
        metavar="SEQ|TIME",
        help=f"the first entry (default: the oldest kept), or a time: {ACCEPTED}",
    )
    parser.add_argument(
        "--to",
        dest="until",
        type=_place,
        metavar="SEQ|TIME",
        help="the first entry or time that is left out",
    )
    parser.add_argument(
        "--no-openings",
        action="store_true",
        help="leave out the openings, which hold all personal data of the log",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="the decisions alone, one on each line, in a format of security tools",
    )


def _place(text: str) -> str:
    """Parse the end of a range: the number of an entry, or a time. This is an argparse type."""
    return text if text.isascii() and text.isdecimal() else moment(text)


def _export(client: Client, options: argparse.Namespace) -> int:
    target = Path(options.output)
    if target.exists():
        raise UnusableArguments(f"`{target}` exists: remove it, or name another file")
    part = target.with_name(target.name + ".part")
    progress = Progress(sys.stderr)
    try:
        if options.format is not None:
            return _export_decisions(client, target, part, options, progress)
        return _export_log(client, target, part, options, progress)
    except CannotContinue as problem:
        progress.end()
        print(f"sluice: {problem}", file=sys.stderr)
        return 1
    except OSError as problem:
        raise UnusableArguments(f"`{part}`: {problem.strerror}") from problem


def _export_decisions(
    client: Client, target: Path, part: Path, options: argparse.Namespace, progress: Progress
) -> int:
    file = _complete(
        lambda: DecisionFile(part, options.format),
        lambda file: _download_decisions(client.api, file, options),
        progress,
    )
    file.complete(target)
    text = f"{target}: {plural(file.entries, 'decision')}"
    client.out.document({"file": str(target), "decisions": file.entries}, text)
    return 0


def _download_decisions(
    api: ControlApiClient, file: DecisionFile, options: argparse.Namespace
) -> None:
    asked = {
        "format": options.format,
        "from": options.first if file.next_seq is None else file.next_seq,
        "to": options.until,
        "openings": "none" if options.no_openings else "all",
    }
    with api.stream(PATH, asked, _coding(api)) as response:
        if response.headers.get("Transfer-Encoding") != "chunked":
            # Nothing else says where it ends, and these lines have no last one that does.
            raise Broken("the response's head is cut off, or a proxy has changed it")
        file.receive(decoded(response))


def _export_log(
    client: Client, target: Path, part: Path, options: argparse.Namespace, progress: Progress
) -> int:
    file = _complete(
        lambda: PartialFile(part),
        lambda file: _download(client.api, file, options, progress),
        progress,
    )
    header = file.header
    assert header is not None
    file.complete(target)
    progress.end()
    shown = {"file": str(target), "log": header["log"], "entries": file.entries}
    shown |= {"from": header["from"], "to": header["to"]}
    text = (
        f"{target}: {plural(file.entries, 'entry')} of log {header['log']}, from seq "
        f"{header['from']} up to {header['to']}; `sluice verify {target}` verifies it"
    )
    client.out.document(shown, text)
    return 0


def _complete(
    open_file: Callable[[], File], download: Callable[[File], None], progress: Progress
) -> File:
    """Download into the file that `open_file` opens, reopening it and continuing after each break,
    and return the file. It still lacks its last line and its final name, which `complete` gives it.
    Raises `CannotContinue` after the last pause."""
    pauses = iter(PAUSES)
    while True:
        file = open_file()
        before = file.entries
        try:
            download(file)
            return file
        except (Broken, ServiceUnusable) as problem:
            file.close()
            if isinstance(problem, RequestRefused) and problem.status != BUSY:
                raise
            pauses = iter(PAUSES) if file.entries > before else pauses
            if (pause := next(pauses, None)) is None:
                raise CannotContinue(
                    f"{first_line(problem)}; {plural(file.entries, 'entry')} so far in "
                    f"`{file.path}`: the same command continues"
                ) from problem
            progress.note(f"{first_line(problem)}; continuing in {pause:.0f} s")
            time.sleep(pause)
        except BaseException:
            file.close()
            raise


def _download(
    api: ControlApiClient, file: PartialFile, options: argparse.Namespace, progress: Progress
) -> None:
    continued = file.header is not None
    asked = {"from": options.first, "to": options.until}
    openings = "none" if options.no_openings else "all"
    if file.header is not None:
        if file.header["openings"] != openings:
            raise UnusableArguments(
                f"`{file.path}` was begun with `openings={file.header['openings']}`: remove it, or "
                "name another file"
            )
        asked = {"from": file.next_seq, "to": file.header["to"]}
    with api.stream(PATH, {**asked, "openings": openings}, _coding(api)) as response:
        Download(decoded(response), file, progress.update).run(continued=continued)


def _coding(api: ControlApiClient) -> dict[str, str]:
    # Between processes of one machine, compressing takes longer than sending.
    near = urlsplit(api.url).hostname in LOOPBACK
    return {"Accept-Encoding": "identity" if near else codings()}


class Progress:
    """A line on a terminal that shows how much of the export has arrived. Without a terminal only
    notes, such as that of a broken connection, are printed."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self._terminal = to.isatty()
        self._bytes = 0
        self._started = self._shown = time.monotonic()

    def update(self, file: PartialFile, added: int) -> None:
        """Add `added` to the bytes in the file, and show the progress if there is a terminal, at
        most every half second."""
        self._bytes += added
        now = time.monotonic()
        if not self._terminal or now - self._shown < SHOWN_EVERY or file.header is None:
            return
        self._shown = now
        total = max(1, file.header["to"] - file.header["from"])
        rate = self._bytes / 1e6 / max(0.001, now - self._started)
        share = file.entries * 100 // total
        text = f"{file.entries:,} of {total:,} entries, {share} %, {rate:,.0f} MB/s"
        print(f"\r\x1b[K{text}", end="", file=self._to, flush=True)

    def note(self, text: str) -> None:
        self.end()
        print(f"sluice: {text}", file=self._to)

    def end(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=self._to, flush=True)


__all__ = ["add_arguments"]
