"""How a machine is looked at: names, connections, listening sockets, packet-filter rules.

Linux alone, where `/proc` tells it. Changes nothing. Knows nothing of what ought to be.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from sidecar.doctor.iptables import RuleSet, parse

Address = IPv4Address | IPv6Address

TOOLS = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
"""Where `iptables-save` is looked for: this may run as root, whose search path others may lead."""
CONNECT_SECONDS = 2.0
_RULES_SECONDS = 20.0
_LISTENS = "0A"
_LOCAL_LINK = "20"
"""The scope of a link-local address in `/proc/net/if_inet6`: it leads nowhere."""


class Unseen(Exception):
    """what was to be looked at can't be"""


class ListeningSocket(NamedTuple):
    """One that listens, and whose it is."""

    address: Address
    port: int
    uid: int


class Host:
    """The one that this process runs on, in the network namespace in which it does."""

    def __init__(self, proc: Path = Path("/proc"), tools: str = TOOLS) -> None:
        self._proc = proc
        self._tools = tools

    def uid(self) -> int:
        """Of this process."""
        return os.geteuid()

    def addresses(self, host: str) -> list[Address]:
        """What a name stands for, or the address itself. `Unseen` where it can't be resolved."""
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Unseen(f"`{host}` can't be resolved: {error}") from error
        # A scope (`fe80::1%eth0`) is the interface's, and no part of the address.
        texts = (str(each[4][0]).partition("%")[0] for each in found)
        return list(dict.fromkeys(map(ip_address, texts)))

    def connects(self, address: Address, port: int, uid: int) -> bool:
        """Whether a TCP connection opens for a process of user `uid`. `Unseen` where this process
        may not act as that user."""
        if uid == os.geteuid():
            return _connects(address, port)
        if os.geteuid() != 0:
            raise Unseen(f"only root can connect as UID {uid}")
        # A child, since a process that gave up its user does not get it back.
        child = os.fork()
        if child == 0:
            code = 2
            try:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                code = 0 if _connects(address, port) else 1
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 1):
            raise Unseen(f"this process may not act as UID {uid}")
        return code == 0

    def listening(self) -> list[ListeningSocket]:
        """TCP sockets that listen. `Unseen` where there is no `/proc`."""
        return [*self._listening("tcp", 4), *self._listening("tcp6", 6)]

    def _listening(self, name: str, version: int) -> Iterator[ListeningSocket]:
        for line in self._lines(f"net/{name}", needed=version == 4)[1:]:
            words = line.split()
            if words[3] == _LISTENS:
                address, _, port = words[1].partition(":")
                yield ListeningSocket(_address(address), int(port, 16), int(words[7]))

    def interfaces(self) -> list[str]:
        """But for loopback."""
        names = [line.partition(":")[0].strip() for line in self._lines("net/dev")[2:]]
        return [name for name in names if name != "lo"]

    def leaves_by(self, address: Address) -> tuple[str, ...]:
        """The interfaces by which a packet to `address` may go out: `lo` to what is ours."""
        if address.is_loopback or _is_ours(address):
            return ("lo",)
        return tuple(self.interfaces()) or ("eth0",)

    def has_ipv6(self) -> bool:
        """Whether an address of an interface other than loopback leads further than its link."""
        lines = (line.split() for line in self._lines("net/if_inet6", needed=False))
        return any(words[5] != "lo" and words[3] != _LOCAL_LINK for words in lines)

    def rules(self, version: int) -> RuleSet:
        """Of IPv4 or IPv6, 4 or 6. `Unseen` where they can't be read."""
        stem = "iptables" if version == 4 else "ip6tables"
        for name in (f"{stem}-save", f"{stem}-nft-save", f"{stem}-legacy-save"):
            tool = shutil.which(name, path=self._tools)
            if tool is not None:
                return self._rules(tool)
        raise Unseen(f"there is no `{stem}-save` here")

    def _rules(self, tool: str) -> RuleSet:
        try:
            told = subprocess.run(  # noqa: S603  # one of six names, in the system's own folders
                [tool], capture_output=True, text=True, timeout=_RULES_SECONDS, check=True
            )
            rules = parse(told.stdout)
        except subprocess.CalledProcessError as error:
            # Without its words a rule set that may not be read looks like an empty one.
            said = " ".join(error.stderr.split())[:200]
            raise Unseen(f"`{tool}` failed: {said}") from error
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise Unseen(f"`{tool}` can't be used: {error}") from error
        if not rules.tables and os.geteuid() != 0:
            raise Unseen(f"`{tool}` shows rules to root alone")
        if told.stderr.strip():
            rules.partly = rules.partly or " ".join(told.stderr.split())[:200]
        return rules

    def _lines(self, name: str, *, needed: bool = True) -> list[str]:
        try:
            return (self._proc / name).read_text().splitlines()
        except OSError as error:
            if needed:
                raise Unseen(f"`{self._proc / name}` can't be read: {error.strerror}") from error
            return []


def _connects(address: Address, port: int) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with closing(socket.socket(family, socket.SOCK_STREAM)) as tried:
        tried.settimeout(CONNECT_SECONDS)
        try:
            tried.connect((str(address), port))
        except OSError:
            return False
        return True


def _is_ours(address: Address) -> bool:
    """Whether the way there begins at the same address. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with closing(socket.socket(family, socket.SOCK_DGRAM)) as tried:
            tried.connect((str(address), 9))
            return str(tried.getsockname()[0]) == str(address)
    except OSError:
        return False


def _address(hexadecimal: str) -> Address:
    """As the kernel writes it: each four bytes in the machine's own order."""
    raw = bytes.fromhex(hexadecimal)
    words = [raw[at : at + 4] for at in range(0, len(raw), 4)]
    return ip_address(b"".join(w[::-1] if sys.byteorder == "little" else w for w in words))
