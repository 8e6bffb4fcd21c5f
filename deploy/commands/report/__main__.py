"""The command line of `sluice report`. No other module of the command reads the clock or writes
files.

    python -m deploy.commands.report FILE --session ID -o DIR     also `sluice report …`

Exit codes: 0 if the report is written, 1 if the verification of the export finds faults, 2 if the
arguments or the file can't be used.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

from deploy.commands.report.evidence import check_report
from deploy.commands.report.gathering import gather, parse
from deploy.commands.report.page import page
from deploy.commands.verify.check import CheckOptions, verify_file
from deploy.commands.verify.pool import on_terminal
from policies.ground.log_line import for_a_reader, plural, printable
from policies.trail.verdict.outcome import Unusable
from policies.trail.verdict.summary import summary


def main(arguments: list[str]) -> int:
    """Write one report, and return the exit code."""
    try:
        return _report(arguments)
    except Unusable as error:
        print(f"sluice report: {printable(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        print("sluice report: interrupted, nothing is written", file=sys.stderr)
    return 2


def _report(arguments: list[str]) -> int:
    options, asked = parse(arguments, time.time_ns() // 1000)
    name: str = options.file

    def open_file() -> BinaryIO:
        try:
            return open(name, "rb")
        except OSError as error:
            raise Unusable(f"`{name}` can't be read: {error.strerror}") from error

    if not Path(name).is_file():
        raise Unusable(f"`{name}` is not a file; it is read more than once")
    progress = on_terminal(Path(name).stat().st_size or None, time.monotonic)
    check = CheckOptions(options.key, progress=progress)
    export = verify_file(open_file, f"`{name}`", check, again=True)
    if not export.valid:
        print(summary(export))
        print("sluice report: the export does not hold, so nothing is written", file=sys.stderr)
        return 1
    report = gather(open_file, asked, options.key)
    raw = report.to_bytes()
    # The report is checked as its reader will check it.
    checked = check_report(raw, "the report", CheckOptions(options.key))
    if not checked.valid:
        finding = checked.outcome.findings[0]
        raise Unusable(f"the file was changed while it was read: {finding.text()}")
    folder = Path(options.output)
    _write(folder, "report.json", raw)
    _write(folder, "report.html", page(report, checked, export))
    if report.items:
        print(
            f"{plural(len(report.items), 'entry')}: `{folder}/report.html`, `{folder}/report.json`"
        )
    else:
        print(f"No entry matches; `{folder}/report.html` and `{folder}/report.json` say so.")
        if "user" in report.selection:
            print("A user who was erased is not found either.")
    return 0


def _write(folder: Path, name: str, content: bytes) -> None:
    """Write a file of the report, replacing an older one atomically. Only its owner may read it,
    since it holds personal data."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(folder / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Unusable(f"`{folder / name}` can't be written: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(for_a_reader(lambda: main(sys.argv[1:])))
