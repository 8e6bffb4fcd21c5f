"""Finds out whether a child process of `sluice up` is the one that listens on an address. Also
determines the address of the console.

The server that answers at an address need not be the child that was told to listen there: another
program may have bound the port first. Linux tells the owner: /proc/net/tcp has the inode of each
listening socket, and /proc/PID/fd those of each process.

The console has a host name of its own, which the control API has chosen: browsers send a host's
cookies to all its ports, so no other program may share the host.
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
    """The kind of process that listens on an address: none, one of the launcher's children, another
    program, or unknown."""

    NONE = "none"
    OURS = "ours"
    ANOTHER = "another"
    UNKNOWN = "unknown"
    """The system doesn't tell, because it is not Linux or /proc is hidden."""


def listener(address: Address, session: int) -> Listener:
    """Return which kind of process listens on `address`. A child's processes are those of the
    session with the id `session`."""
    try:
        listening = set(_listening(address))
        if not listening:
            return Listener.NONE
        return Listener.OURS if listening & set(_sockets(session)) else Listener.ANOTHER
    except (OSError, ValueError, IndexError):
        return Listener.UNKNOWN


def _listening(address: Address) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on the address, or on its port at all
    addresses."""
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
            if (
                columns[3] == LISTEN
                and int(port, 16) == address.port
                and _parse_proc_address(host) in hosts
            ):
                yield columns[9]


def _parse_proc_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an IP address as /proc/net/tcp writes it: words of 32 bits, each in this machine's byte
    order. An IPv4-mapped one, which servers of gRPC bind, is the IPv4 address (RFC 4291, section
    2.5.5.2)."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    found = ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    return (found.version == 6 and found.ipv4_mapped) or found


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
"""The file in the control API's data directory that holds the console's host name."""


def console_url(environ: Mapping[str, str], data_dir: Path, listen: Address) -> str | None:
    """Return the address of the console at its own host name; None if `SLUICE_CONSOLE_URL` gives
    another address, or if the console has no host name because it is switched off."""
    if environ.get("SLUICE_CONSOLE_URL"):
        return None
    try:
        host = (data_dir / FILE).read_text().strip()
    except FileNotFoundError:
        return None  # it is switched off
    return f"http://{host}:{listen.port}"
