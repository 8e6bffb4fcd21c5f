"""The corpus of the proxy's tests on the sidecar's own port: no bytes that belong to one request
are taken for another."""

import itertools
import re
from collections.abc import Iterator

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.own_loop import RunnerAndSidecar, sidecar_with_runner
from tests.sidecar.proxy.bypasses import BYPASSES, Bypass
from tests.sidecar.proxy.mutated_requests import CHANGES, CUTS, Change
from tests.sidecar.proxy.segmented_agent import Agent
from tests.sidecar.wire import GOOD, request, with_key
from tests.support.properties import examples
from tests.support.sidecar import EVALUATE, RunningSidecar

# Host, framing, control characters and methods. The other rows are about what is forwarded.
_ROWS = (6, 14, 24, 25)
FRAMINGS = [each for each in BYPASSES if each.row in _ROWS and each.last]

_ANSWER = re.compile(rb"HTTP/1.1 (\d+) (?s:.*?)\r\n\r\n(\{.*?\}(?=HTTP|\Z))?").findall

SMUGGLED = request(with_key(), GOOD.replace(b'"contracts"', b'"smuggled"'))


@pytest.fixture(scope="module")
def runner_and_sidecar() -> Iterator[RunnerAndSidecar]:
    with sidecar_with_runner() as started:
        yield started


async def _talk(served: RunningSidecar, segments: list[bytes]) -> tuple[bytes, list[str]]:
    """What comes back, and the sources that were decided about."""
    before = len(await served.records())
    agent = Agent(served.ports[0])
    await agent.send(segments, 1)
    agent.end()
    received = await agent.received_once(lambda _: False)
    decided = [each for each in (await served.records())[before:] if each["kind"] == "decision"]
    return received, [each["pub"]["request"]["source_id"] for each in decided]


@pytest.mark.parametrize("case", FRAMINGS, ids=lambda case: f"{case.row}-{case.data[:90]!r}")
@pytest.mark.parametrize("pieces", [1, 3])
def test_nothing_behind_a_doubtful_head_is_read(
    runner_and_sidecar: RunnerAndSidecar, case: Bypass, pieces: int
) -> None:
    runner, served = runner_and_sidecar
    data = re.sub(rb" /info/a", b" " + EVALUATE.encode(), case.data, count=1)
    data = data.replace(b"\r\n\r\n", b"\r\n" + with_key() + b"\r\n", 1) + SMUGGLED
    size = -(-len(data) // pieces)
    segments = [data[at : at + size] for at in range(0, len(data), size)]
    received, decided = runner.run(_talk(served, segments))
    assert received.startswith(b"HTTP/1.1 400 "), received[:200]
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in received
    assert decided == []


SOUND = [
    request(with_key(), GOOD),
    request(b"X-A: b\r\n" + with_key(), GOOD.replace(b'"high"', b'"low"')),
    request(b"Connection: keep-alive\r\n" + with_key(), GOOD),
    f"GET {EVALUATE} HTTP/1.1\r\nHost: a\r\n\r\n".encode(),
    b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
]


@pytest.mark.deep(
    stands_in="tests/sidecar/api/test_requests_in_one_turn.py::test_messages_are_separated_however_they_are_split"
)
@given(
    messages=st.lists(st.tuples(st.sampled_from(SOUND), CHANGES), min_size=1, max_size=3),
    cuts=CUTS,
)
@examples(150)
def test_a_split_anywhere_leads_to_the_same_decision(
    runner_and_sidecar: RunnerAndSidecar,
    messages: list[tuple[bytes, list[Change]]],
    cuts: list[float],
) -> None:
    runner, served = runner_and_sidecar
    data = b""
    for message, changes in messages:
        for change in changes:
            message = change.made(message)  # noqa: PLW2901
        data += message
    at = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
    segments = [data[begin:end] for begin, end in itertools.pairwise(at)]
    whole, cut = runner.run(_talk(served, [data])), runner.run(_talk(served, segments))
    assert _told(whole[0]) == _told(cut[0])
    assert whole[1] == cut[1]
    # Each decision has its answer, and each answer with a decision its record.
    assert whole[0].count(b"X-Sluice-Event-Id: ") == len(whole[1])


def _told(received: bytes) -> list[object]:
    """Status and decision of each answer."""
    found: list[object] = []
    for head, body in _ANSWER(received):
        told = orjson.loads(body) if body else {}
        found.append((head, told.get("decision"), told.get("reason")))
    return found
