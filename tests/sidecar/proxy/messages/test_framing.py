"""What isn't a request, or could be two, is refused, recorded, and never reaches the data
source."""

import asyncio
from pathlib import Path

import pytest

from tests.runner import tiers
from tests.sidecar.proxy.raw_client import ask, get
from tests.support.proxy import ProxySetup, policy, proxy_setup

HOST = "Host: kb.test"


def request(*lines: str, body: str = "") -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1")


UNREADABLE = {
    # name: bytes. Each stands for a row of `proxy/RULES.md`, Framing or Bypasses.
    "http 0.9": b"GET /x\r\n\r\n",
    "http 2.0": request("GET /x HTTP/2.0", HOST),
    "http 1.2": request("GET /x HTTP/1.2", HOST),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    "unknown method": request("FOO /x HTTP/1.1", HOST),
    "lower-case method": request("get /x HTTP/1.1", HOST),
    "connect": request("CONNECT evil.test:443 HTTP/1.1", HOST),
    "connect without a port": request("CONNECT evil.test HTTP/1.1", HOST),
    "connect to a path": request("CONNECT /x HTTP/1.1", HOST),
    "asterisk": request("OPTIONS * HTTP/1.1", HOST),
    "absolute form": request("GET http://evil.test/x HTTP/1.1", HOST),
    "absolute form, other scheme": request("GET foo://evil.test/x HTTP/1.1", HOST),
    "absolute form, userinfo": request("GET http://u:p@evil.test/x HTTP/1.1", HOST),
    "upgrade": request("GET /x HTTP/1.1", HOST, "Connection: Upgrade", "Upgrade: websocket, foo"),
    "upgrade of a POST": request(
        "POST /x HTTP/1.1", HOST, "Connection: Upgrade", "Upgrade: websocket"
    ),
    "no host": request("GET /x HTTP/1.1"),
    "empty host": request("GET /x HTTP/1.1", "Host:"),
    "two hosts": request("GET /x HTTP/1.1", HOST, "Host: evil.test"),
    "host with userinfo": request("GET /x HTTP/1.1", "Host: a@b"),
    "host with a path": request("GET /x HTTP/1.1", "Host: a/b"),
    "host list": request("GET /x HTTP/1.1", "Host: a, b"),
    "host with a great port": request("GET /x HTTP/1.1", "Host: a:99999"),
    "host with a NUL": b"GET /x HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    "gzip coding": request(
        "POST /x HTTP/1.1", HOST, "Transfer-Encoding: gzip, chunked", body="0\r\n\r\n"
    ),
    "coding twice": request(
        "POST /x HTTP/1.1", HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked",
        body="0\r\n\r\n",
    ),
    "coding identity": request(
        "POST /x HTTP/1.1", HOST, "Transfer-Encoding: identity", body="0\r\n\r\n"
    ),
    "chunked with a tail": request(
        "POST /x HTTP/1.1", HOST, "Transfer-Encoding: chunked, x", body="0\r\n\r\n"
    ),
    "chunked on 1.0": request(
        "POST /x HTTP/1.0", HOST, "Transfer-Encoding: chunked", body="0\r\n\r\n"
    ),
    "length and chunked": request(
        "POST /x HTTP/1.1", HOST, "Content-Length: 5", "Transfer-Encoding: chunked",
        body="0\r\n\r\n",
    ),
    "chunked and length": request(
        "POST /x HTTP/1.1", HOST, "Transfer-Encoding: chunked", "Content-Length: 5",
        body="0\r\n\r\n",
    ),
    "length twice": request("POST /x HTTP/1.1", HOST, "Content-Length: 1", "Content-Length: 2"),
    "length twice alike": request(
        "POST /x HTTP/1.1", HOST, "Content-Length: 1", "Content-Length: 1", body="x"
    ),
    "length list": request("POST /x HTTP/1.1", HOST, "Content-Length: 1, 1", body="x"),
    "length with a sign": request("POST /x HTTP/1.1", HOST, "Content-Length: +3", body="xxx"),
    "length in hex": request("POST /x HTTP/1.1", HOST, "Content-Length: 0x3", body="xxx"),
    "length with an underscore": request(
        "POST /x HTTP/1.1", HOST, "Content-Length: 1_0", body="x" * 10
    ),
    "negative length": request("POST /x HTTP/1.1", HOST, "Content-Length: -1"),
    "folded field": request("GET /x HTTP/1.1", HOST, "X-A: 1", " 2"),
    "space before the colon": request("GET /x HTTP/1.1", HOST, "X-A : 1"),
    "bare LF": b"GET /x HTTP/1.1\nHost: kb\n\n",
    "bare CR": b"GET /x HTTP/1.1\r\nHost: kb\rX: 1\r\n\r\n",
    "NUL in a value": b"GET /x HTTP/1.1\r\nHost: kb\r\nX: a\x00b\r\n\r\n",
    "no colon": request("GET /x HTTP/1.1", HOST, "nonsense"),
    "name with a space": request("GET /x HTTP/1.1", HOST, "X A: 1"),
    "connection names host": request("GET /x HTTP/1.1", HOST, "Connection: host"),
    "connection names ours": request("GET /x HTTP/1.1", HOST, "Connection: x-sluice-user"),
    "connection names the type": request("GET /x HTTP/1.1", HOST, "Connection: content-type"),
    "a great line": request("GET /" + "x" * 20000 + " HTTP/1.1", HOST),
    "a great field": request("GET /x HTTP/1.1", HOST, "X-A: " + "x" * 20000),
    "many fields": request("GET /x HTTP/1.1", HOST, *(f"X-{n}: 1" for n in range(200))),
    "not HTTP": b"\x00\x01\x02\x03\r\n\r\n",
    "dot segments": request("GET /pub/../secret HTTP/1.1", HOST),
    "escaped dots": request("GET /pub/%2e%2e/secret HTTP/1.1", HOST),
    "dots with parameters": request("GET /pub/..;/secret HTTP/1.1", HOST),
    "two slashes": request("GET //secret HTTP/1.1", HOST),
    "three slashes": request("GET ///secret HTTP/1.1", HOST),
    "slashes inside": request("GET /pub//secret HTTP/1.1", HOST),
    "an authority in front": request("GET //h@x/secret HTTP/1.1", HOST),
    "escaped slash": request("GET /%2fsecret HTTP/1.1", HOST),
    "escaped backslash": request("GET /x%5c..%5csecret HTTP/1.1", HOST),
    "backslash": request("GET /x\\..\\secret HTTP/1.1", HOST),
    "fragment": request("GET /pub#/../secret HTTP/1.1", HOST),
    "fragment at the end": request("GET /secret#x HTTP/1.1", HOST),
    "escaped twice": request("GET /a%252fb HTTP/1.1", HOST),
    "bad escape": request("GET /%zz HTTP/1.1", HOST),
    "escaped NUL": request("GET /secret%00 HTTP/1.1", HOST),
    "escaped line break": request("GET /secret%0d%0aX:1 HTTP/1.1", HOST),
    "overlong UTF-8": request("GET /%c0%ae%c0%ae/secret HTTP/1.1", HOST),
    "raw bytes above 127": b"GET /\xc3\xa4 HTTP/1.1\r\nHost: kb\r\n\r\n",
    "user stated twice": request(
        "GET /x HTTP/1.1", HOST, "X-Sluice-User: a", "x-sluice-user: b"
    ),
    "task stated twice": request(
        "GET /x HTTP/1.1", HOST, "X-Sluice-Task: a", "X-Sluice-Task: a"
    ),
    "an unknown level": request("GET /x HTTP/1.1", HOST, "X-Sluice-Sensitivity: none"),
    "an empty user": request("GET /x HTTP/1.1", HOST, "X-Sluice-User:"),
    "a long user": request("GET /x HTTP/1.1", HOST, "X-Sluice-User: " + "u" * 257),
    "a user that is not UTF-8": b"GET /x HTTP/1.1\r\nHost: kb\r\nX-Sluice-User: \xff\r\n\r\n",
    "user twice in baggage": request(
        "GET /x HTTP/1.1", HOST, "baggage: sluice.user=a,sluice.user=b"
    ),
    "a control character in baggage": request(
        "GET /x HTTP/1.1", HOST, "baggage: sluice.user=a%00b"
    ),
    "a long name": request("GET /" + "x" * 300 + " HTTP/1.1", HOST),
}  # fmt: skip


