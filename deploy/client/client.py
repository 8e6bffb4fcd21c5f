"""What every command works with: a connection, an output, and the options that all share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.client.connection import ApiConnection, ApiResponse
from deploy.client.output import Columns, Output

ROWS = 100


@dataclass(frozen=True, slots=True)
class Client:
    """One control API, and where answers go."""

    api: ApiConnection
    out: Output

    def list(
        self, path: str, query: dict[str, Any], chosen: argparse.Namespace, columns: Columns
    ) -> int:
        """Prints the rows of a list: `--limit` of them, or `--all`."""
        most = None if chosen.all else chosen.limit
        self.out.rows(self.api.pages(path, query, most), columns)
        return 0

    def show(self, path: str) -> int:
        """Prints one object."""
        self.out.members(self.api.ask("GET", path).body)
        return 0

    def did(self, answer: ApiResponse, text: str) -> int:
        """Prints the answer to a write, and which revision it made."""
        self.out.document(answer.body, text)
        self.tell_revision(answer)
        return 0

    def tell_revision(self, answer: ApiResponse) -> None:
        """On standard error, so that standard output is the answer alone."""
        if (revision := answer.revision) is not None:
            hint = f"`sluice fleet --wait-for {revision}` waits until every live sidecar has it"
            print(f"sluice: revision {revision}: {hint}", file=sys.stderr)


Run = Callable[[Client, argparse.Namespace], int]


class Commands:
    """The actions of one noun, such as `list` and `show`, as argparse has them."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._actions = parser.add_subparsers(required=True, metavar="ACTION")

    def add(self, name: str, run: Run, line: str) -> argparse.ArgumentParser:
        """An action, with the options that all have; its own are for the caller to add."""
        action = self._actions.add_parser(name, help=line, description=sentence(line))
        return common(action, run)

    def add_list(self, run: Run, line: str) -> argparse.ArgumentParser:
        """The action `list`."""
        return paged(self.add("list", run, line))


def common(parser: argparse.ArgumentParser, run: Run) -> argparse.ArgumentParser:
    """The options of every command: which control API, which key, which form."""
    parser.set_defaults(run=run)
    group = parser.add_argument_group("control API")
    group.add_argument(
        "--url",
        help="its address (SLUICE_URL; default http://127.0.0.1:8700)",
    )
    group.add_argument(
        "--key-file",
        metavar="FILE",
        help="a file with your API key, or the control API's first-start.json (SLUICE_KEY_FILE)",
    )
    group.add_argument("--ca", metavar="FILE", help="the authority that https:// is verified by")
    group.add_argument("--cert", metavar="FILE", help="a client certificate to show")
    group.add_argument("--cert-key", metavar="FILE", help="its private key")
    group.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


def paged(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The options of a list."""
    how_many = parser.add_mutually_exclusive_group()
    how_many.add_argument(
        "--limit", type=positive, default=ROWS, metavar="N", help=f"the most rows (default {ROWS})"
    )
    how_many.add_argument("--all", action="store_true", help="every row")
    return parser


def positive(text: str) -> int:
    """A number from 1 on, for argparse."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:16]) < 10**15):
        raise argparse.ArgumentTypeError(f"`{text}` is not a number from 1 on")
    return int(text)


def sentence(line: str) -> str:
    """A line of a list of commands as a sentence of its own."""
    return f"{line[:1].upper()}{line[1:]}."
