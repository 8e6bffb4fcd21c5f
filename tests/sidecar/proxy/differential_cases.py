"""The requests of the differential test, and what may differ when one goes through the sidecar.

A request has a method, a target, fields and a body (`differential_parts.py`). Each part says what
becomes of it on the way, by the name of a row of `DIFFERENCES`. Without a row, the response must be
exactly the one that the server gives to a client of its own.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.sidecar.proxy.differential_parts import BODIES, FIELDS, RAW, TARGETS, Part
from tests.sidecar.proxy.messages.test_framing import UNREADABLE

DIFFERENCES = {
    # Refused here, whatever the server behind would have made of it.
    "dots": "a dot segment is resolved by one server and not by the next (`proxy/RULES.md`, B1)",
    "slashes": "an empty segment is merged by one server and not by the next (B2, B3)",
    "escaped slash": "`%2F` and `%5C` are separators to some (B2)",
    "backslash": "`\\` is a separator to some (B2)",
    "control": "an escaped control character ends a name for some (B24)",
    "twice": "a second layer of escapes is undone by some (A2)",
    "bad escape": "a `%` that escapes nothing is read in several ways (A2)",
    "not UTF-8": "overlong and broken UTF-8 is read in several ways (A2)",
    "fragment": "`#` has no place in a target; some cut it off (B4)",
    "raw bytes": "bytes above 127 have no place in a target, in the query neither",
    "form": "only a path is served: absolute form, authority and `*` name another thing (A1)",
    "tunnel": "CONNECT, and Upgrade to WebSocket in any other form, are refused (B13, B15)",
    "version": "other versions than 1.0 and 1.1 are refused (0 fact 7)",
    "coding": "a transfer coding other than exactly `chunked` on 1.1 (0 fact 7)",
    "two lengths": "a length that is stated twice, even alike (B14)",
    "foreign": "a port without a key takes its own names only, and no foreign origin (README)",
    "host": "an invalid host, or one that is there twice, or not at all (0 fact 7)",
    "lenient": "what the parser is strict about: bare LF, folded fields, spaces, odd bytes (A1)",
    "too much": "lines, fields and their number are bounded (limits.py)",
    "connection": "`Connection` names an end-to-end field (B12)",
    "user": "who speaks can't be read, or is stated twice (README, Attributed)",
    "long name": "a source's name is bounded (`CONTRACT.md`, Requests)",
    "method": "methods that the parser does not know (README, What is not relayed)",
    # Arrives in another form.
    "canonical": "a path arrives in its one form: what was judged is what is read (A2)",
    "hop": "hop-by-hop fields, and what Connection names, end here (RFC 9110 7.6.1)",
    "claims": "what only a proxy in front could say is not passed on (B8, B9, B25)",
    "ours": "X-Sluice-* and the baggage members sluice.* are for the sidecar, either way",
    "spaces": "spaces around a value are no part of it (RFC 9112 5.1); they are not passed on",
    "own host": "the server gets its own name, whatever the agent called it (B19)",
    "expect": "Expect is answered here, once the request is allowed (A1)",
    "trailers": "trailers and chunk extensions are not relayed (README)",
    # Comes back in another form.
    "answer": "an answer that is no HTTP, or can be read in two ways, is a 502 (A1)",
    "silence": "where the server ends the connection without an answer, the agent gets a 502",
    "unkept": "the server closes a connection that it said it keeps: the next request is a 502",
    "behind": "bytes behind an answer without body may be another one: a 502 if they come with it",
    "short": "of an answer that breaks off, what could be read comes; that it broke off is seen",
    "interim": "interim answers are not relayed (README)",
}


UNKEPT = 20
"""How many requests of a thousand may be lost so: nginx closes behind a 412, Node behind each
answer that it is told by the byte. haproxy now and then cuts one off that waits for a 100."""
HOST = b"host.placeholder"
"""Stands for the server's own name and port."""
CASES = 1000

# The rows of the corpus of what is unreadable, but for those of what the parser is strict about.
_ROWS = {
    "version": ("http 0.9", "http 2.0", "http 1.2"),
    "method": ("unknown method", "lower-case method"),
    "tunnel": ("connect", "connect without a port", "connect to a path", "upgrade",
               "upgrade of a POST"),
    "form": ("asterisk", "absolute form", "absolute form, other scheme",
             "absolute form, userinfo"),
    "host": ("no host", "empty host", "two hosts", "host with userinfo", "host with a path",
             "host list", "host with a great port"),
    "coding": ("gzip coding", "coding twice", "coding identity", "chunked with a tail",
               "chunked on 1.0", "length and chunked", "chunked and length"),
    "two lengths": ("length twice", "length twice alike", "length list"),
    "connection": ("connection names host", "connection names ours",
                   "connection names the type"),
    "too much": ("a great line", "a great field", "many fields"),
    "dots": ("dot segments", "escaped dots", "dots with parameters"),
    "slashes": ("two slashes", "three slashes", "slashes inside", "an authority in front"),
    "escaped slash": ("escaped slash", "escaped backslash"),
    "backslash": ("backslash",),
    "fragment": ("fragment", "fragment at the end"),
    "twice": ("escaped twice",),
    "bad escape": ("bad escape",),
    "control": ("escaped NUL", "escaped line break"),
    "not UTF-8": ("overlong UTF-8",),
    "raw bytes": ("raw bytes above 127",),
    "user": ("user stated twice", "task stated twice", "an unknown level", "an empty user",
             "a long user", "a user that is not UTF-8", "user twice in baggage",
             "a control character in baggage"),
    "long name": ("a long name",),
}  # fmt: skip
_ROW_OF = {label: row for row, labels in _ROWS.items() for label in labels}
_EMPTY = Part("\r\n")
_FULL = Part("Content-Length: 5\r\n\r\nhello")


