"""The hosts on which a port is opened. Knows which IP versions this machine has; opens no port."""

import errno
import socket

from policies.ground.listen_address import EVERY, ListenAddress

_NO_SUCH_VERSION = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def hosts_to_bind(listen: ListenAddress) -> list[str]:
    """The hosts of `listen`. Of the two that `*` stands for, those whose IP version this machine
    has: a pod of a cluster with one version need not have the other."""
    if listen.host != EVERY:
        return [listen.host]
    # With neither, keep both: binding them tells why.
    return [host for host in listen.hosts if can_bind(host)] or list(listen.hosts)


def can_bind(host: str) -> bool:
    """Whether this machine has the IP version of the address `host`, and that address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except OSError as error:
        # Any other fault is reported when the port opens, which must not miss a version silently.
        return error.errno not in _NO_SUCH_VERSION
    return True
