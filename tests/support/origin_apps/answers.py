"""Gives the responses of the Python origins, by path; the Node one and nginx do the same.

Any other path is answered with the received request, so that a test sees how it arrived. `asgi.py`
and `wsgi.py` serve them.
"""

import gzip
import json
from typing import NamedTuple

LARGE = b"0123456789abcdef" * 20_000
PACKED = gzip.compress(b"packed " * 100, mtime=0)
TEXT = "text/plain"


class Answer(NamedTuple):
    """`fields` without any that frame the body; `parts` is the body, in chunks where there are
    several and no length is given."""

    status: int
    fields: list[tuple[str, str]]
    parts: list[bytes]
    length: bool = True


def answer(method: str, target: str, fields: list[tuple[str, str]], body: bytes) -> Answer:
    """Return the answer to a request as it was received: its target raw, its fields' names in lower
    case."""
    path = target.partition("?")[0]
    if path.startswith("/status/") and path[8:].isdigit():
        return status(int(path[8:]))
    match path:
        case "/chunked":
            return Answer(200, [("Content-Type", TEXT)], [b"one ", b"two ", b"three"], length=False)
        case "/cookies":
            cookies = [("Set-Cookie", f"c{number}={number}; Path=/") for number in range(3)]
            return Answer(200, [("Content-Type", TEXT), *cookies, ("X-Same", "1")], [b"cookies"])
        case "/gzip":
            packed = [("Content-Type", TEXT), ("Content-Encoding", "gzip")]
            return Answer(200, packed, [PACKED])
        case "/large":
            return Answer(200, [("Content-Type", TEXT)], [LARGE])
        case "/large-chunked":
            return Answer(200, [("Content-Type", TEXT)], [LARGE[:70_000]] * 4, length=False)
        case "/etag":
            tag = [("ETag", '"1"'), ("Cache-Control", "max-age=60")]
            if ("if-none-match", '"1"') in fields:
                return Answer(304, tag, [])
            return Answer(200, [("Content-Type", TEXT), *tag], [b"tagged"])
        case "/ours":
            claims = [("X-Sluice-Decision", "ALLOW"), ("X-Sluice-Event-Id", "evt_forged")]
            return Answer(200, [("Content-Type", TEXT), *claims], [b"claims to be us"])
        case "/empty":
            return Answer(200, [("Content-Type", TEXT)], [b""])
        case "/redirect":
            return Answer(302, [("Location", "http://169.254.169.254/")], [b""])
    return echo(method, target, fields, body)


def status(number: int) -> Answer:
    if number in (204, 304):
        return Answer(number, [("X-Status", str(number))], [])
    return Answer(number, [("Content-Type", TEXT)], [b"status %d" % number])


def echo(method: str, target: str, fields: list[tuple[str, str]], body: bytes) -> Answer:
    seen = {
        "method": method,
        "target": target,
        "fields": sorted(fields),
        "body": body.decode("latin-1"),
    }
    return Answer(200, [("Content-Type", "application/json")], [json.dumps(seen).encode()])
