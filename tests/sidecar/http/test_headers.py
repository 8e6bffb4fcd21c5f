"""Which header fields of a request are forwarded, and which are read."""

import tracemalloc

import pytest

from policies.ground.errors import Malformed
from sidecar.http.headers import sort_request_fields, without_own_baggage
from tests.support.proxy import ProxySetup


def fields(*lines: str) -> list[tuple[bytes, bytes]]:
    return [
        (name.encode(), value.strip().encode())
        for name, _, value in (line.partition(":") for line in lines)
    ]


def passed(*lines: str) -> list[str]:
    head = sort_request_fields(fields(*lines))
    return [f"{name.decode()}: {value.decode()}" for name, value in head]


HOP_BY_HOP = [
    "Connection: close",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: keep-alive",
    "Proxy-Authenticate: Basic",
    "Proxy-Authorization: Basic eA==",
    "TE: trailers",
    "Trailer: Expires",
    "Transfer-Encoding: chunked",
    "Upgrade: websocket",
    "HTTP2-Settings: AAMAAABk",
]


@pytest.mark.parametrize("line", HOP_BY_HOP)
def test_a_hop_by_hop_field_is_not_forwarded(line: str) -> None:
    assert passed(line, "Accept: x") == ["Accept: x"]
    assert passed(line.upper().replace("CLOSE", "close"), "Accept: x") == ["Accept: x"]


@pytest.mark.parametrize(
    "line",
    [
        "X-Forwarded-For: 1.2.3.4",
        "x-forwarded-host: evil",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Uri: /allowed",
        "X-Forwarded-Prefix: /x",
        "X_Forwarded_For: 1.2.3.4",
        "Forwarded: for=1.2.3.4",
        "X-Original-URL: /admin",
        "X-Original-Method: DELETE",
        "X_Original_URL: /admin",
        "X-Rewrite-URL: /admin",
        "X-Real-IP: 1.2.3.4",
        "X-HTTP-Method-Override: DELETE",
        "X-HTTP-Method: DELETE",
        "X-Method-Override: DELETE",
        "X_HTTP_Method_Override: DELETE",
        "X-Sluice-User: root",
        "x-sluice-anything: 1",
        "X_Sluice_User: root",
        "X-Sluice_User: root",
        "X_SLUICE-USER: root",
        "Content_Length: 5",
        "Transfer_Encoding: chunked",
        "Content_Type: text/plain",
    ],
)
def test_a_header_that_could_change_what_was_judged_is_not_forwarded(line: str) -> None:
    assert passed(line, "Accept: x") == ["Accept: x"]


def test_an_underscore_alone_does_not_prevent_forwarding() -> None:
    lines = ["api_key: 1", "X_Trace: 2", "Host_: x"]
    assert passed(*lines) == lines


def test_an_alias_of_an_own_header_is_not_read() -> None:
    head = sort_request_fields(fields("X_Sluice_User: root", "X-Sluice_User: root"))
    assert head.read == {}


def test_duplicates_are_forwarded_in_order_and_as_written() -> None:
    lines = ["X-Role: user", "x-role: admin", "Cookie: a=1", "cookie: b=2", "X-ROLE: again"]
    assert passed(*lines) == lines


def test_fields_that_connection_names_are_not_forwarded() -> None:
    assert passed("Connection: X-Hop, keep-alive", "X-Hop: 1", "x-hop: 2", "X-Stay: 3") == [
        "X-Stay: 3"
    ]


def test_every_line_of_connection_counts_after_an_empty_first_one_too() -> None:
    assert passed("Connection:", "Connection: X-Hop", "X-Hop: 1") == []


@pytest.mark.parametrize(
    "name",
    ["Host", "Content-Length", "content-type", "Content-Encoding", "Authorization", "Expect",
     "X-Sluice-User", "x_sluice_user"],
)  # fmt: skip
def test_connection_can_not_remove_a_field_that_decides_how_a_request_is_read(name: str) -> None:
    with pytest.raises(Malformed, match="Connection"):
        sort_request_fields(fields(f"Connection: close, {name}"))


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (["a=1,b=2;p=x"], ["a=1,b=2;p=x"]),
        (["sluice.user=ada"], []),
        (["a=1, sluice.user=ada ,b=2"], ["a=1,b=2"]),
        (["sluice.user=ada, a=1"], ["a=1"]),
        (["SLUICE.User=ada,a=1"], ["a=1"]),
        (["sluice.other=1", "x=1"], ["x=1"]),
        (["  spaced = 1 , sluiced=2 "], ["  spaced = 1 , sluiced=2 "]),
        ([""], [""]),
    ],
)
def test_only_own_members_are_removed_from_baggage(lines: list[str], kept: list[str]) -> None:
    result = without_own_baggage([line.encode() for line in lines])
    assert result == [line.encode() for line in kept]


def test_many_or_long_field_names_do_not_fill_memory() -> None:
    assert _held_after(short=0, long=200) < 1 << 19, "kept, they would take a megabyte"
    assert _held_after(short=6000, long=0) < 1 << 19, "kept, they would take more"


@pytest.mark.deep(stands_in="test_many_or_long_field_names_do_not_fill_memory")
def test_field_names_chosen_by_the_other_side_do_not_fill_memory() -> None:
    held = _held_after(short=10_000, long=10_000)
    assert held < 1 << 19, "10,000 short names would take more, and as many long ones 50 MB"


def _held_after(*, short: int, long: int) -> int:
    """The bytes that so many names leave in memory."""
    tracemalloc.start()
    try:
        for number in range(max(short, long)):
            names = [b"x-%d" % number] if number < short else []
            names += [b"x" * 5000 + b"%d" % number] if number < long else []
            sort_request_fields([(name, b"") for name in names])
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


async def test_a_cached_head_is_decided_anew_with_another_version_or_method(
    setup: ProxySetup,
) -> None:
    for line in ("GET /a HTTP/1.1", "GET /a HTTP/1.0", "GET /a HTTP/1.1", "CONNECT kb:1 HTTP/1.1"):
        answered = await setup.ask(f"{line}\r\nHost: kb\r\nX-A: 1\r\n\r\n".encode())
        assert answered.status == (400 if line.startswith("CONNECT") else 200)
    chunked = "Host: kb\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert (await setup.ask(f"POST /a HTTP/1.1\r\n{chunked}".encode())).status == 200
    assert (await setup.ask(f"POST /a HTTP/1.0\r\n{chunked}".encode())).status == 400
