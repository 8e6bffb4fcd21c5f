"""The original destination of a redirected connection, in the form of the configuration.
`proxy/test_redirect.py` shows in a network namespace that the kernel reports it so."""

import socket

import pytest

from sidecar.http.authority import Authority
from sidecar.proxy.tunnel.redirect_check import original_destination


class Told:
    """A socket of which the system knows `told`, by the level at which it is asked."""

    def __init__(self, family: int, told: dict[int, bytes]) -> None:
        self.family = family
        self._told = told

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        assert option == 80
        if level not in self._told:
            raise OSError("Protocol not available")
        assert len(self._told[level]) == size
        return self._told[level]


V4 = b"\x02\x00" + (5432).to_bytes(2) + bytes([192, 0, 2, 7]) + bytes(8)
V6 = b"\x0a\x00" + (443).to_bytes(2) + bytes(4) + socket.inet_pton(socket.AF_INET6, "2001:db8::7")
V6 += bytes(4)


@pytest.mark.parametrize(
    ("family", "told", "meant"),
    [
        (socket.AF_INET, {socket.IPPROTO_IP: V4}, Authority("192.0.2.7", 5432)),
        (socket.AF_INET6, {socket.IPPROTO_IPV6: V6}, Authority("2001:db8::7", 443)),
        (socket.AF_INET6, {socket.IPPROTO_IP: V4}, Authority("192.0.2.7", 5432)),
        (socket.AF_INET, {socket.IPPROTO_IPV6: V6}, None),
        (socket.AF_INET, {}, None),
        (socket.AF_INET6, {}, None),
    ],
)
def test_the_original_destination_is_read_from_the_system(
    family: int, told: dict[int, bytes], meant: Authority | None
) -> None:
    assert original_destination(Told(family, told)) == meant


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_direct_connection_has_at_most_its_own_address_as_destination(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        with socket.create_connection((host, port)), server.accept()[0] as accepted:
            assert original_destination(accepted) in (None, Authority(host, port))
