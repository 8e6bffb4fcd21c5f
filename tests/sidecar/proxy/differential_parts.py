"""The parts of the requests of the differential test, and what becomes of each on its way through
the sidecar: a row of `DIFFERENCES` in `differential_cases.py`, or nothing.

Knows the parts. Knows no server.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One entry: its text, the row that it falls under, and how: `refused`; or `arrives`, the
    target that the server gets; or `lost`, the fields that it does not get; or `gives`, the
    status."""

    text: str
    row: str = ""
    refused: bool = False
    arrives: str = ""
    lost: tuple[str, ...] = ()
    gives: int = 0


def _refused(row: str, *texts: str) -> list[Part]:
    return [Part(text, row, refused=True) for text in texts]


def _same(*texts: str) -> list[Part]:
    return [Part(text) for text in texts]


def _lost(row: str, *lines: str) -> list[Part]:
    return [
        Part(line, row, lost=tuple(each.partition(":")[0].lower() for each in line.split("\r\n")))
        for line in lines
    ]


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

TARGETS = [
    *_same(
        "/", "/x", "/x/", "/a/b/c", "/a/b/c/", "/.hidden", "/a..b", "/...", "/a.b-c_d~e",
        "/$&'()*,=:@!", "/%C3%A4", "/a%20b", "/%22q%22", "/%F0%9F%98%80", "/a%3Bb", "/a%2Bb",
        "/" + "x" * 200, "/" + "/".join("abcdefghij"),
        "/x?", "/x?a=1&a=2", "/x?a=%2F%2f%zz", "/x?a=b?c", "/x?+%20", "/x?a[]=1", "/x?/../..//",
        "/x?" + "q" * 2000, "/x?a;b", "/x?%00%0a",
        "/status/200", "/status/201", "/status/202", "/status/204", "/status/304", "/status/400",
        "/status/401", "/status/403", "/status/404", "/status/410", "/status/429", "/status/500",
        "/status/503",
        "/chunked", "/cookies", "/gzip", "/large", "/large-chunked", "/etag", "/empty",
        "/redirect", "/files/a.txt", "/files/none.txt", "/files",
    ),
    Part("/ours", "ours"),
    Part("/%41", "canonical", arrives="/A"),
    Part("/%7Eu", "canonical", arrives="/~u"),
    Part("/a%2eb", "canonical", arrives="/a.b"),
    Part("/%c3%a4", "canonical", arrives="/%C3%A4"),
    Part("/a+b", "canonical", arrives="/a%2Bb"),
    Part("/a;b=c", "canonical", arrives="/a%3Bb=c"),
    Part("/%61/%62?%61", "canonical", arrives="/a/b?%61"),
    *_refused("dots", "/..", "/a/../b", "/./a", "/a/.", "/a/%2e%2e/x", "/..;/x", "/%2e/a"),
    *_refused("slashes", "//", "//a", "/a//b", "///a"),
    *_refused("escaped slash", "/a%2Fb", "/a%2fb", "/a%5Cb"),
    *_refused("backslash", "/a\\b"),
    *_refused("control", "/a%00", "/a%0ab", "/a%0d%0ab", "/%7f"),
    *_refused("twice", "/a%252e", "/%2541"),
    *_refused("bad escape", "/%zz", "/a%", "/a%4"),
    *_refused("not UTF-8", "/%c0%ae", "/%ff"),
    *_refused("fragment", "/a#b", "/a?b#c", "/#"),
    *_refused("raw bytes", "/\xe4", "/x?\xe4"),
    *_refused("form", "http://127.0.0.1/x", "x", "a/b"),
]  # fmt: skip