@tiers.sampled("name", each=2)
@pytest.mark.parametrize("name", UNREADABLE)
async def test_an_unreadable_request_is_refused_recorded_and_not_forwarded(
    setup: ProxySetup, name: str
) -> None:
    # What is refused is followed by a request that a parser in doubt would take for the next one.
    answered = await ask(setup.port, UNREADABLE[name])
    assert answered.status == 400, answered.raw[:300]
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert answered.fields["content-type"] == "application/json"
    body = answered.json
    assert (body["error"], body["code"]) == ("Bad Request", 400)
    assert body["decision"]["decision"] == "DENY"
    assert body["decision"]["policy_name"] == "unreadable_request"
    assert body["decision"]["event_id"] == answered.fields["x-sluice-event-id"]
    [(decision, policy_name, source)] = await setup.sidecar.decisions()
    assert (decision, policy_name) == ("DENY", "unreadable_request")
    assert source in setup.unread
    assert setup.upstream.begun == []


SMUGGLING = [
    "connect", "upgrade", "upgrade of a POST", "length and chunked", "chunked and length",
    "length twice", "gzip coding", "coding twice", "chunked on 1.0", "http 2.0", "folded field",
    "bare LF", "length with a sign", "two hosts", "connection names host", "not HTTP",
]  # fmt: skip


