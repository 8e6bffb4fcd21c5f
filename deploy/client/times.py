"""Times in the arguments of the operator's commands, as the API takes them."""

from __future__ import annotations

import argparse
import time

from policies.ground import typed_time

ACCEPTED = typed_time.ACCEPTED
"""What `moment` takes, in words."""


def moment(text: str) -> str:
    """An argument's type: a time as people type it, by this machine's clock."""
    try:
        return typed_time.read_time_text(text, time.time_ns() // 1000)
    except typed_time.UnreadableTime as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


def place(text: str) -> str:
    """An argument's type: the number of an entry, or a time."""
    return text if text.isascii() and text.isdecimal() else moment(text)
