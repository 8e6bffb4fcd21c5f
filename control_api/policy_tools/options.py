"""Options that several commands of `sluice policy` have."""

import argparse
from collections.abc import Callable

from control_api.policy_tools.sources import Unusable
from policies.ground.typed_time import UnreadableTime, read_time

AddCommand = Callable[[str, str], argparse.ArgumentParser]
"""Adds a command of this name, with a line of help, and returns its parser."""


def add_output(command: argparse.ArgumentParser) -> None:
    """`--tenant` and `--json`."""
    command.add_argument("--tenant", metavar="ID", help="which of the directory's tenants")
    command.add_argument("--json", action="store_true", help="print JSON")


def typed_time(options: argparse.Namespace, option: str, text: str) -> int:
    """The time that an option names, in microseconds since 1970 UTC. Raises `Unusable`."""
    now: int = options.clock.now()
    try:
        return read_time(text, now)
    except UnreadableTime as error:
        raise Unusable(f"{option}: {error}") from error