@dataclass(frozen=True)
class Case:
    """One request. `rows` are those it falls under; `arrives` is the target that the server gets
    where it is another one, `lost` the fields that it does not get, `gives` the status where it is
    another one."""

    data: bytes
    rows: frozenset[str] = frozenset()
    refused: bool = False
    arrives: str = ""
    lost: frozenset[str] = frozenset()
    gives: int = 0
    ends: bool = False
    """Whether the client says that nothing follows, since a server might wait for it."""

    @property
    def method(self) -> bytes:
        return self.data.split(b" ", 1)[0]

    def sent(self, host: bytes, name: str) -> bytes:
        """The bytes to the server called `host`, with a field `X-Case` where there is a head."""
        data = self.data.replace(HOST, host)
        line, end, rest = data.partition(b"\r\n")
        return line + end + (b"X-Case: " + name.encode() + b"\r\n" if end else b"") + rest


def cases(name: str) -> list[Case]:
    """A thousand for the server called `name`, the same in every run."""
    found = list(dict.fromkeys(_systematic(name)))
    chance = random.Random(5)
    while len(found) < CASES:
        fields = _apart(chance.sample(FIELDS, chance.randint(0, 4)))
        method = chance.choice(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
        body = chance.choice(BODIES) if method in ("POST", "PUT", "PATCH", "DELETE") else _EMPTY
        found.append(case(method, chance.choice(TARGETS), fields, body))
    return [_behind(each) for each in found] if name == "waitress" else found


def _behind(each: Case) -> Case:
    """waitress ends in chunks the body that its answer to a HEAD does not have."""
    if each.refused or not each.data.startswith((b"HEAD /chunked ", b"HEAD /large-chunked ")):
        return each
    return replace(each, rows=each.rows | {"behind"})


def _systematic(name: str) -> Iterator[Case]:
    for target in TARGETS:
        yield case("GET", target)
        yield case("HEAD", target)
        yield case("POST", target, (), _FULL)
    for field in FIELDS:
        yield case("GET", Part("/x"), (field,))
        yield case("GET", Part("/files/a.txt"), (field,))
        yield case("POST", Part("/x"), (field,), _FULL)
    for body in BODIES:
        for method in ("POST", "PUT", "DELETE", "GET"):
            yield case(method, Part("/x"), (), body)
    for target in TARGETS[::4]:
        yield case("GET", target, (), _EMPTY, "HTTP/1.0")
    foreign = case("GET", Part("/x"), host="elsewhere.test")
    yield replace(foreign, rows=frozenset(("foreign",)), refused=True)
    for host in ("LOCALHOST:1", "[::1]:8080"):
        other = case("GET", Part("/x"), host=host)
        yield replace(other, rows=frozenset(("own host",)))
    for label, data in UNREADABLE.items():
        row = _ROW_OF.get(label, "lenient")
        yield Case(data, frozenset((row,)), refused=True, ends=True)
    if name == "node":
        for path, part in RAW.items():
            yield case("GET", Part(f"/raw/{path}", part.row, gives=part.gives))


def case(
    method: str,
    target: Part,
    fields: Sequence[Part] = (),
    body: Part = _EMPTY,
    version: str = "HTTP/1.1",
    host: str = HOST.decode(),
) -> Case:
    """The request of these parts."""
    parts = [target, *fields, body]
    lines = "".join(f"{field.text}\r\n" for field in fields)
    head = f"{method} {target.text} {version}\r\nHost: {host}\r\n{lines}"
    refused = any(part.refused for part in parts)
    return Case(
        (head + body.text).encode("latin-1"),
        frozenset(part.row for part in parts if part.row),
        refused,
        target.arrives,
        frozenset(name for part in parts for name in part.lost),
        max(part.gives for part in parts),
        ends=refused,
    )


def _apart(fields: list[Part]) -> list[Part]:
    """Those that have no name in common with one before."""
    taken: set[str] = {"host", "content-length"}
    kept = []
    for field in fields:
        names = {line.partition(":")[0].strip().lower() for line in field.text.split("\r\n")}
        if not names & taken:
            taken |= names
            kept.append(field)
    return kept
