"""Ports for servers that must know theirs before they start.

The system takes the ports of outgoing connections from its ephemeral range, so a port of that range
may be taken before the server binds it. These ports are below that range, and so are those 10,000
above them, which Redis Cluster nodes use among themselves. Knows nothing of Sluice.
"""

from __future__ import annotations

import itertools
import random
import socket

PORTS = range(12_000, 22_000)
# Each process of a run begins at another port.
_turns = itertools.count(random.SystemRandom().randrange(len(PORTS)))


def free_port() -> int:
    """A port that is free on loopback, and that this process was not given recently."""
    for turn in _turns:
        port = PORTS[turn % len(PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the turns never end")
