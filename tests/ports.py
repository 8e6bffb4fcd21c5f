"""Ports for servers that must know theirs before they start.

The system takes the ports of outgoing connections from its ephemeral range, so a port of that range
may be taken before the server binds it. These ports are below that range, and so are those 10,000
above them, which Redis Cluster nodes use among themselves. Knows nothing of Sluice.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

# A port is free until the server that it was given for binds it. So no two processes of a run may
# be given the same: each has every n-th port.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
PORTS = range(12_000 + _WORKER % _WORKERS, 22_000, _WORKERS)
# Processes of two runs probably begin at other ports.
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
