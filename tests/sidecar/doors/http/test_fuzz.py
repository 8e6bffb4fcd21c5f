"""Malformed checks by the thousand: no status that a gateway takes for leave, no ALLOW without its
record."""

import asyncio
import random
import re
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from policies.ground.keys import make_key
from tests.sidecar.doors.http.checks import Checks, checks, question
from tests.sidecar.proxy.mutated_requests import TOKENS
from tests.support.fake_control_api import EVALUATE_KEY, policy
from tests.support.properties import chance, few

CHECKS = 20_000
AT_ONCE = 32
STATUSES = {200, 400, 401, 403, 404, 413}
KEYS = (EVALUATE_KEY, EVALUATE_KEY, EVALUATE_KEY, None, make_key(b"x" * 32), "x")
TARGETS = ("/a", "/b", "/a?x=1", "/a/%2e%2e/b", "/s%65cret", "/", "/a b", "/a%zz", "//a", "/\xff")
FIELDS = (
    ("X-Sluice-User", "ada"),
    ("X-Sluice-Sensitivity", "critical"),
    ("X-Forwarded-Uri", "/a"),
    ("X-Original-URL", "http://h/a"),
    ("X-Original-Method", "GET"),
    ("Authorization", "Bearer x"),
    ("Content-Length", "3"),
    ("Transfer-Encoding", "chunked"),
    ("Connection", "close, X-Sluice-User"),
    ("Expect", "100-continue"),
    ("Upgrade", "websocket"),
    ("x-envoy-auth-partial-body", "true"),
    ("baggage", "sluice.user=x,sluice.user=y"),
    ("traceparent", "00-x"),
)
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3}) ")


def mutated(draw: random.Random) -> bytes:
    """A check, sound or not."""
    fields = [draw.choice(FIELDS) for _ in range(draw.choice((0, 0, 0, 1, 2)))]
    data = question(
        draw.choice(("edge", "nginx", "ingress", "mesh", "edge", "own", "none")),
        draw.choice(("GET", "GET", "GET", "GET", "HEAD", "POST", "get", "")),
        draw.choice(("/a", draw.choice(TARGETS))),
        fields,
        draw.choice((b"", b"", b"{}", b"x" * 40)),
        draw.choice(KEYS),
    )
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        at = draw.randrange(len(data))
        size = draw.choice((0, 1, 3, 9))
        piece = draw.choice((draw.choice(TOKENS), draw.randbytes(3), data[at : at + size] * 2))
        data = data[:at] + piece + data[at + size :]
    return data


async def answered(asked: Checks, data: bytes) -> bytes:
    """All that comes back on a connection whose client sends this and no more."""
    address = asked.running.address
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def fuzz(folder: Path, count: int, draw: random.Random) -> Counter[int]:
    """The statuses of the first answers. Raises `AssertionError` for one that should not be."""
    statuses: Counter[int] = Counter()
    events: set[str] = set()
    async with AsyncExitStack() as stack:
        allowed = policy(allowed_sources=("rest://crm/a*",))
        asked = await stack.enter_async_context(checks(folder, allowed))
        for _ in range(count // AT_ONCE):
            sent = [mutated(draw) for _ in range(AT_ONCE)]
            for data, back in zip(
                sent, await asyncio.gather(*(answered(asked, each) for each in sent)), strict=True
            ):
                # A mutation may make two requests of one.
                for head in re.findall(rb"HTTP/1\.1 \d{3} .*?\r\n\r\n", back, re.DOTALL):
                    found = _STATUS.match(head)
                    assert found is not None
                    status = int(found[1])
                    # Elsewhere than at a door, the API answers.
                    if b"/v1/check/" in data:
                        assert status in STATUSES | {100}, (data, head)
                    statuses[status] += 1
                    if status == 200:
                        assert b"X-Sluice-Decision: ALLOW\r\n" in head, (data, head)
                        event = re.search(rb"X-Sluice-Event-Id: (\S+)", head)
                        assert event is not None, (data, head)
                        events.add(event[1].decode())
        recorded = {
            record["eid"]
            for record in await asked.running.records()
            if record["kind"] == "decision" and record["pub"]["response"]["decision"] == "ALLOW"
        }
        assert events <= recorded
    return statuses


def test_no_malformed_check_gets_leave() -> None:
    with tempfile.TemporaryDirectory() as folder:
        statuses = asyncio.run(fuzz(Path(folder), few(CHECKS), chance("malformed checks")))
    # The checks reach the doors, and not all of them are refused.
    assert {200, 400, 401, 403, 404} <= set(statuses)
    assert statuses[200] > sum(statuses.values()) // 100
