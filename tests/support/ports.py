"""Ports for servers that must know theirs before they start.

The system takes the ports of outgoing connections from its ephemeral range, so a port of that range
may be taken before the server binds it. These ports are below that range, and so are those 10,000
above them, which Redis Cluster nodes use among themselves.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

FIRST, LAST = 12_000, 22_000
_SHARE = "TEST_PORTS"
# Processes of two runs probably begin at other ports, so this draw must not repeat.
_turns = itertools.count(random.SystemRandom().randrange(LAST - FIRST))  # noqa: TID251


def deal_out(number: int, workers: int) -> None:
    """Give this process, and those that it starts, every n-th port. A port is free until the server
    that it was given for binds it, so no two workers of a run may be given the same."""
    os.environ[_SHARE] = f"{number}/{workers}"


def free_port() -> int:
    """Return a port that is free on loopback, and that this process was not given recently."""
    number, workers = map(int, os.environ.get(_SHARE, "0/1").split("/"))
    ports = range(FIRST + number, LAST, workers)
    for turn in _turns:
        port = ports[turn % len(ports)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the turns never end")
