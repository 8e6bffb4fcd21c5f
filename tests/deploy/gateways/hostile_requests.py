"""Requests that a gateway and Sluice could read in two ways: the proxy's own table of ways past
proxies, and forms that are about a gateway."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

from tests.deploy.gateways.protected import Protected
from tests.deploy.gateways.raw_requests import get, send
from tests.sidecar.proxy.bypasses import BYPASSES, PASSING, request

HOST = "Host: kb.test"
BEHIND = b"GET /admin HTTP/1.1\r\nHost: kb.test\r\n\r\n"
SHAPES = (
    # Other forms of a target, and other versions.
    *(
        request(f"{line} HTTP/1.1", HOST)
        for line in (
            "GET http://kb.test/admin", "GET http://admin/info/a", "GET http://kb.test//admin",
            "GET http://kb.test/info/../admin", "GET http://kb.test", "GET http:///admin",
            "GET https://kb.test/admin", "CONNECT 127.0.0.1:9000", "CONNECT /admin",
            "CONNECT http://kb.test/info/a", "OPTIONS *", "GET *", "GET info/a", "GET ?/info/a",
            "GET /info/a /admin", "PRI *",
        )
    ),
    request("GET /admin HTTP/1.0", HOST), request("GET /info/a HTTP/1.0"),
    b"GET /admin\r\n", b"GET /info/a\r\n\r\n", request("GET /admin HTTP/1.9", HOST),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    # Another host, or two.
    request("GET /admin HTTP/1.1", "Host: admin"), request("GET /info/a HTTP/1.1", "Host: admin"),
    request("GET /admin HTTP/1.1", "Host: kb.test, admin"), request("GET /info/a HTTP/1.1"),
    # One request in another.
    get("/info/a", method="POST", body=BEHIND),
    request("GET /info/a HTTP/1.1", HOST, "Content-Length: 46") + BEHIND,
    request("GET /info/a HTTP/1.1", HOST) + BEHIND + request("GET /pub/a HTTP/1.1", HOST),
    request("GET /info/a HTTP/1.1", HOST, "Content-Length: 5", "Transfer-Encoding: chunked")
    + b"0\r\n\r\n" + BEHIND,
    request("GET /info/a HTTP/1.1", HOST, "Transfer-Encoding: chunked")
    + b"3;x=\"\n\"\r\nabc\r\n0\r\nX-Sluice-User: mallory\r\nX-Api-Key: x\r\n\r\n" + BEHIND,
    request("GET /info/a HTTP/1.1", HOST, "Transfer-Encoding: chunked")
    + b"FFFFFFFFFFFFFFFF0\r\n" + BEHIND,
    request("GET /info/a HTTP/1.1", HOST, "X: y\rGET /admin HTTP/1.1"),
    request("GET /info/a HTTP/1.1", HOST, "X: y\nX-Sluice-User: mallory"),
    request("GET /info/a HTTP/1.1", HOST, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
            "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
    request("GET /info/a HTTP/1.1", HOST, "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"),
    # More than a head may have.
    request("GET /admin HTTP/1.1", HOST, *(f"X-{number}: {number}" for number in range(2000))),
    request("GET /info/a HTTP/1.1", HOST, f"X: {'x' * 100_000}"),
    request(f"GET /info/{'a' * 70_000} HTTP/1.1", HOST),
    request(f"GET /info/a?{'a' * 20_000} HTTP/1.1", HOST),
)  # fmt: skip


def check_what_passes(world: Protected, port: int) -> None:
    """Send all of them. What reaches the upstream has an ALLOW on record, of its very path."""
    world.upstream.take()
    table = [each.data for each in BYPASSES] + [each.data for each in PASSING]
    with ThreadPoolExecutor(16) as pool:  # some wait for the rest of a request
        statuses = list(pool.map(functools.partial(send, port), [*table, *SHAPES]))
    # They were sent, and read: whatever is refused, the request behind it often passes.
    assert sum(200 in each for each in statuses) > len(PASSING)
    assert world.unjudged(world.upstream.take()) == []
