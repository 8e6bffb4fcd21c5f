"""Parsing listening addresses."""

import pytest

from policies.ground.addresses import ListenAddress


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("127.0.0.1:8700", ListenAddress("127.0.0.1", 8700)),
        ("0.0.0.0:0", ListenAddress("0.0.0.0", 0)),
        ("localhost:65535", ListenAddress("localhost", 65535)),
        ("[::1]:8700", ListenAddress("::1", 8700)),
        ("[::]:0", ListenAddress("::", 0)),
        ("*:8700", ListenAddress("*", 8700)),
        ("control.sluice.svc:80", ListenAddress("control.sluice.svc", 80)),
    ],
)
def test_an_address_is_read_and_written_back(text: str, listen: ListenAddress) -> None:
    assert ListenAddress.parse(text) == listen
    assert str(listen) == text


@pytest.mark.parametrize(
    "text",
    ["", ":", "8700", ":8700", "localhost", "localhost:", "localhost:http", "localhost:-1",
     "localhost:65536", "localhost:1.5", "localhost:٨٠", "::1:8700", "[::1]", "[]:80", "::1",
     "localhost:+80", "localhost: 80", "localhost:80 ", "localhost:" + "9" * 5000],
)  # fmt: skip
def test_a_text_that_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not host:port|needs brackets"):
        ListenAddress.parse(text)


def test_a_star_is_every_address_of_both_ip_versions() -> None:
    every = ListenAddress.parse("*:8700")
    assert every.hosts == ("0.0.0.0", "::")
    assert not every.loopback
    assert ListenAddress.parse("[::1]:8700").hosts == ("::1",)


def test_a_star_needs_a_port_because_two_sockets_share_it() -> None:
    with pytest.raises(ValueError, match="needs a port"):
        ListenAddress.parse("*:0")
