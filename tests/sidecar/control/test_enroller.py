"""The loop that enrols and renews, against a control API whose answers the test chooses, by a clock
that the test moves."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from policies.ground.clock import Clock
from policies.ground.keys import make_key
from policies.sets.policy_set import PolicySet, enrolment_document, enrolment_name
from sidecar.control import enroller as module
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.control.enroller import PATH, Enroller
from sidecar.control.identity import NOT_APPROVED, NOT_ENROLLED, EnrolledIdentity
from tests.support.waiting import until_async

DOCUMENT = {enrolment_name("a"): enrolment_document("enr_1", "r")}


def refusal(status: int, reason: str | None = None) -> tuple[int, Any]:
    body = {"error": "no", "message": "the token is refused", "code": status}
    return status, body | ({"details": reason} if reason else {})


def answer(**changed: Any) -> tuple[int, Any]:
    body = {
        "tenant_id": "t",
        "workload": "w",
        "agent_id": "a",
        "agent_role": "r",
        "status": "approved",
        "enrolment": "enr_1",
        "sidecar_key": make_key(os.urandom(32)),
        "agent_key": make_key(os.urandom(32)),
        "agent_key_id": "key_a",
        "expires_at": "2030-01-01T00:00:00.000000Z",
        "expires_in": 3600,
        **changed,
    }
    return 200, body


def pending(status: str = "draft") -> tuple[int, Any]:
    names = ("enrolment", "sidecar_key", "agent_key", "agent_key_id", "expires_at", "expires_in")
    return answer(status=status, **dict.fromkeys(names))


class EnrolmentSetup:
    """The enroller, and what the control API answers: `said`, until the test changes it."""

    def __init__(self, folder: Path) -> None:
        self.token_file = folder / "token"
        self.token_file.write_text("a.b.c\n")
        self.said: Callable[[], tuple[int, Any]] = answer
        self.tokens: list[str] = []
        self.keys: list[str | None] = []
        self.ahead = 0.0
        self.wall = 0
        self.clock = Clock(lambda: self.wall, lambda: 1000.0 + self.ahead)
        self.identity = EnrolledIdentity(self.clock)
        self.policy_set = PolicySet(DOCUMENT.get)
        self.client: ControlClient
        self.enroller: Enroller

    async def handle(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("X-API-Key"))
        if request.path == PATH:
            self.tokens.append((await request.json())["token"])
            status, body = self.said()
        else:
            status, body = self.other
        return web.Response(status=status, body=orjson.dumps(body))

    other: tuple[int, Any] = (200, {})

    def live(self) -> bool:
        return self.identity.valid_enrolment(self.policy_set) is not None

    def denied_as(self) -> str | None:
        return self.identity.problem and self.identity.problem[0]


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[EnrolmentSetup]:
    made = EnrolmentSetup(folder)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [address] = runner.addresses
    url = f"http://127.0.0.1:{address[1]}"
    try:
        async with ControlClient(url, made.identity.key) as client:
            made.client = client

            async def prepare() -> None:
                return None

            made.enroller = Enroller(client, made.identity, made.token_file, made.clock, prepare)
            yield made
    finally:
        await runner.cleanup()


async def test_keys_are_used_and_renewed_at_half_of_their_life(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        assert not made.live()
        assert made.denied_as() == NOT_ENROLLED
        pause = await made.enroller.step()
        assert 1440 <= pause <= 1800
        assert made.live()
        assert made.denied_as() is None
        first = await made.identity.key.current(1)
        # The kubelet has replaced the token in the meantime.
        made.token_file.write_text("d.e.f")
        await made.enroller.step()
        assert await made.identity.key.current(1) != first
        assert made.tokens == ["a.b.c", "d.e.f"]
        # The token is the proof: no key goes with it.
        assert made.keys == [None, None]


async def test_ten_minutes_without_the_control_api_change_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        await made.enroller.step()
        key = await made.identity.key.current(1)
        made.ahead = 1800.0
        made.said = lambda: refusal(503)
        for _ in range(120):
            made.ahead += 5
            assert await made.enroller.step() <= 10
            assert made.live()
            assert await made.identity.key.current(1) == key
        made.said = answer
        await made.enroller.step()
        assert made.identity.seconds_left == 3600


async def test_expired_keys_are_forgotten_and_renewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path) as made:
        await made.enroller.step()
        made.said = lambda: refusal(503)
        made.ahead = 3601.0
        assert not made.live()
        await made.enroller.step()
        made.enroller.forget_expired()
        assert made.denied_as() == NOT_ENROLLED
        assert "the enrolment has expired, and everything is denied" in caplog.text
        with pytest.raises(ControlUnavailable, match="expired"):
            await made.client.get("/v1/x", {}, seconds=0.01)
        made.said = answer
        await made.enroller.step()
        assert made.live()


async def test_a_change_of_the_wall_clock_makes_no_key_live_longer(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        await made.enroller.step()
        for made.wall in (-(10**15), 0, 10**16):
            made.ahead = 3599
            assert made.live()
            made.ahead = 3601
            assert not made.live()


@pytest.mark.parametrize("status", ["draft", "pending_approval"])
async def test_an_unapproved_agent_is_denied_and_soon_tried_again(
    tmp_path: Path, status: str
) -> None:
    async with world(tmp_path) as made:
        made.said = lambda: pending(status)
        assert await made.enroller.step() <= 3
        assert made.denied_as() == NOT_APPROVED
        assert made.identity.answer is not None
        assert made.identity.answer.agent_id == "a"
        made.said = answer
        await made.enroller.step()
        assert made.live()


async def test_a_suspended_agent_loses_its_keys_and_other_refusals_do_not(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as made:
        await made.enroller.step()
        for reason in ("expired", "signature", "issuer", None):
            made.said = lambda reason=reason: refusal(403, reason)  # type: ignore[misc]
            await made.enroller.step()
            assert made.live(), reason
        made.said = lambda: refusal(403, "agent")
        assert await made.enroller.step() <= 10
        assert not made.live()
        assert made.denied_as() == NOT_APPROVED


async def test_another_generation_ends_the_keys_in_the_policy_set(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        await made.enroller.step()
        for body in (None, enrolment_document("enr_2", "r")):
            assert made.identity.valid_enrolment(PolicySet({enrolment_name("a"): body}.get)) is None


HOSTILE = [
    {"sidecar_key": "no key"},
    {"sidecar_key": 1},
    {"agent_key": None},
    {"agent_key": "slc_"},
    {"agent_id": ""},
    {"agent_id": None},
    {"agent_role": 1},
    {"expires_in": 0},
    {"expires_in": -1},
    {"expires_in": 10**9},
    {"expires_in": True},
    {"expires_in": "3600"},
    {"expires_at": "tomorrow"},
    {"enrolment": None},
    {"agent_key_id": None},
    {"workload": []},
]


@pytest.mark.parametrize("changed", HOSTILE, ids=str)
async def test_a_senseless_answer_is_not_used(
    tmp_path: Path, changed: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path) as made:
        made.said = lambda: answer(**changed)
        await made.enroller.step()
        assert not made.live()
        assert made.denied_as() == NOT_ENROLLED
        assert "slc_" not in caplog.text
        made.said = lambda: (200, [])
        await made.enroller.step()
        assert not made.live()


async def test_a_missing_token_file_is_awaited(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.token_file.unlink()
        assert await made.enroller.step() <= 10
        assert made.identity.problem is not None
        assert "can't be read" in made.identity.problem[1]
        for content in (b"", b"\n", b"x" * 10_000, "tökén".encode()):
            made.token_file.write_bytes(content)
            await made.enroller.step()
            assert not made.tokens
        made.token_file.write_text("a.b.c")
        await made.enroller.step()
        assert made.live()


async def test_a_refused_key_is_renewed_at_once_and_not_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_PAUSE", 0.05)
    # Longer than the test: after the failure, only a wake could cause another attempt.
    monkeypatch.setattr(module, "FIRST_PAUSE", 600.0)
    monkeypatch.setattr(module, "MAX_PAUSE", 600.0)
    async with world(tmp_path) as made, asyncio.TaskGroup() as group:
        loop = group.create_task(made.enroller.run())
        await until_async("the first keys", made.live)
        made.other = refusal(403)
        with pytest.raises(ControlUnavailable):
            await made.client.get("/v1/sidecars/policy-set", {}, seconds=5)
        await until_async("the second keys", lambda: made.enroller.enrolments == 2)
        # While enrolments fail, refused requests add none to those of the backoff.
        made.said = lambda: refusal(403, "agent")
        made.enroller.wake()
        await until_async("the refusal", lambda: made.denied_as() == NOT_APPROVED)
        asked = len(made.tokens)
        for _ in range(100):
            made.enroller.wake()
        await asyncio.sleep(0.2)
        assert len(made.tokens) == asked
        loop.cancel()


async def test_a_change_during_an_exchange_causes_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's document can change once the control API has made its answer, before the sidecar
    has it: the keys in it are dead, and only another enrolment brings others."""
    monkeypatch.setattr(module, "LEAST_PAUSE", 0.05)
    async with world(tmp_path) as made, asyncio.TaskGroup() as group:

        def overtaken() -> tuple[int, Any]:
            made.said = lambda: answer(enrolment="enr_2")
            made.policy_set = PolicySet({enrolment_name("a"): enrolment_document("enr_2", "r")}.get)
            made.enroller.changed([enrolment_name("a")])
            return answer()

        made.said = overtaken
        loop = group.create_task(made.enroller.run())
        await until_async("keys of the second generation", made.live)
        assert len(made.tokens) == 2
        loop.cancel()


async def test_requests_wait_for_the_first_key_and_swap_keys_without_a_failure(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as made, asyncio.TaskGroup() as group:
        waiting = [group.create_task(made.client.get("/v1/x", {}, seconds=10)) for _ in range(20)]
        await asyncio.sleep(0.05)
        assert made.keys == []
        for _ in range(50):
            await made.enroller.step()
            waiting.append(group.create_task(made.client.get("/v1/x", {}, seconds=10)))
        await asyncio.gather(*waiting)
        used = {key for key in made.keys if key is not None}
        assert len(used) > 10
        # Every request went out with a key that was issued.
        assert all(key.startswith("slc_") for key in used)


async def test_no_key_is_in_the_log_or_in_a_description(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with world(tmp_path) as made:
        await made.enroller.step()
        made.said = lambda: refusal(403, "agent")
        await made.enroller.step()
        shown = f"{made.identity.answer!r}{made.identity.key!r}{made.client!r}{caplog.text}"
        assert "slc_" not in shown
        assert "a.b.c" not in shown
