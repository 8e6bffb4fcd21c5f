"""Listening on every address, of both IP versions, whichever the machine has."""

import errno
import os
import socket

import pytest

from policies.ground.addresses import ListenAddress
from policies.ground.process.sockets import CannotListen, bind, bound
from tests.support.ports import free_port

HOSTS = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


@pytest.mark.parametrize("count", [1, 2])
def test_a_star_opens_a_socket_for_each_ip_version_and_worker(count: int) -> None:
    address = ListenAddress("*", free_port())
    sets = bind(address, "SETTING", count)
    assert len(sets) == count
    for some in sets:
        assert [each.getsockname()[:2] for each in some] == [
            ("0.0.0.0", address.port),
            ("::", address.port),
        ]
        # A log line says `*`, not one of the two.
        assert bound(address, some) == address
    for family, host in HOSTS.items():
        with socket.socket(family) as client:
            client.settimeout(5)
            client.connect((host, address.port))
    for each in (one for some in sets for one in some):
        each.close()


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")])
@pytest.mark.parametrize("count", [1, 2])
def test_a_port_that_is_taken_in_one_version_is_not_opened_in_the_other(
    family: int, host: str, count: int
) -> None:
    with socket.socket(family) as other:
        if family == socket.AF_INET6:
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind((host, free_port()))
        other.listen()
        address = ListenAddress("*", other.getsockname()[1])
        with pytest.raises(CannotListen, match=r"SETTING: can't listen on `\*:\d+`: Address"):
            bind(address, "SETTING", count)
        third = socket.AF_INET if family == socket.AF_INET6 else socket.AF_INET6
        # What was opened before the fault is closed again.
        with socket.socket(third) as client, pytest.raises(ConnectionRefusedError):
            client.connect((HOSTS[third], address.port))


def test_a_missing_ip_version_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel has no IPv6 at all. `tests/deploy/helm/test_ip_versions.py` takes it away
    from a real network namespace."""
    real, address = socket.socket, ListenAddress("*", free_port())

    def without_ipv6(family: int, *more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return real(family, *more)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    [[only]] = bind(address, "SETTING")
    with only:
        assert only.getsockname()[0] == "0.0.0.0"
