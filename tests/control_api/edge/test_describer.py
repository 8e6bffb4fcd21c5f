"""The API's description is rendered once, when it is first asked for, and beside other requests."""

from __future__ import annotations

import asyncio
import threading

from control_api.edge.answers import Document
from control_api.edge.openapi import Describer, Description

RENDERED = Description(Document("application/json", b"{}"), Document("text/html", b"<!doctype>"))


class Rendering:
    """A rendering that takes until `go_on` is set."""

    def __init__(self) -> None:
        self.count = 0
        self.go_on = threading.Event()

    def __call__(self) -> Description:
        self.count += 1
        assert self.go_on.wait(30)
        return RENDERED


async def test_nothing_is_rendered_before_the_first_request() -> None:
    rendering = Rendering()
    Describer(rendering)
    assert rendering.count == 0


async def test_requests_at_the_same_time_share_one_rendering_beside_the_event_loop() -> None:
    rendering = Rendering()
    describer = Describer(rendering)
    requests = [asyncio.create_task(describer.describe()) for _ in range(3)]
    await asyncio.sleep(0)  # the event loop turns while the rendering waits
    rendering.go_on.set()
    assert await asyncio.gather(*requests) == [RENDERED] * 3
    assert await describer.describe() is RENDERED
    assert rendering.count == 1


async def test_a_client_that_hangs_up_leaves_the_rendering_to_others() -> None:
    rendering = Rendering()
    describer = Describer(rendering)
    first, second = (asyncio.create_task(describer.describe()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    rendering.go_on.set()
    assert await second is RENDERED
    assert (first.cancelled(), rendering.count) == (True, 1)
