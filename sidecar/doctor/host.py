"""Observes a Linux host: names, connections, listening sockets, and packet-filter rules, with
`iptables-save` and with `nft`. Raises `Unobservable` for anything it can't see.

The kernel has three kinds of tables with rules: those of `nft`, those of today's `iptables`, which
it keeps among them, and those of `iptables-legacy`. No tool shows all three.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from policies.ground.errors import worded
from sidecar.doctor import iptables, nftables
from sidecar.doctor.iptables import RuleSet

_TOOL_SECONDS = 20.0
_NO_NFTABLES = ("Protocol not supported", "Operation not supported")
"""The error messages of `nft` on a kernel without nf_tables, which then has no such rules."""
_LEGACY = {4: "net/ip_tables_names", 6: "net/ip6_tables_names"}
"""The files in which the kernel lists the tables of `iptables-legacy`."""

Address = IPv4Address | IPv6Address

TOOLS = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
"""The search path for the tools. Fixed, because this may run as root with another user's `PATH`."""
CONNECT_SECONDS = 2.0
_TCP_LISTEN = "0A"
"""The code of a listening socket in the state column of `/proc/net/tcp`."""
_LINK_LOCAL = "20"
"""The code of a link-local address in the scope column of `/proc/net/if_inet6`. Such an address
reaches only its own link."""


class Unobservable(Exception):
    """a property of the host can't be observed; the message says why"""


def read_rules(version: int, folders: str, proc: Path) -> RuleSet:
    """Return the rules of IP version 4 or 6, read with the tools in `folders`. Raises
    `Unobservable` if they can't be read."""
    stem = "iptables" if version == 4 else "ip6tables"
    # The plain name first: it is the implementation that the administrator chose.
    names = (f"{stem}-save", f"{stem}-nft-save", f"{stem}-legacy-save")
    save = next(filter(None, (shutil.which(name, path=folders) for name in names)), None)
    nft = shutil.which("nft", path=folders)
    if save is None and nft is None:
        raise Unobservable(f"neither `{stem}-save` nor `nft` is installed")
    rules = _saved(save) if save is not None else _without_save(version, proc)
    if nft is None:
        return rules
    try:
        _add(rules, nftables.parse(_list_ruleset(nft), version))
    except (Unobservable, ValueError) as error:
        if save is None:
            raise Unobservable(str(error)) from error
        rules.incomplete = rules.incomplete or str(error)
    return rules


def _saved(tool: str) -> RuleSet:
    output, warning = _printed([tool])
    try:
        rules = iptables.parse(output)
    except ValueError as error:
        raise Unobservable(f"`{tool}` can't be used: {error}") from error
    # A tool that may not see the rules can succeed and print none.
    if not rules.tables and os.geteuid() != 0:
        raise Unobservable(f"`{tool}` shows the rules only to root")
    # A warning beside the rules may mean that some are missing.
    rules.incomplete = rules.incomplete or warning
    return rules


def _without_save(version: int, proc: Path) -> RuleSet:
    rules = RuleSet()
    try:
        legacy = (proc / _LEGACY[version]).read_text().split()
    except FileNotFoundError:
        legacy = []
    except OSError as error:
        legacy = [f"unknown ({worded(error)})"]
    if legacy:
        listed = ", ".join(legacy)
        rules.incomplete = f"tables of `iptables-legacy`, which `nft` can't read: {listed}"
    return rules


def _list_ruleset(nft: str) -> str:
    try:
        return _printed([nft, "--json", "list", "ruleset"])[0]
    except Unobservable as error:
        if any(each in str(error) for each in _NO_NFTABLES):
            return '{"nftables": []}'
        raise


def _add(rules: RuleSet, more: RuleSet) -> None:
    # Of its own tables, `iptables-save` shows conditions that `nft` only names.
    shown = {f"{family} {name}" for family in ("ip", "ip6") for name in rules.tables}
    kept = {name for name in more.tables if not (rules.of_nf_tables and name in shown)}
    rules.tables |= {name: chains for name, chains in more.tables.items() if name in kept}
    rules.hooks += [each for each in more.hooks if each.table in kept]
    if "incompatible" in rules.incomplete:
        rules.incomplete = ""  # the table that it could not show is among those of `nft`


