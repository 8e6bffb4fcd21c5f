"""Whatever bytes an agent sends, in whatever segments: through a tunnel or on a redirected
connection, the data source gets nothing that it would not have got through its own port, and all of
it as long as every `Host` is the data source's name."""

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.proxy.mutated_requests import Sent, sendings
from tests.sidecar.proxy.segmented_agent import OWN, REDIRECTED, TUNNEL, WayIn, way_in
from tests.support.properties import examples

Ways = tuple[asyncio.Runner, WayIn, WayIn]

_HOST = re.compile(rb"(?m)^Host: kb\r$")


@pytest.fixture(scope="module", params=[TUNNEL, REDIRECTED])
def both(request: pytest.FixtureRequest) -> Iterator[Ways]:
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        stack = AsyncExitStack()

        def opened(way: str) -> WayIn:
            entering = stack.enter_async_context(way_in(Path(folder, way), way, "rest"))
            return runner.run(entering)

        yield runner, opened(OWN), opened(request.param)
        runner.run(stack.aclose())


@given(data=st.data())
@examples(150)
def test_no_way_in_forwards_more_than_the_source_s_own_port(
    both: Ways, data: st.DataObject
) -> None:
    runner, own, other = both
    sent: Sent = data.draw(sendings("rest"))
    whole = _HOST.sub(b"Host: kb.test\r", b"".join(sent.segments))

    async def run() -> tuple[Counter[bytes], Counter[bytes]]:
        return await _arrived(own, whole), await _arrived(other, whole)

    straight, through = runner.run(run())
    assert through <= straight
    lines = whole.split(b"\r\n")
    sound = {b"Host: kb.test"} == {each for each in lines if each.lower().startswith(b"host")}
    if sound and sent.ends_whole:
        assert through == straight


async def _arrived(way: WayIn, data: bytes) -> Counter[bytes]:
    """What the data source got of it."""
    way.upstream.seen.clear()
    agent = await way.agent()
    await agent.send([data])
    agent.end()
    await agent.received_once(lambda _: False)
    port = b":%d" % way.upstream.port
    return Counter(each.head.replace(port, b"") + each.body for each in way.upstream.seen)