@pytest.mark.parametrize("name", SMUGGLING)
async def test_nothing_behind_a_refused_frame_is_read(setup: ProxySetup, name: str) -> None:
    answered = await ask(setup.port, UNREADABLE[name] + get("/behind"))
    assert answered.raw.count(b"HTTP/1.1 ") == 1
    assert answered.fields["connection"] == "close"
    [(decision, policy_name, source)] = await setup.sidecar.decisions()
    assert (decision, policy_name) == ("DENY", "unreadable_request")
    assert source in setup.unread
    assert setup.upstream.begun == []


async def test_data_that_follows_a_refused_connect_later_is_not_read(
    setup: ProxySetup,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n")
    first = await reader.readuntil(b"\r\n\r\n")
    writer.write(get("/x"))
    rest = await reader.read()
    writer.close()
    assert first.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))
    assert b"HTTP/1.1" not in rest
    assert setup.upstream.begun == []


async def test_a_denied_request_with_a_body_leaves_the_next_one_intact(setup: ProxySetup) -> None:
    denied = b"POST /secret HTTP/1.1\r\nHost: kb\r\nContent-Length: 27\r\n\r\n"
    answered = await ask(setup.port, denied + b"GET /smuggled HTTP/1.1\r\n\r\n\n" + get("/next"))
    assert answered.raw.count(b"HTTP/1.1 ") == 2
    assert answered.raw.startswith(b"HTTP/1.1 403 ")
    assert setup.upstream.targets == ["/next"]


async def test_a_denied_request_with_an_expected_body_ends_the_connection(
    setup: ProxySetup,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    expects = b"POST /secret HTTP/1.1\r\nHost: kb\r\nContent-Length: 27\r\nExpect: 100-continue"
    writer.write(expects + b"\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 403 " in head
    assert b"\r\nConnection: close\r\n" in head
    # The body is left out, and the next request must not be lost as a part of it.
    writer.write(get("/next"))
    assert b"HTTP/1.1" not in await reader.read()
    writer.close()
    assert setup.upstream.begun == []


async def test_each_request_on_a_connection_is_judged(setup: ProxySetup) -> None:
    plain = "GET {} HTTP/1.1\r\nHost: kb\r\n\r\n"
    targets = ["/a", "/secret", "/b", "/secret/x", "/c"]
    data = "".join(plain.format(target) for target in targets).encode()
    answered = await ask(setup.port, data)
    statuses = [part.split(b" ")[0] for part in answered.raw.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"403", b"200", b"403", b"200"]
    assert setup.upstream.targets == ["/a", "/b", "/c"]
    assert [each[0] for each in await setup.sidecar.decisions()] == [
        "ALLOW", "DENY", "ALLOW", "DENY", "ALLOW",
    ]  # fmt: skip


async def test_the_host_of_a_request_does_not_change_its_source(setup: ProxySetup) -> None:
    await ask(setup.port, get("/a", host="localhost:1"))
    [seen] = setup.upstream.seen
    assert seen.values("host") == [f"127.0.0.1:{setup.upstream.port}"]
    assert (await setup.sidecar.decisions())[0][2] == "rest://kb/a"


async def test_an_error_does_not_repeat_what_was_sent(setup: ProxySetup) -> None:
    answered = await ask(setup.port, b"GET /x HTTP/1.1\r\nsecret-in-a-broken-line\r\n\r\n")
    assert b"secret-in" not in answered.raw


async def test_an_idle_connection_and_a_slow_head_are_cut_off(tmp_path: Path) -> None:
    from dataclasses import replace

    from sidecar.proxy.limits import LIMITS

    # expires on purpose
    limits = replace(LIMITS, idle_seconds=0.3)
    async with proxy_setup(tmp_path, policy(), limits=limits) as made:
        for first in (b"", b"GET /x HTT", b"GET /x HTTP/1.1\r\nHost: kb\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
            writer.write(first)
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            writer.close()
        assert made.upstream.begun == []
