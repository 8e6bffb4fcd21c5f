"""Which names a port without a key takes, and which pages may send to it."""

import pytest

from policies.ground.addresses import ListenAddress
from policies.ground.errors import Malformed
from sidecar.http.port_names import ForeignRequest, PortNames


def names(listen: str = "127.0.0.1:8710", *hosts: str, buckets: bool = False) -> PortNames:
    return PortNames(ListenAddress.parse(listen), hosts, buckets=buckets)


def takes(port: PortNames, host: str, local: str = "127.0.0.1") -> bool:
    try:
        port.check_host([(b"Host", host.encode())], local)
    except ForeignRequest:
        return False
    return True


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "localhost:1",
        "127.0.0.1:8710",
        "127.9.9.9",
        "[::1]",
        "[0:0::1]:9",
    ],
)
@pytest.mark.parametrize("listen", ["127.0.0.1:8710", "*:8710", "10.0.0.9:8710", "[::]:8710"])
def test_every_port_takes_the_names_of_loopback(listen: str, host: str) -> None:
    assert takes(names(listen), host, "10.0.0.9")


@pytest.mark.parametrize(
    ("listen", "local", "host", "taken"),
    [
        ("*:8710", "10.1.2.3", "10.1.2.3:8710", True),
        ("*:8710", "::ffff:10.1.2.3", "10.1.2.3", True),
        ("*:8710", "fd00::9", "[FD00:0::9]:8710", True),
        ("*:8710", "fe80::9%eth0", "[fe80::9]", True),
        ("*:8710", "10.1.2.3", "10.1.2.4", False),
        ("sluice.internal:8710", "10.1.2.3", "SLUICE.internal.", True),
        ("127.0.0.1:8710", "127.0.0.1", "rebound.example", False),
        ("127.0.0.1:8710", "127.0.0.1", "localhost.rebound.example", False),
        ("127.0.0.1:8710", "127.0.0.1", "127.0.0.1.rebound.example", False),
        ("127.0.0.1:8710", "127.0.0.1", "x.localhost", False),
        ("127.0.0.1:8710", "127.0.0.1", "0.0.0.0", False),
    ],
)
def test_a_port_takes_its_own_address(listen: str, local: str, host: str, taken: bool) -> None:
    assert takes(names(listen), host, local) is taken


def test_configured_hosts_are_compared_in_canonical_form_and_with_their_port() -> None:
    port = names("127.0.0.1:8710", "kb", "*.kb.test", "only.test:8710")
    for host in ("kb", "KB.", "kb:9", "a.b.kb.test", "only.test:8710"):
        assert takes(port, host), host
    for host in ("kb.test", "xkb", "only.test", "only.test:8711", "kb.evil"):
        assert not takes(port, host), host


def test_names_with_a_bucket_are_accepted_before_each_host_name_but_no_address() -> None:
    port = names("*:8710", "s3.test", "10.0.0.1", buckets=True)
    for host in ("open.s3.test", "a.b.s3.test", "open.localhost", "10.0.0.1"):
        assert takes(port, host), host
    assert not takes(port, "s3.test.evil")
    assert not takes(names("*:8710", "s3.test"), "open.s3.test")
    with pytest.raises(Malformed):
        takes(port, "open.10.0.0.1")


@pytest.mark.parametrize("host", ["", "a b", "a,b", "user@localhost", "localhost:99999", "127.1"])
def test_a_text_that_is_not_a_host_is_malformed(host: str) -> None:
    with pytest.raises(Malformed):
        names().check_host([(b"host", host.encode())], "127.0.0.1")


def test_two_host_headers_are_malformed_and_a_missing_one_is_accepted() -> None:
    with pytest.raises(Malformed):
        names().check_host([(b"Host", b"localhost"), (b"host", b"localhost")], "127.0.0.1")
    names().check_host([], None)


@pytest.mark.parametrize(
    ("fields", "own"),
    [
        ({}, True),
        ({"Origin": "http://localhost:8710"}, True),
        ({"Origin": "HTTP://LOCALHOST.:8710"}, True),
        ({"Origin": "http://app.test"}, True),
        ({"Origin": "https://app.test:444"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "http://localhost:3000"}, False),
        ({"Origin": "http://127.0.0.1:8710"}, False),
        ({"Origin": "http://rebound.example:8710"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "file://"}, False),
        ({"Origin": "http://localhost:8710/path"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "Cross-Site"}, False),
        ({"Origin": "http://localhost:8710", "sec-fetch-site": "cross-site"}, False),
    ],
)
def test_only_pages_of_the_port_itself_or_of_a_configured_host_may_send(
    fields: dict[str, str], own: bool
) -> None:
    port = names("127.0.0.1:8710", "app.test")
    sent = [(b"Host", b"localhost:8710")]
    sent += [(name.encode(), value.encode()) for name, value in fields.items()]
    if own:
        port.check_origin(sent)
        return
    with pytest.raises(ForeignRequest) as refused:
        port.check_origin(sent)
    assert refused.value.cause == "origin"
