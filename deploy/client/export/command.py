"""`sluice export`: asks for the file, continues after broken connections, and reports."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from deploy.client.client import Client, common
from deploy.client.connection import LOOPBACK, ApiConnection, ApiUnreachable, RequestRefused
from deploy.client.credentials import UnusableArguments
from deploy.client.export.download import Broken, Download, codings, decoded
from deploy.client.export.partial_file import CannotContinue, PartialFile

PATH = "/v1/audit/export"
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before each further attempt. They begin anew once an attempt brought entries."""
BUSY = 503
SHOWN_EVERY = 0.5


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
        metavar="SEQ|TIME",
        help="the first entry, or a time such as 2026-01-31T00:00:00Z (default: the oldest kept)",
    )
    parser.add_argument(
        "--to", dest="until", metavar="SEQ|TIME", help="the first entry or time that is left out"
    )
    parser.add_argument(
        "--no-openings",
        action="store_true",
        help="leave out the openings, which hold all personal data of the log",
    )


def _export(client: Client, options: argparse.Namespace) -> int:
    target = Path(options.output)
    if target.exists():
        raise UnusableArguments(f"`{target}` exists: remove it, or name another file")
    part = target.with_name(target.name + ".part")
    progress = Progress(sys.stderr)
    try:
        file = _complete(client.api, part, options, progress)
        header = file.header
        assert header is not None
        file.complete(target)
    except CannotContinue as problem:
        progress.end()
        print(f"sluice: {problem}", file=sys.stderr)
        return 1
    except OSError as problem:
        raise UnusableArguments(f"`{part}`: {problem.strerror}") from problem
    progress.end()
    shown = {"file": str(target), "log": header["log"], "entries": file.entries}
    shown |= {"from": header["from"], "to": header["to"]}
    text = (
        f"{target}: {file.entries} entries of log {header['log']}, from seq {header['from']} up to "
        f"{header['to']}; `sluice verify {target}` verifies it"
    )
    client.out.document(shown, text)
    return 0


def _complete(
    api: ApiConnection, part: Path, options: argparse.Namespace, progress: Progress
) -> PartialFile:
    """The file with all its lines but the last."""
    pauses = iter(PAUSES)
    while True:
        file = PartialFile(part)
        before = file.entries
        try:
            _download(api, file, options, progress)
            return file
        except (Broken, ApiUnreachable, RequestRefused) as problem:
            file.close()
            if isinstance(problem, RequestRefused) and problem.status != BUSY:
                raise
            pauses = iter(PAUSES) if file.entries > before else pauses
            if (pause := next(pauses, None)) is None:
                raise CannotContinue(
                    f"{problem}; {file.entries} entries are in `{part}`: the same command continues"
                ) from problem
            progress.note(f"{problem}; continuing in {pause:.0f} s")
            time.sleep(pause)
        except BaseException:
            file.close()
            raise


def _download(
    api: ApiConnection, file: PartialFile, options: argparse.Namespace, progress: Progress
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
    # Between processes of one machine, compressing takes longer than sending.
    near = urlsplit(api.url).hostname in LOOPBACK
    headers = {"Accept-Encoding": "identity" if near else codings()}
    with api.stream(PATH, {**asked, "openings": openings}, headers) as response:
        Download(decoded(response), file, progress.update).run(continued=continued)


class Progress:
    """A line on a terminal that says how far the export is. Elsewhere, nothing but notes."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self._terminal = to.isatty()
        self._bytes = 0
        self._started = self._shown = time.monotonic()

    def update(self, file: PartialFile, added: int) -> None:
        """Tell that `added` more bytes are in the file."""
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
