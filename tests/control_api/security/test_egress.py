"""What the service itself may call, and what is refused however it is written."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from control_api.security.egress import AllowedHosts, MailServer

NOTHING = AllowedHosts()


PRIVATE = """
127.0.0.1 127.8.9.1 10.1.2.3 172.16.0.1 192.168.0.1 169.254.169.254 0.0.0.0 100.64.0.1 224.0.0.1
255.255.255.255 240.0.0.1 192.0.2.1 198.18.0.1 ::1 :: fe80::1 fc00::1 ff02::1 ::ffff:127.0.0.1
::ffff:10.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 2002:7f00:1::1 2001:0:7f00:1::1 2001:db8::1
192.88.99.1 fec0::1 3fff::1 5f00::1 4000::1 ::ffff:8.8.8.8 2002:808:808::1
"""


@pytest.mark.parametrize("address", PRIVATE.split())
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not NOTHING.permits("hooks.example.com", 443, ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111"])
def test_a_public_address_is_permitted(address: str) -> None:
    assert NOTHING.permits("hooks.example.com", 443, ip_address(address))


def test_addresses_that_the_operator_lists_are_permitted() -> None:
    allowed = AllowedHosts.parse(
        "hooks.internal, other.internal:8443, 10.0.0.0/8, [::1]:9000, fd00::/8"
    )
    private = ip_address("192.168.1.1")
    assert allowed.permits("Hooks.Internal.", 1, private)
    assert allowed.permits("other.internal", 8443, private)
    assert not allowed.permits("other.internal", 443, private)
    assert allowed.permits("anything", 80, ip_address("10.9.8.7"))
    assert allowed.permits("::1", 9000, ip_address("::1"))
    assert not allowed.permits("::1", 80, ip_address("::1"))
    assert allowed.permits("anything", 80, ip_address("fd00::5"))
    assert not allowed.permits("x.hooks.internal", 1, private)


@pytest.mark.parametrize("text", ["a:b", "a:0", "a:99999", "http://a", "a b", ":80", "a,b:c"])
def test_a_malformed_entry_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a host"):
        AllowedHosts.parse(text)


def test_a_mail_server_is_parsed_and_its_password_hidden() -> None:
    server = MailServer.parse("smtp://us%40er:p%3Aw@mail.example.com?starttls=always")
    assert (server.host, server.port, server.username, server.password) == (
        "mail.example.com",
        587,
        "us@er",
        "p:w",
    )
    assert (server.tls, server.starttls) == (False, True)
    assert "p:w" not in repr(server)
    plain = MailServer.parse("smtps://mail.example.com:2465")
    assert (plain.port, plain.tls, plain.starttls, plain.username) == (2465, True, False, None)
    assert MailServer.parse("smtp://h:25").starttls is None


@pytest.mark.parametrize(
    "url",
    ["http://h", "smtp://", "smtp://h:x", "smtp://h?starttls=x", "smtp://h?a=b", "smtp://h/x"],
)
def test_a_malformed_mail_server_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"^[^:]*(:// |$|=)") as caught:
        MailServer.parse(url.replace("://", "://user:hunter2@"))
    assert "hunter2" not in str(caught.value)
