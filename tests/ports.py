"""Ports for servers that have to be told theirs before they start.

A port that the system chose is of the range from which it also takes the near end of every outgoing
connection: by the time the server binds it, a connection of another test may have it. So these are
from below that range. Knows nothing of Sluice.
"""

from __future__ import annotations

import itertools
import random
import socket
from pathlib import Path

LOWEST = 12_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_own = random.SystemRandom().randrange(1 << 16)  # each process of a run begins elsewhere
_turns = itertools.count(_own)


def free_port() -> int:
    """One that is free on loopback, and that this process has not been given lately."""
    above = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    for turn in _turns:
        port = LOWEST + turn % (above - LOWEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the turns never end")
