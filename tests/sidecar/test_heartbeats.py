"""A sidecar with nothing to decide records that it has applied a new revision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sidecar.heartbeats import HEARTBEAT_SECONDS, Heartbeats
from sidecar.spool import SpoolFull
from tests.support import waiting
from tests.support.fake_control_api import FakeControlApi, fake_control_api
from tests.support.loop_clock import moving_clock
from tests.support.sidecar import RunningSidecar, running_sidecar


@asynccontextmanager
async def beating(tmp_path: Path, control: FakeControlApi) -> AsyncIterator[RunningSidecar]:
    """A sidecar that has recorded its first policy set."""
    async with running_sidecar(tmp_path, control) as running:
        running.parts.heartbeats.wake()  # the first set may have arrived before the loop began
        loop = asyncio.create_task(running.parts.heartbeats.run())
        try:
            await beaten(running, control.revision)
            yield running
        finally:
            loop.cancel()


async def beats(running: RunningSidecar) -> list[int]:
    """The revisions of the heartbeats in the spool."""
    records = await running.records()
    return [each["pub"]["revision"] for each in records if each["kind"] == "heartbeat"]


async def change(control: FakeControlApi, running: RunningSidecar) -> int:
    """A change that concerns no decision here, once the sidecar has applied it."""
    revision = control.publish({f"role/other-{control.revision}": b"[]"})
    await running.follows(revision)
    return revision


async def beaten(running: RunningSidecar, revision: int) -> list[int]:
    async def noted() -> bool:
        return revision in await beats(running)

    await waiting.until_async("a heartbeat", noted)
    return await beats(running)


async def test_a_quiet_sidecar_records_each_revision_that_it_applies(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with beating(tmp_path, control) as running:
            first = await beats(running)
            assert await beaten(running, await change(control, running)) == [
                *first,
                control.revision,
            ]


async def test_a_decision_at_the_revision_makes_a_heartbeat_needless(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with beating(tmp_path, control) as running:
            skipped = await change(control, running)
            await running.evaluate()
            await asyncio.sleep(2 * HEARTBEAT_SECONDS)  # nothing happens in this time
            last = await change(control, running)
            found = await beaten(running, last)
            assert skipped not in found
            decided = [r for r in await running.records() if r["kind"] == "decision"]
            assert [each["pub"]["facts"]["revision"] for each in decided] == [skipped]


async def test_many_changes_at_once_make_few_heartbeats(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with beating(tmp_path, control) as running:
            before = len(await beats(running))
            for _ in range(20):
                await change(control, running)
            found = await beaten(running, control.revision)
            assert len(found) - before < 20
            assert found == sorted(set(found))


async def test_a_heartbeat_without_room_is_recorded_when_there_is_some(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with beating(tmp_path, control) as running:
            put, refused = running.spool.put, []

            def full(*_: object, **__: object) -> None:
                refused.append(1)
                raise SpoolFull("the spool is full")

            running.spool.put = full  # type: ignore[method-assign, assignment]
            revision = await change(control, running)
            await waiting.until_async("a refusal", lambda: refused)
            running.spool.put = put  # type: ignore[method-assign]
            assert (await beaten(running, revision))[-1] == revision


async def test_a_heartbeat_is_recorded_within_a_second_of_a_change() -> None:
    noted: list[int] = []

    def note(revision: int) -> bool:
        noted.append(revision)
        return True

    recorder: Any = SimpleNamespace(note_revision=note)
    policies: Any = SimpleNamespace(policy_set=SimpleNamespace(revision=7))
    with moving_clock() as clock:
        heartbeats = Heartbeats(recorder, policies, clock.monotonic)
        loop = asyncio.create_task(heartbeats.run())
        try:
            # The first one, and one right after another, which waits longest.
            for beat in (1, 2):
                heartbeats.wake()
                await waiting.turns()
                await clock.skip(1)
                assert noted == [7] * beat
        finally:
            loop.cancel()
