"""Whose values to erase: a user, a session or events, as the options name them.

A user's id is personal, and every user of a machine can read a process's arguments: so it may also
come from a file or from standard input. Knows no request.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.commands.client.credentials import UnusableArguments

MAX_EVENTS = 1000
"""The API's limit for the events of one request: with several, a legal hold on some of them would
refuse half of the erasure."""
MAX_ID = 4096


@dataclass(frozen=True, slots=True)
class Target:
    """`body` is what the API is asked to erase; `shown` is what the report says of it, and `text`
    the same in words. Neither of these has a user's id."""

    body: dict[str, Any]
    shown: dict[str, Any]
    text: str


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--user",
        metavar="ID",
        help="erase this user's values; the id as the log has it. `-` reads it from standard "
        "input: other users of this machine can read the arguments of a process",
    )
    group.add_argument("--user-file", metavar="FILE", help="the same, with the id in a file")
    group.add_argument("--session", metavar="ID", help="erase the values of this session")
    group.add_argument("--event", metavar="ID", nargs="+", help="erase the values of these events")


def target_of(options: argparse.Namespace) -> Target:
    """The target that the options name. Raises `UnusableArguments`, never with a user's id."""
    if options.session is not None:
        session = {"session_id": options.session}
        return Target(session, session, f"session {options.session}")
    if options.event is not None:
        if len(options.event) > MAX_EVENTS:
            raise UnusableArguments(f"at most {MAX_EVENTS} events can be named at a time")
        events = {"event_ids": options.event}
        return Target(events, events, f"{len(options.event)} events")
    return Target({"user_id": _user(options)}, {"user_id": "not shown"}, "a user")


def _user(options: argparse.Namespace) -> str:
    """The user's id, which is all that the file or standard input holds, on one line."""
    try:
        if options.user_file is not None:
            with Path(options.user_file).open("rb") as file:
                return _one_line(file.read(MAX_ID + 1), f"`{options.user_file}`")
        if options.user != "-":
            return str(options.user)
        if sys.stdin.isatty():
            print("user id: ", end="", file=sys.stderr, flush=True)
            return _one_line(sys.stdin.readline().encode(), "the answer")
        return _one_line(sys.stdin.buffer.read(MAX_ID + 1), "standard input")
    except OSError as error:
        raise UnusableArguments(
            f"`{options.user_file or 'standard input'}` can't be read: {error.strerror}"
        ) from error


def _one_line(raw: bytes, where: str) -> str:
    try:
        text = raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UnusableArguments(f"{where} is not UTF-8") from None
    # A list of ids would be taken for one id, which matches nothing, and looks like success.
    if not text or "\n" in text or len(raw) > MAX_ID:
        raise UnusableArguments(f"{where} does not hold one id on one line")
    return text
