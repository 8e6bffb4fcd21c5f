"""Finds out whether a process that was started here is the one that listens on an address.

The server that answers at an address need not be the child that was told to listen there: another
program may have bound the port first. Linux tells the owner: /proc/net/tcp has the inode of each
listening socket, and /proc/PID/fd those of each process.

The address of the console of `sluice up`, under the host name that the control API has made for
itself: browsers send a host's cookies to all its ports, so no other program may share its host.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from deploy.local.settings import Address

PROC = Path("/proc")
LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp (TCP_LISTEN)."""


class Listener(Enum):
    """The listener on an address."""

    NONE = "none"
    OURS = "ours"
    ANOTHER = "another"
    UNKNOWN = "unknown"
    """The system doesn't tell: it is not Linux, or /proc is hidden."""


def listener(address: Address, session: int) -> Listener:
    """Return the listener on `address`: a process of the session with this id, or another
    process."""
    try:
        listening = set(_listening(address))
        if not listening:
            return Listener.NONE
        return Listener.OURS if listening & set(_sockets(session)) else Listener.ANOTHER
    except (OSError, ValueError, IndexError):
        return Listener.UNKNOWN


def _listening(address: Address) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on the address, or on its port at every
    address."""
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    hosts = {ipaddress.ip_address(str(each[4][0])) for each in found}
    # Only of the same version: a server at `::` need not take part in IPv4. If it does, the child
    # can't bind its port, and ends.
    hosts |= {ipaddress.ip_address("::" if host.version == 6 else "0.0.0.0") for host in hosts}  # noqa: S104
    for table in ("tcp", "tcp6"):
        file = PROC / "self" / "net" / table
        if table == "tcp6" and not file.exists():
            continue  # a system without IPv6
        for line in file.read_text().splitlines()[1:]:
            columns = line.split()
            host, _, port = columns[1].partition(":")
            if columns[3] == LISTEN and int(port, 16) == address.port and _host(host) in hosts:
                yield columns[9]


def _host(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address in the form of /proc/net/tcp: words of 32 bits, each in this machine's byte
    order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))


def _sockets(session: int) -> Iterator[str]:
    """Yield the inodes of the sockets that the session's processes have open."""
    for process in PROC.iterdir():
        # A process may end meanwhile, and close any of its files.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if process.name.isdecimal() and os.getsid(int(process.name)) == session:
                for file in (process / "fd").iterdir():
                    yield from _inode(file)


def _inode(file: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        kind, _, inode = str(file.readlink()).partition(":")
        if kind == "socket":
            yield inode.strip("[]")


FILE = "console-host"
"""The file in which the control API keeps the name, in its data directory."""


def console_url(environ: Mapping[str, str], data_dir: Path, listen: Address) -> str | None:
    """Return the console's address; None if the settings in `environ` say where it is, or it has
    none."""
    if environ.get("SLUICE_CONSOLE_URL"):
        return None
    try:
        host = (data_dir / FILE).read_text().strip()
    except FileNotFoundError:
        return None  # it is switched off
    return f"http://{host}:{listen.port}"