FIELDS = [
    *_same(
        "X-A: 1", "X-A: 1\r\nX-A: 2", "X-A: 1\r\nx-a: 2", "X-A:",
        "X-A: a\tb", 'X-A: "q, \\" r", s', "X-A: \xe4\xf6", "X-A: " + "v" * 4000, "X.A: 1",
        "x~a!: 1", "1: 2", "X_A: 1", "\r\n".join(f"X-{number}: {number}" for number in range(60)),
        "Accept: */*", "Accept-Encoding: gzip", "Accept-Encoding: identity;q=0, gzip",
        "Accept-Language: de, en;q=0.5", "User-Agent: grid/1", "Referer: http://a.test/%2F",
    ),
    *_refused("foreign", "Origin: null"),
    *_same(
        "Cookie: a=1; b=2", "Authorization: Bearer abc", "Cache-Control: no-cache",
        "Pragma: no-cache", "If-None-Match: \"1\"", "If-None-Match: \"2\", \"1\"",
        "If-Match: \"none\"", "If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT",
        "If-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT", "Range: bytes=0-9",
        "Range: bytes=5-", "Range: bytes=-5", "Range: bytes=9999-", "Range: bytes=0-1,4-5",
        "Range: lines=1-2", "Range: bytes=0-9\r\nIf-Range: \"none\"",
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate: a=b", "baggage: a=1,b=2;c=d", "Content-Language: de",
        "Max-Forwards: 0", "Date: Sat, 01 Jan 2000 00:00:00 GMT", "Via: 1.1 elsewhere", "From: a@b",
        "X-Request-Id: 7", "DNT: 1", "Sec-Fetch-Mode: cors", "Server: x", "Set-Cookie: a=b",
    ),
    *_lost("hop", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "TE: trailers",
           "TE: gzip", "Trailer: X-Sum", "Proxy-Authorization: Basic YTpi",
           "Proxy-Authenticate: Basic", "HTTP2-Settings: AAMAAABkAAQAAP__",
           "Connection: keep-alive", "Connection: X-A\r\nX-A: 1",
           "Connection:\r\nConnection: x-a, X-B\r\nX-A: 1\r\nX-B: 2"),
    Part("Connection: X-A\r\nX-B: 1", "hop", lost=("connection",)),
    *_lost("claims", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https",
           "X-Forwarded-Host: evil.test", "X-Forwarded-Prefix: /admin", "Forwarded: for=1.2.3.4",
           "X-Real-IP: 1.2.3.4", "X-Original-URL: /admin", "X-Rewrite-URL: /admin",
           "X-HTTP-Method-Override: DELETE", "X-Method-Override: PUT", "X_Forwarded_For: 1.2.3.4"),
    *_lost("ours", "X-Sluice-User: ann", "X-Sluice-Task: t", "X-Sluice-Sensitivity: medium",
           "X_Sluice_User: ann", "X-Sluice-Decision: ALLOW", "baggage: sluice.user=ann"),
    Part("X-A:   spaced \t ", "spaces"),
    # Together with `Connection: Upgrade` some servers drop the body of the request.
    *_lost("hop", "Upgrade: h2c"),
    *_refused("tunnel", "Connection: Upgrade\r\nUpgrade: websocket, foo"),
    *_refused("connection", "Connection: host", "Connection: content-length",
              "Connection: authorization", "Connection: X-Sluice-User"),
    *_refused("user", "X-Sluice-User: a\r\nX-Sluice-User: b", "X-Sluice-Sensitivity: odd"),
    *_refused("too much", "X-A: " + "v" * 17_000,
              "\r\n".join(f"X-{number}: {number}" for number in range(200))),
    *_refused("lenient", "X-A : 1", "X A: 1", "X-A: 1\r\n 2", "X-A: a\x00b", "nonsense",
              "X-A: a\rb", ": 1", "X-A\x7f: 1"),
    *_refused("two lengths", "Content-Length: 0\r\nContent-Length: 0", "Content-Length: 0, 0"),
    *_refused("host", "Host: evil.test"),
]  # fmt: skip

_CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"
BODIES = [
    *_same(
        "Content-Length: 0\r\n\r\n", "Content-Length: 1\r\n\r\nx",
        "Content-Length: 3\r\n\r\n\x00\xff\n",
        "Content-Length: 1000\r\n\r\n" + "y" * 1000, "Content-Length: 70000\r\n\r\n" + "z" * 70000,
        "content-type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
        "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 5\r\n\r\na=b+c",
        _CHUNKED + "0\r\n\r\n", _CHUNKED + "3\r\nabc\r\n0\r\n\r\n",
        _CHUNKED + "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", _CHUNKED + "A\r\n0123456789\r\n0\r\n\r\n",
        _CHUNKED + "0003\r\nabc\r\n0\r\n\r\n",
        _CHUNKED + "ffff\r\n" + "w" * 65535 + "\r\n0\r\n\r\n",
    ),
    Part(_CHUNKED + "3;a=b\r\nabc\r\n0\r\n\r\n", "trailers"),
    Part(_CHUNKED + "3;a=\"b\"\r\nabc\r\n0;c\r\n\r\n", "trailers"),
    # Some servers take a trailer for a field.
    Part(_CHUNKED + "3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", "trailers", lost=("x-sum",)),
    Part("Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", "expect", lost=("expect",)),
    *_refused("coding", "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
              "Transfer-Encoding: identity\r\n\r\n",
              "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
              "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
              "Content-Length: 5\r\n" + _CHUNKED + "0\r\n\r\n"),
    *_refused("two lengths", "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy"),
    *_refused("lenient", "Content-Length: +1\r\n\r\nx", "Content-Length: 0x1\r\n\r\nx",
              "Content-Length: -1\r\n\r\n", "Content-Length: 1_0\r\n\r\n0123456789",
              "Content-Length: \r\n\r\n"),
]  # fmt: skip

RAW = {
    # What Node is told to answer by the byte.
    "length-and-chunked": Part("", "answer", gives=502),
    "two-lengths": Part("", "answer", gives=502),
    "nul": Part("", "answer", gives=502),
    "not-http": Part("", "answer", gives=502),
    "nothing": Part("", "silence", gives=502),
    "upgrade": Part("", "answer", gives=502),
    "short": Part("", "short"), "short-chunks": Part("", "short"),
    "to-the-end": Part(""), "old": Part(""),
    "reason": Part(""), "no-reason": Part(""), "odd-status": Part(""), "latin-1": Part(""),
    "same-twice": Part(""),
    "trailers": Part("", "trailers"), "extensions": Part("", "trailers"),
    "early": Part("", "interim"), "processing": Part("", "interim"), "hop": Part("", "hop"),
}  # fmt: skip
