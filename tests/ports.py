"""Ports for servers that have to be told theirs before they start.

A port that the system chose is in the range from which it also takes the near end of outgoing
connections: by the time the server binds it, a connection of another test may have it. These ports
are below that range, and so are the ports 10,000 above them, which nodes of a Redis cluster use
among themselves. Knows nothing of Sluice.
"""

from __future__ import annotations

import itertools
import random
import socket

PORTS = range(12_000, 22_000)
# Each process of a run begins at another port.
_turns = itertools.count(random.SystemRandom().randrange(len(PORTS)))


def free_port() -> int:
    """One that is free on loopback, and that this process has not been given lately."""
    for turn in _turns:
        port = PORTS[turn % len(PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the turns never end")
