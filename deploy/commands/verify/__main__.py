"""The command line of `sluice verify`, and the only place that reads the clock for it. With
`--database` the process becomes `control_api.log.database_verifier`.

    python -m deploy.commands.verify FILE          also `sluice verify FILE`

Exit codes: 0 if everything is valid, 1 for findings. 2 if the log can't be verified at all or not
be compared with a checkpoint that was given, if some decision could not be derived or some spool
not be followed, or if no checkpoint covers some entry of a report.
"""

import argparse
import json
import os
import sys
import time
from argparse import Namespace
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NoReturn

from deploy.commands.report.evidence import MAX_BYTES, ReportOutcome, begins, check_report
from deploy.commands.verify.check import CheckOptions, verify_file
from deploy.commands.verify.monitor import MonitorOptions, monitor
from deploy.commands.verify.pool import on_terminal
from deploy.module_command import module_command
from policies.ground.distribution import how_to_install
from policies.ground.log_line import for_a_reader, printable
from policies.ground.process.api_client import ServiceUnusable, UnusableArguments, connect
from policies.trail.verdict.outcome import Outcome, Unusable
from policies.trail.verdict.summary import summary
from policies.trail.verdict.trusted_keys import add_database, add_trust, check_quorum, count

MOST_JOBS = 256

_DESCRIPTION = """\
Verifies an audit log without trusting the service that wrote it: an export (FILE, or - for
standard input; gzip and zstd are recognised), a database (--database), or what is new in a running
service (--url)."""
_EPILOG = """\
Exit codes: 0 all holds; 1 findings; 2 unusable arguments, file, database or service, or a
--checkpoint that lies outside of what was verified."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="sluice verify", description=_DESCRIPTION, epilog=_EPILOG)
    made.add_argument(
        "file", nargs="?", metavar="FILE",
        help="an export, or the report.json of `sluice report`; - is standard input",
    )  # fmt: skip
    add_trust(made)
    made.add_argument(
        "--recompute", action="store_true",
        help="derive every decision again from its recorded facts and policies",
    )  # fmt: skip
    made.add_argument(
        "--jobs", type=count(1, MOST_JOBS), default=1, metavar="N",
        help="processes that verify a file (default 1)",
    )  # fmt: skip
    made.add_argument("--json", action="store_true", help="print JSON instead of text")
    add_database(made)
    _add_remote(made)
    return made


def _add_remote(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("a running service")
    group.add_argument("--url", metavar="URL", help="address of the control API")
    group.add_argument("--key-file", metavar="FILE", help="a file with an API key of scope read")
    group.add_argument(
        "--ca", metavar="FILE", help="certificate authority to trust, for https (SLUICE_CA)"
    )
    group.add_argument(
        "--state", metavar="FILE", help="what was verified so far; written after each success"
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the options. Raises `Unusable` if they contradict one another, and `SystemExit` as
    argparse does."""
    made = parser()
    options = made.parse_args(arguments)
    sources = [name for name in ("file", "database", "url") if getattr(options, name) is not None]
    if len(sources) != 1:
        raise Unusable("give one of FILE, --database URL and --url URL; --help explains them")
    for name, source in (("store", "database"), ("log", "database"), ("key_file", "url"),
                         ("state", "url"), ("ca", "url")):  # fmt: skip
        if getattr(options, name) is not None and source not in sources:
            raise Unusable(f"--{name.replace('_', '-')} belongs to --{source}")
    if options.url is not None and not (options.url and options.key_file and options.state):
        raise Unusable("--url URL needs --key-file FILE and --state FILE")
    check_quorum(options)
    if options.recompute and options.file is None:
        raise Unusable("--recompute needs a FILE: export the log first")
    return options


SERVER = ("aiosqlite", "asyncpg", "sqlalchemy")
"""The modules that reading a database needs; the extra `server` installs them."""
DATABASE_PROGRAM = "control_api.log.database_verifier"


def main(arguments: list[str]) -> int:
    """Run one verification and return its exit code."""
    try:
        options = parse(arguments)
        if options.database is not None:
            _verify_database(arguments)
        outcome = _verify(options)
    except (Unusable, UnusableArguments) as error:
        print(f"sluice verify: {printable(str(error))}", file=sys.stderr)
        return 2
    except ServiceUnusable as error:
        print(f"sluice verify: {error}", file=sys.stderr)  # of several lines, each printable
        return 2
    except KeyboardInterrupt:
        print("sluice verify: interrupted, nothing is proven", file=sys.stderr)
        return 2
    return for_a_reader(lambda: _print(outcome, options), outcome.exit_code)


def _verify(options: Namespace) -> Outcome | ReportOutcome:
    if options.url is not None:
        return _monitor(options)
    return _verify_file(options)


def _monitor(options: Namespace) -> Outcome:
    asked = MonitorOptions(
        connect(os.environ, options.url, options.key_file, options.ca),
        Path(options.state),
        options.key,
        options.witness,
        options.quorum,
        options.checkpoint,
        on_terminal(None, time.monotonic),
    )
    return monitor(asked)


def _verify_database(arguments: list[str]) -> NoReturn:
    """Replace this process by the program that verifies a database, so that verifying a file does
    not need that program's libraries. Raises `Unusable` if they are missing."""
    missing = [name for name in SERVER if find_spec(name) is None]
    if missing:
        raise Unusable(
            "--database needs what the extra `server` installs, and "
            f"{', '.join(f'`{name}`' for name in missing)} can't be found; "
            f"{how_to_install('server')}"
        )
    os.execv(sys.executable, module_command(DATABASE_PROGRAM, *arguments))


def _verify_file(options: Namespace) -> Outcome | ReportOutcome:
    name: str = options.file
    stdin = name == "-"
    progress = on_terminal(None if stdin else _size(name), time.monotonic)
    check = CheckOptions(
        options.key,
        options.witness,
        options.quorum,
        options.checkpoint,
        options.jobs,
        options.recompute,
        progress,
    )

    subject = "standard input" if stdin else f"`{name}`"
    opened: BinaryIO = sys.stdin.buffer if stdin else _open(name)
    if isinstance(opened, BufferedReader) and begins(_peek(opened, name)):
        if options.recompute:
            raise Unusable("--recompute needs an export: a report has no policies")
        with opened:
            return check_report(opened.read(MAX_BYTES + 1), subject, check)
    # The opened file is read on: a pipe can be opened only once.
    first = [opened]

    def open_file() -> BinaryIO:
        return first.pop() if first else _open(name)

    return verify_file(open_file, subject, check, again=not stdin and Path(name).is_file())


def _open(name: str) -> BufferedReader:
    try:
        return open(name, "rb")
    except OSError as error:
        raise Unusable(f"`{name}` can't be read: {error.strerror}") from error


def _peek(file: BufferedReader, name: str) -> bytes:
    try:
        return file.peek(100)
    except OSError as error:
        raise Unusable(f"`{name}` can't be read: {error.strerror}") from error


def _size(name: str) -> int | None:
    try:
        return Path(name).stat().st_size or None
    except OSError:
        return None  # opening it tells why


def _print(outcome: Outcome | ReportOutcome, options: Namespace) -> int:
    if options.json:
        print(json.dumps(outcome.to_wire(), indent=2))  # as ASCII: see `printable`
    else:
        print(outcome.text() if isinstance(outcome, ReportOutcome) else summary(outcome))
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
