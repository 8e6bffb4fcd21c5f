"""Runs one of the operator's commands: parses its arguments, connects to the control API, prints
the response and reports errors. Also holds the options that several commands have.

The exit code is 0 for success, 1 for a failure, 2 for unusable arguments or files, and 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from deploy.commands.client.output import Columns, Output, safe
from policies.ground.clock import ACCEPTED, UnreadableTime, read_time_text
from policies.ground.process.api_client import (
    ApiResponse,
    ControlApiClient,
    ServiceUnusable,
    UnusableArguments,
    connect,
)

ROWS = 100


@dataclass(frozen=True, slots=True)
class Client:
    """The two things that every command needs: a connection to the control API (`api`), and the
    printer for its responses (`out`)."""

    api: ControlApiClient
    out: Output

    def list(
        self, path: str, query: dict[str, Any], options: argparse.Namespace, columns: Columns
    ) -> int:
        """Print the rows of the list at `path`: as many as `--limit` says, or all rows with
        `--all`. Returns the exit code 0."""
        most = None if options.all else options.limit
        self.out.rows(self.api.pages(path, query, most), columns)
        return 0

    def show(self, path: str) -> int:
        self.out.members(self.api.request("GET", path).body)
        return 0

    def report(self, response: ApiResponse, text: str) -> int:
        """Print the response to a write as JSON or as `text`, then the revision that the write
        made. Returns the exit code 0."""
        self.out.document(response.body, text)
        self.print_revision(response)
        return 0

    def print_revision(self, response: ApiResponse) -> None:
        """Print the policy set's revision that a write made, if it made one. The line goes to
        standard error, so that standard output contains only the response."""
        if (revision := response.revision) is not None:
            hint = f"`sluice fleet --wait-for {revision}` waits until every live sidecar has it"
            print(f"sluice: revision {revision}: {hint}", file=sys.stderr)


Run = Callable[[Client, argparse.Namespace], int]

TIMES = ("from", "to")
"""The options whose value is a time."""

Fields = Mapping[str, tuple[str, str]]
"""Options that set fields of an API request: maps an option's name to the field and its line of
help."""


class Commands:
    """The actions of one command, such as `list` and `show`, as argparse subparsers."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._actions = parser.add_subparsers(required=True, metavar="ACTION")

    def add(self, name: str, run: Run, line: str) -> argparse.ArgumentParser:
        """Add the action `name` with the options that all commands have, and return its parser, so
        that the caller can add options of its own. `line` is its line of help."""
        action = self._actions.add_parser(name, help=line, description=sentence(line))
        return common(action, run)

    def add_list(self, path: str, columns: Columns, line: str, filters: Fields) -> None:
        """Add the action `list`, which prints the rows at `path`. Each of `filters` becomes an
        option that is sent in the query."""

        def run(client: Client, options: argparse.Namespace) -> int:
            return client.list(path, given(options, filters), options, columns)

        add_fields(paged(self.add("list", run, line)), filters)


def common(parser: argparse.ArgumentParser, run: Run) -> argparse.ArgumentParser:
    """Add the options that every command has: the control API's address, the key and the output
    format."""
    parser.set_defaults(run=run)
    group = parser.add_argument_group("control API")
    group.add_argument(
        "--url",
        help="address of the control API (SLUICE_URL; default http://127.0.0.1:8700)",
    )
    group.add_argument(
        "--key-file",
        metavar="FILE",
        help="a file with your API key, or the control API's first-start.json (SLUICE_KEY_FILE)",
    )
    group.add_argument(
        "--ca", metavar="FILE", help="certificate authority to trust, for https (SLUICE_CA)"
    )
    group.add_argument("--cert", metavar="FILE", help="client certificate to present")
    group.add_argument("--cert-key", metavar="FILE", help="private key of the client certificate")
    # No option for the key itself: every user of the machine can read a process's arguments.
    group.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


def paged(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options that limit the rows of a list: `--limit` and `--all`."""
    how_many = parser.add_mutually_exclusive_group()
    how_many.add_argument(
        "--limit",
        type=positive,
        default=ROWS,
        metavar="N",
        help=f"show at most N rows (default {ROWS})",
    )
    how_many.add_argument("--all", action="store_true", help="show all rows")
    return parser


def add_fields(parser: argparse.ArgumentParser, fields: Fields) -> None:
    """Add an option for each field. Options in `TIMES` parse their value as a time."""
    for option, (field, line) in fields.items():
        # Otherwise the help would show the field's name, which the operator never types.
        metavar = option.upper().replace("-", "_")
        if option in TIMES:
            parser.add_argument(
                f"--{option}", dest=field, type=moment, metavar="TIME", help=f"{line}: {ACCEPTED}"
            )
        else:
            parser.add_argument(f"--{option}", dest=field, metavar=metavar, help=line)


def given(options: argparse.Namespace, fields: Fields) -> dict[str, Any]:
    """Return the values of the fields whose options are set. The other fields are absent, not None:
    the API takes null for a value."""
    found = {field: getattr(options, field) for field, _ in fields.values()}
    return {field: value for field, value in found.items() if value is not None}


def moment(text: str) -> str:
    """Parse a time as people type it, such as `7d` or a date, and return it in the form that the
    API takes. A time ago counts from this machine's clock. This is an argparse type."""
    try:
        return read_time_text(text, time.time_ns() // 1000)
    except UnreadableTime as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


def positive(text: str) -> int:
    """Parse a positive whole number below 10^15. This is an argparse type."""
    # The text is cut for `int`, whose time grows with the square of the length. `isdecimal` alone
    # accepts digits of other scripts.
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:16]) < 10**15):
        raise argparse.ArgumentTypeError(f"`{text}` is not a positive number")
    return int(text)


def sentence(line: str) -> str:
    """Turn a command's line of help into a sentence: a capital at its beginning, a full stop at its
    end."""
    return f"{line[:1].upper()}{line[1:]}."


INTERRUPTED = 130


def run(noun: str, arguments: list[str], environ: Mapping[str, str]) -> int:
    """Run `sluice <noun> <arguments>` and return the exit code."""
    parser = argparse.ArgumentParser(prog=f"sluice {noun}")
    # Import only the module of this command, so that it starts quickly.
    import_module(f"deploy.commands.client.{noun.replace('-', '_')}").add_arguments(parser)
    options = parser.parse_args(arguments)
    _tolerate_any_text()
    try:
        api = connect(
            environ, options.url, options.key_file, options.ca, options.cert, options.cert_key
        )
        client = Client(api, Output(as_json=options.json, environ=environ))
        code: int = options.run(client, options)
        sys.stdout.flush()  # where a reader that has gone is noticed below
        return code
    except UnusableArguments as problem:
        return _fail(str(problem), 2)
    except ServiceUnusable as problem:
        return _fail(str(problem), 1)
    except KeyboardInterrupt:
        return INTERRUPTED  # 128 + SIGINT, the code that a shell reports
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python flushes its buffer once more at
        # exit, which would fail too, so that output goes to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _fail(text: str, code: int) -> int:
    first, *rest = text.splitlines()
    # Line by line, since `safe` would escape the line breaks.
    print("\n".join(safe(line) for line in (f"sluice: {first}", *rest)), file=sys.stderr)
    return code


def _tolerate_any_text() -> None:
    """Make both outputs escape the characters that their encoding lacks, rather than raise an
    error."""
    # Otherwise a single name in another script would end a list with a traceback.
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
