"""Options that several commands of `sluice policy` have."""

import argparse
from collections.abc import Callable

AddCommand = Callable[[str, str], argparse.ArgumentParser]
"""Adds a command of this name, with a line of help, and returns its parser."""


def add_output(command: argparse.ArgumentParser) -> None:
    """`--tenant` and `--json`."""
    command.add_argument("--tenant", metavar="ID", help="which of the directory's tenants")
    command.add_argument("--json", action="store_true", help="print JSON")
