"""Sound requests, and mutations of them, for properties that hold for any bytes an agent may
send."""

import itertools
from typing import Any, NamedTuple

from hypothesis import strategies as st

from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.request_parser import HeadLimits, RequestMessage, RequestParser
from sidecar.proxy.limits import LIMITS

JSON = "Content-Type: application/json"
SOUND = {
    "rest": [
        b"GET /info/a HTTP/1.1\r\nHost: kb\r\n\r\n",
        b"GET /secret HTTP/1.1\r\nHost: kb\r\n\r\n",
        b"GET /info/a?x=1&y HTTP/1.1\r\nHost: kb\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
        b"GET /s%65cret/b HTTP/1.1\r\nHost: kb:80\r\nX-Sluice-User: ada\r\nX-A: b\r\n\r\n",
        b"POST /ask/a HTTP/1.1\r\nHost: kb\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /ask/secret HTTP/1.1\r\nHost: kb\r\nContent-Length: 5\r\n\r\nhello",
        (b"POST /ask/a HTTP/1.1\r\nHost: kb\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nhi\r\n0\r\n\r\n"),
        b"POST /info/a HTTP/1.1\r\nHost: kb\r\nContent-Length: 2\r\n\r\nhi",
        b"HEAD /info/a HTTP/1.1\r\nHost: kb\r\n\r\n",
        b"GET /info/a HTTP/1.0\r\nHost: kb\r\nConnection: keep-alive\r\n\r\n",
        (b"GET /info/a HTTP/1.1\r\nHost: kb\r\nConnection: close\r\n"
        b"baggage: a=1,sluice.user=x\r\n\r\n"),
    ],
    "qdrant": [
        f"POST /collections/{name}/points/{verb} HTTP/1.1\r\nHost: kb\r\n{JSON}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        for name, verb, body in (
            ("open", "query", '{"query":[0.1]}'),
            ("shut", "query", '{"query":[0.1]}'),
            ("open", "query", '{"query":[0.1],"lookup_from":{"collection":"shut"}}'),
            ("open", "scroll", '{"limit":1,"filter":{"must":[]}}'),
            ("sh%75t", "query", '{"query":[0.1]}'),
            ("open", "query/batch", '{"searches":[{"query":[0.1]},{"query":1}]}'),
            ("alias", "query", '{"query":[0.1]}'),
        )
    ],
}  # fmt: skip
TOKENS = [
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"/", b"//", b"..", b"/../", b"%2e", b"%2f", b"%",
    b"#", b"?", b";", b"\\", b"\0", b"\x7f", b"\xc3\xa9", b",", b"0", b"9", b"-", b"_", b"A",
    b"a", b"secret", b"shut", b"open", b"Host: evil\r\n", b"Content-Length: 0\r\n",
    b"Content-Length: 7\r\n", b"content-length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n", b"Connection: x-a\r\n", b"Expect: 100-continue\r\n",
    b"X-Sluice-User: eve\r\n", b"X-A: 1\r\n", b"X_Sluice_User: eve\r\n",
    b"X-Sluice-Sensitivity: critical\r\n", b"Upgrade: h2c\r\n", b"Content-Encoding: gzip\r\n",
    b"TE: trailers\r\n", b"HTTP/1.0", b"HTTP/1.1", b"GET ", b"POST ", b"\r\n\r\n",
    b'"query":1,', b'{"a":{"a":1,"a":2}}', b"\\u0073", b"{", b"}", b"0\r\n\r\n",
]  # fmt: skip


class Change(NamedTuple):
    """One mutation: at a place between 0 and 1."""

    how: str
    at: float
    token: bytes
    size: int

    def made(self, data: bytes) -> bytes:
        at = int(self.at * len(data))
        begin, piece, rest = data[:at], data[at : at + self.size], data[at + self.size :]
        if self.how == "insert":
            return begin + self.token + data[at:]
        if self.how == "replace":
            return begin + self.token + rest
        if self.how == "case":
            return begin + piece.swapcase() + rest
        if self.how == "line":
            lines = data.split(b"\r\n")
            line = int(self.at * len(lines))
            return b"\r\n".join([*lines[:line], lines[line % len(lines)], *lines[line:]])
        if self.how == "escape":
            return begin + b"".join(b"%%%02x" % byte for byte in piece[:2]) + data[at + 2 :]
        return begin + (piece * 2 if self.how == "twice" else b"") + rest


CHANGES = st.lists(
    st.builds(
        Change,
        st.sampled_from(["insert", "insert", "replace", "case", "line", "escape", "twice", "drop"]),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(TOKENS),
        st.integers(1, 12),
    ),
    max_size=3,
)
CUTS = st.lists(st.floats(0, 1), max_size=4)


class Sent(NamedTuple):
    """What one connection sends: `segments`, so many `turns` of the loop apart."""

    segments: list[bytes]
    turns: int

    @property
    def ends_whole(self) -> bool:
        """Whether the last message is there to its end, or none of it can be read."""
        head = HeadLimits(LIMITS.line_bytes, LIMITS.field_bytes, LIMITS.fields)
        parser = RequestParser(head, RequestMessage, BodyStream, lambda _message: None)
        tunnelled = parser.feed(b"".join(self.segments)) is not None
        return tunnelled or parser.failed or parser.message is None


@st.composite
def sendings(draw: Any, kind: str) -> Sent:
    """Some messages in a row, each changed a little, cut anywhere."""
    sent = b""
    for message, changes in draw(
        st.lists(st.tuples(st.sampled_from(SOUND[kind]), CHANGES), min_size=1, max_size=3)
    ):
        for change in changes:
            message = change.made(message)  # noqa: PLW2901
        sent += message
    cuts = sorted({int(cut * len(sent)) for cut in draw(CUTS)} | {0, len(sent)})
    segments = [sent[begin:end] for begin, end in itertools.pairwise(cuts)]
    return Sent(segments, draw(st.integers(0, 3)))
