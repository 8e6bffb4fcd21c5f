"""The look-ups of one request end with its time, or with its agent."""

import asyncio
from collections.abc import Callable

import pytest

from policies.ground.errors import UpstreamFailed
from sidecar.http.headers import RequestHead
from sidecar.protocols.protocol import FetchedResponse
from sidecar.protocols.strict_body import Budget
from sidecar.proxy.pipeline.classifier import Lookups
from tests.support import waiting


async def test_an_agent_may_leave_at_the_moment_in_which_its_time_ends() -> None:
    watching: list[Callable[[], None]] = []

    async def fetch(_head: RequestHead, _target: str, _body: bytes | None) -> FetchedResponse:
        try:
            await waiting.never()
        except asyncio.CancelledError:
            watching[0]()
            raise
        raise AssertionError("it never answers")

    lookups = Lookups(fetch, RequestHead({}, b"", None), Budget(), 0.0, watching.append)
    with pytest.raises(UpstreamFailed, match="the client left"):
        await lookups("/a")
