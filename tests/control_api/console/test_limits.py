"""How often one may ask: failures to sign in, and requests of sessions under SLUICE_RATE_LIMIT."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from control_api.console import sessions
from control_api.console.sessions import FailedSignIns
from control_api.metrics.metrics import Instruments
from policies.ground.clock import Clock
from policies.ground.errors import TooMany
from tests.control_api.console.reader import Visitor
from tests.support.control_api import SUPERADMIN, ControlApi, MovableClock
from tests.support.waiting import until_async


@dataclass
class Slowed:
    """Failures on a clock that only the test moves. `slept` are the delays, in seconds."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)
    hold: asyncio.Event | None = None

    def __post_init__(self) -> None:
        instruments = Instruments(CollectorRegistry())
        self.failures = FailedSignIns(lambda: self.now, instruments, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.hold is not None:
            await self.hold.wait()

    async def fail(self, times: int, address: str = "192.0.2.1") -> list[float]:
        """The delays of so many failures of this address."""
        before = len(self.slept)
        for _ in range(times):
            await self.failures.wait(address)
        return self.slept[before:]


async def test_an_address_that_fails_again_and_again_is_answered_later_and_later() -> None:
    slowed = Slowed()
    assert await slowed.fail(10) == [0.25, 0.5, 1, 2, 4, 4, 4]
    assert await slowed.fail(3, "192.0.2.2") == []
    slowed.now += sessions.FORGET_SECONDS
    assert await slowed.fail(1) == [4]
    slowed.now += sessions.FORGET_SECONDS + 1
    assert await slowed.fail(3) == []


async def test_failures_from_many_addresses_use_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MAX_ADDRESSES", 100)
    slowed = Slowed()
    await slowed.fail(4, "192.0.2.1")
    for number in range(99):
        await slowed.fail(1, f"198.51.100.{number}")
    assert await slowed.fail(1, "192.0.2.1") == [0.5]  # the newest stay
    for number in range(100):
        await slowed.fail(1, f"203.0.113.{number}")
    assert await slowed.fail(1, "192.0.2.1") == []


async def test_only_a_bounded_number_of_failures_waits() -> None:
    slowed = Slowed(hold=asyncio.Event())
    assert slowed.hold
    waiting = [asyncio.ensure_future(slowed.fail(4, f"192.0.2.{number}")) for number in range(64)]
    await until_async("there is no more room", lambda: len(slowed.slept) >= sessions.MAX_WAITING)
    with pytest.raises(TooMany):
        await slowed.fail(4, "198.51.100.1")
    slowed.hold.set()
    await asyncio.gather(*waiting)
    await slowed.fail(4, "198.51.100.2")


class Standing(MovableClock):
    """No bucket fills up again: a slow machine gets no more than a quick one."""

    def clock(self) -> Clock:
        return Clock(self.now, lambda: 100.0)


def test_a_session_and_its_key_have_one_rate_limit(tmp_path: Path) -> None:
    api = ControlApi(tmp_path, SLUICE_RATE_LIMIT="3")
    api.time = Standing()
    api.start()
    try:
        visitor = Visitor(api).sign_in(api.admin_key)
        assert api.call("GET", "/v1/keys").status == 200
        account = visitor.get("/console/account")
        assert account.status == 200
        assert visitor.get("/console/account").status == 429
        assert api.call("GET", "/v1/keys").status == 429
        # What a page consists of is not counted.
        style = account.page.find("link", rel="stylesheet").attributes["href"]
        assert visitor.get(style).status == 200
    finally:
        api.stop()


@pytest.mark.deep(stands_in="test_a_session_and_its_key_have_one_rate_limit")
def test_sessions_are_under_the_rate_limit_of_their_key(tmp_path: Path) -> None:
    api = ControlApi(tmp_path, SLUICE_RATE_LIMIT="3")
    api.time = Standing()
    api.start()
    try:
        visitor, operator = Visitor(api).sign_in(api.admin_key), Visitor(api).sign_in(SUPERADMIN)
        # The key and its sessions have one bucket, and signing in took of it too.
        assert api.call("GET", "/v1/keys").status == 200
        account = visitor.get("/console/account")
        refused = visitor.get("/console/account")
        assert (account.status, refused.status) == (200, 429)
        assert refused.headers["Retry-After"] == "1"
        assert "the key is over its rate limit of 3 requests per second" in refused.text
        assert api.call("GET", "/v1/keys").status == 429
        style = account.page.find("link", rel="stylesheet").attributes["href"]
        for _ in range(5):
            # What a page consists of is not counted, and neither is the superadmin.
            assert visitor.get(style).status == 200
            assert operator.get("/console/account").status == 200
    finally:
        api.stop()
