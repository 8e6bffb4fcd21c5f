"""A thousand requests to each of five servers, straight and through the sidecar: the same response,
or a difference that a table lists with its reason.

A missing server is skipped; `tests/servers.py` says how to install it.
"""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.sidecar.proxy.differential_cases import DIFFERENCES, UNKEPT, Case, cases
from tests.sidecar.proxy.differential_client import Result, exchange
from tests.support import origins
from tests.support.origins import Origin
from tests.support.proxy import listening, sidecar, source

AT_ONCE = 16

# Of a hop, and not of an answer: who frames a body or keeps a connection says so anew. `Date` is
# of the second in which it is written.
HOP = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"date"))
GONE = frozenset((b"proxy-authenticate", b"trailer", b"upgrade"))
OURS = b"x-sluice-"
# nginx counts them: every answer in parts has another one.
_BOUNDARY = re.compile(rb"\d{20}")
# A server that answers so, or not at all, has not served the request.
REFUSALS = frozenset((400, 405, 408, 411, 413, 414, 415, 417, 421, 426, 431, 500, 501, 505))


@dataclass(frozen=True)
class Pair:
    """What became of a request both ways."""

    case: Case
    number: int
    straight: Result | None
    through: Result | None
    again: int
    """How often it was asked again, since the connection it went over was lost."""


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_relayed_responses.py::test_an_answer_arrives_as_it_was_sent"
)
@pytest.mark.parametrize("name", origins.ALL)
def test_answers_are_the_same_direct_and_through_the_sidecar(tmp_path: Path, name: str) -> None:
    with origins.ALL[name](tmp_path) as origin:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            pairs = runner.run(run(tmp_path, origin))
        host = f"127.0.0.1:{origin.port}"
        arrived = origin.cases()
    assert len(pairs) >= 1000
    assert sum(pair.again for pair in pairs) <= UNKEPT
    wrong = [f"{told}: {shown(pair)}" for pair in pairs for told in faults(pair, host)]
    assert not wrong, f"{len(wrong)} of {len(pairs)}\n" + "\n".join(wrong[:40])
    denied = {f"p{pair.number:04}" for pair in pairs if pair.through and refused(pair.through)}
    assert denied
    assert not denied & arrived


def test_every_listed_difference_occurs_in_a_case() -> None:
    met = {row for name in origins.ALL for each in cases(name) for row in each.rows}
    assert met | {"unkept"} == set(DIFFERENCES)


async def run(tmp_path: Path, origin: Origin) -> list[Pair]:
    """Every case both ways, some at once."""
    made = cases(origin.name)
    host = f"127.0.0.1:{origin.port}".encode()
    room = asyncio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as stack:
        beside = await stack.enter_async_context(sidecar(tmp_path))
        configured = source(origin.port, writes="allow")
        port = await stack.enter_async_context(listening(beside, configured))

        async def one(number: int, case: Case) -> Pair:
            empty = case.method == b"HEAD"

            async def ask(at: int, way: str) -> Result | None:
                data = case.sent(host, f"{way}{number:04}")
                return await exchange(at, data, head_only=empty, ends=case.ends)

            async with room:
                straight, through = await asyncio.gather(ask(origin.port, "d"), ask(port, "p"))
                again = 0
                while lost(case, straight, through) and again < 3:
                    again += 1
                    straight, through = await asyncio.gather(ask(origin.port, "d"), ask(port, "p"))
                return Pair(case, number, straight, through, again)

        return list(await asyncio.gather(*(one(*each) for each in enumerate(made))))


def refused(result: Result) -> bool:
    return result.value(b"x-sluice-decision") == b"DENY"


def lost(case: Case, straight: Result | None, through: Result | None) -> bool:
    """Whether this is the row `unkept`, or might be."""
    if straight is None or through is None or case.gives or case.rows & {"behind", "short"}:
        return False
    return (straight.status != 502 and through.status == 502) or not straight.whole


def faults(pair: Pair, host: str) -> list[str]:
    """What is wrong, in words."""
    case, straight, through = pair.case, pair.straight, pair.through
    if through is None:
        return ["no answer through the sidecar"]
    if refused(through):
        if through.status != 400 and not (through.status == 403 and "foreign" in case.rows):
            return [f"refused with {through.status}"]
        served = straight is not None and straight.status not in REFUSALS
        return ["refused here and served there"] if served and not case.refused else []
    if case.refused:
        return ["not refused"]
    if "behind" in case.rows and through.status == 502:
        return []
    if case.gives or straight is None:
        gives = case.gives or 502
        return [] if through.status == gives else [f"not answered with {gives}"]
    return differences(case, straight, through, host)


def differences(case: Case, straight: Result, through: Result, host: str) -> list[str]:
    wrong = []
    if (straight.status, straight.reason) != (through.status, through.reason):
        wrong.append("another status")
    if fields_of(straight) != fields_of(through):
        wrong.append("other fields")
    if straight.whole != through.whole:
        wrong.append("another end")
    echoed = echo_of(straight)
    if "short" in case.rows:
        if straight.whole or not straight.body.startswith(through.body):
            wrong.append("more than came")
    elif echoed is None:
        if _BOUNDARY.sub(b"", straight.body) != _BOUNDARY.sub(b"", through.body):
            wrong.append("another body")
    elif changed(echoed, case, host) != echo_of(through):
        wrong.append(f"another request: {changed(echoed, case, host)} became {echo_of(through)}")
    elif straight.value(b"content-length") is None != through.value(b"content-length") is None:
        wrong.append("another frame")
    return wrong


def fields_of(result: Result) -> list[tuple[bytes, bytes]]:
    """In order, as written, without those of the hop and the sidecar's own."""
    named = {
        token.strip().lower()
        for name, value in result.fields
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    without = HOP | GONE | named
    return [
        (name, _BOUNDARY.sub(b"", value))
        for name, value in result.fields
        if name.lower() not in without and not name.lower().startswith(OURS)
    ]


def echo_of(result: Result) -> dict[str, Any] | None:
    """What the server says that it received; None where it answered something else."""
    if result.value(b"content-type") != b"application/json" or not result.body:
        return None
    seen: dict[str, Any] = json.loads(result.body)
    if "fields" not in seen:
        return None
    # haproxy tells a server behind it which connections stay.
    seen["fields"] = [each for each in seen["fields"] if each[0] not in ("x-case", "connection")]
    return seen


def changed(seen: dict[str, Any], case: Case, host: str) -> dict[str, Any]:
    """What the server would have received through the sidecar, by what it received straight."""
    kept = [each for each in seen["fields"] if each[0] not in case.lost]
    if "spaces" in case.rows:
        kept = [[name, value.strip(" \t")] for name, value in kept]
    if "own host" in case.rows:
        kept = [[name, host if name == "host" else value] for name, value in kept]
    return {**seen, "target": case.arrives or seen["target"], "fields": kept}


def shown(pair: Pair) -> str:
    def brief(result: Result | None) -> str:
        return "nothing" if result is None else f"{result.status} {result.fields} {result.body!r}"

    data = pair.case.data[:120]
    ways = f"straight {brief(pair.straight)[:500]}\n    through {brief(pair.through)[:500]}"
    return f"{data!r}\n    {ways}"