def _printed(command: list[str]) -> tuple[str, str]:
    """Return what a tool prints to its standard output and to its standard error. Raises
    `Unobservable` if it fails."""
    try:
        ended = subprocess.run(  # noqa: S603  # one of seven names, in the system's folders
            command, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        # Report what it printed: otherwise unreadable rules look like an empty rule set.
        reason = " ".join(error.stderr.split())[:200]
        raise Unobservable(f"`{command[0]}` failed: {reason}") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise Unobservable(f"`{command[0]}` can't be used: {error}") from error
    return ended.stdout, " ".join(ended.stderr.split())[:200]


class ListeningSocket(NamedTuple):
    address: Address
    port: int
    uid: int


class Host:
    def __init__(self, proc: Path = Path("/proc"), tools: str = TOOLS) -> None:
        self._proc = proc
        self._tools = tools

    def uid(self) -> int:
        return os.geteuid()

    def addresses(self, host: str) -> list[Address]:
        """Return the IP addresses of `host`, which may be a name or itself an address. Raises
        `Unobservable` if it does not resolve."""
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Unobservable(f"`{host}` can't be resolved: {error}") from error
        # The scope in `fe80::1%eth0` names an interface, and is not part of the address.
        texts = (str(each[4][0]).partition("%")[0] for each in found)
        return list(dict.fromkeys(map(ip_address, texts)))

    def connects(self, address: Address, port: int, uid: int) -> bool:
        """Return whether a process of user `uid` can open a TCP connection to this address and
        port. Raises `Unobservable` if this process may not act as that user."""
        if uid == os.geteuid():
            return _connects(address, port)
        if os.geteuid() != 0:
            raise Unobservable(f"only root can connect as UID {uid}")
        # In a child, because a process can't return to root once it has changed its user. `fork` is
        # safe here: the doctor has a single thread.
        child = os.fork()
        if child == 0:
            code = 2
            try:
                # Groups first: without root, the process could no longer drop them.
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                code = 0 if _connects(address, port) else 1
            finally:
                os._exit(code)  # skips the parent's exit handlers and buffers
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 1):
            raise Unobservable(f"this process may not act as UID {uid}")
        return code == 0

    def free_bytes(self, path: Path) -> int:
        """Return the bytes that a user other than root may still write to the disk of `path`, which
        need not exist yet. Raises `Unobservable`."""
        try:
            found = os.statvfs(next(each for each in (path, *path.parents) if each.exists()))
        except OSError as error:
            raise Unobservable(f"the free space of `{path}` is unknown: {worded(error)}") from error
        return found.f_bavail * found.f_frsize

    def stored_bytes(self, path: Path) -> int:
        """Return the bytes that the files below the folder `path` take on disk; 0 if it does not
        exist. Raises `Unobservable`."""
        taken = 0
        try:
            for each in path.rglob("*"):
                # The sidecar is running, and may remove a file meanwhile.
                with suppress(FileNotFoundError):
                    taken += each.lstat().st_blocks * 512
        except OSError as error:
            raise Unobservable(f"the size of `{path}` is unknown: {worded(error)}") from error
        return taken

    def listening(self) -> list[ListeningSocket]:
        """Return all listening TCP sockets of the host. Raises `Unobservable` without `/proc`."""
        return [*self._listening("tcp", 4), *self._listening("tcp6", 6)]

    def _listening(self, name: str, version: int) -> Iterator[ListeningSocket]:
        # A kernel without IPv6 has no `tcp6`; one without `tcp` is not Linux.
        for line in self._lines(f"net/{name}", needed=version == 4)[1:]:
            words = line.split()
            if words[3] == _TCP_LISTEN:
                # `sl local_address rem_address st … uid …`, as in proc(5).
                address, _, port = words[1].partition(":")
                yield ListeningSocket(_address(address), int(port, 16), int(words[7]))

    def interfaces(self) -> list[str]:
        names = [line.partition(":")[0].strip() for line in self._lines("net/dev")[2:]]
        return [name for name in names if name != "lo"]

    def outgoing_interfaces(self, address: Address) -> tuple[str, ...]:
        """Return the interfaces by which a packet to `address` may leave; only `lo` if the address
        is local."""
        if address.is_loopback or _is_local(address):
            return ("lo",)
        return tuple(self.interfaces()) or ("eth0",)

    def has_ipv6(self) -> bool:
        """Return whether any interface but loopback has an IPv6 address that is valid beyond its
        own link."""
        lines = (line.split() for line in self._lines("net/if_inet6", needed=False))
        return any(words[5] != "lo" and words[3] != _LINK_LOCAL for words in lines)

    def rules(self, version: int) -> RuleSet:
        """Return the packet-filter rules of IP version 4 or 6. Raises `Unobservable` if they can't
        be read."""
        return read_rules(version, self._tools, self._proc)

    def _lines(self, name: str, *, needed: bool = True) -> list[str]:
        try:
            return (self._proc / name).read_text().splitlines()
        except OSError as error:
            if not needed:
                return []
            why = f"`{self._proc / name}` can't be read: {worded(error)}"
            raise Unobservable(why) from error


def _connects(address: Address, port: int) -> bool:
    with closing(_socket(address, socket.SOCK_STREAM)) as probe:
        probe.settimeout(CONNECT_SECONDS)
        try:
            probe.connect((str(address), port))
        except OSError:
            return False
        return True


def _is_local(address: Address) -> bool:
    """Return whether `address` belongs to this host: for packets to it, the kernel would use it as
    the source address too. Connecting a datagram socket to find this out sends nothing."""
    try:
        with closing(_socket(address, socket.SOCK_DGRAM)) as probe:
            probe.connect((str(address), 9))
            return str(probe.getsockname()[0]) == str(address)
    except OSError:
        return False


def _socket(address: Address, kind: socket.SocketKind) -> socket.socket:
    return socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, kind)


def _address(hexadecimal: str) -> Address:
    """Return the address that the kernel writes as this text: four-byte words in the machine's byte
    order."""
    raw = bytes.fromhex(hexadecimal)
    words = [raw[at : at + 4] for at in range(0, len(raw), 4)]
    return ip_address(b"".join(w[::-1] if sys.byteorder == "little" else w for w in words))
