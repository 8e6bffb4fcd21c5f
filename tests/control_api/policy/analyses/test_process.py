"""An analysis runs in a process of its own, and ends with it: in time, out of time, or with the
caller gone."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from control_api.policy.analyses import __main__ as program
from control_api.policy.analyses import process
from control_api.policy.analyses.process import (
    SIZE,
    Analyses,
    AnalysisProcessDied,
    Answer,
    Child,
    Job,
    read_answer,
    write_job,
)
from policies.ground.errors import Invalid, Malformed, Unavailable
from tests.support.waiting import until_async

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def policy(draw: random.Random, number: int) -> dict[str, Any]:
    return {
        "name": f"p{number}",
        "agent_role": f"role{number % 10}",
        "allowed_sources": [f"source-{draw.randint(0, 300)}" for _ in range(20)],
        "denied_sources": [f"source-{draw.randint(1, 9)}*"],
        "max_sensitivity": draw.choice(("low", "medium", "high")),
        "permitted_agent_ids": [f"agt_{draw.randint(0, 50)}" for _ in range(3)],
        "denied_tasks": [f"task-{draw.randint(0, 20)}"],
    }


def asks(policies: int) -> Job:
    draw = random.Random(1)
    body = {"policies": [policy(draw, each) for each in range(policies)]}
    return Job("diff", {}, [json.dumps(body).encode(), b"[]"])


LITTLE, MUCH = asks(1), asks(12_000)
"""Answered at once, and after many seconds."""


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


def children() -> set[str]:
    """The processes that this one started and has not waited for."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        # A thread may end meanwhile: its children then pass to another one.
        with suppress(FileNotFoundError, ProcessLookupError):
            found.update((thread / "children").read_text().split())
    return found


@asynccontextmanager
async def opened() -> AsyncIterator[Analyses]:
    analyses = Analyses()
    try:
        yield analyses
    finally:
        await analyses.close()


async def asked(tenant_id: str, job: Job) -> bytes:
    async with opened() as analyses:
        return await analyses.answer(tenant_id, job)


def test_a_question_is_answered_by_its_process(run: Run) -> None:
    before = children()

    async def twice() -> list[bytes]:
        async with opened() as analyses:
            first = await analyses.answer("one", LITTLE)
            kept = children() - before
            second = await analyses.answer("two", LITTLE)
            assert len(kept) == 1
            assert children() - before == kept
            return [first, second]

    first, second = run(twice())
    answer = json.loads(first)
    assert {row["agent_role"] for row in answer["newly_allowed"]} == {"role0"}
    assert answer["newly_denied"] == []
    assert second == first
    assert children() <= before


@pytest.mark.deep(stands_in="test_a_question_is_answered_by_its_process")
def test_the_next_question_finds_the_process_that_answered_the_last(run: Run) -> None:
    before = children()

    async def several() -> None:
        async with opened() as analyses:
            first = await analyses.answer("one", LITTLE)
            kept = children() - before
            assert len(kept) == 1
            for tenant in ("one", "two"):
                assert await analyses.answer(tenant, LITTLE) == first
                assert children() - before == kept
            with pytest.raises(Malformed):
                await analyses.answer("one", Job("diff", {}, [b"{", b"[]"]))
            assert await analyses.answer("one", LITTLE) == first

    run(several())
    assert children() <= before


def test_a_large_question_leaves_no_process(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "REUSED", 100)
    before = children()

    async def large() -> None:
        async with opened() as analyses:
            await analyses.answer("one", LITTLE)
            assert children() <= before

    run(large())


@pytest.mark.deep(stands_in="test_a_process_is_reused_replaced_if_it_ended_and_stopped_if_too_slow")
@pytest.mark.parametrize("how", ["idle", "killed"])
def test_a_process_that_has_ended_meanwhile_is_replaced(
    run: Run, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(process, "IDLE_SECONDS", 1 if how == "idle" else 60)
    before = children()

    async def twice() -> None:
        async with opened() as analyses:
            first = await analyses.answer("one", LITTLE)
            [kept] = children() - before
            if how == "killed":
                os.kill(int(kept), signal.SIGKILL)
            await until_async("its end", lambda: kept not in children())
            assert await analyses.answer("one", LITTLE) == first

    run(twice())
    assert children() <= before


@pytest.mark.deep(stands_in="test_each_question_gets_computing_time_of_its_own_and_no_more")
def test_computing_time_counts_for_each_question_anew(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each question takes a small part of this, even on a busy machine; all take more.
    monkeypatch.setattr(process, "CPU_SECONDS", 3)
    monkeypatch.setattr(process, "REUSED", 8 * 1024 * 1024)
    some = asks(2_000)

    async def many() -> None:
        async with opened() as analyses:
            before = children()
            await analyses.answer("one", some)
            [kept] = children() - before
            while _computed(kept) < 4:
                await analyses.answer("one", some)
                assert children() - before == {kept}

    run(many())


def _computed(process_id: str) -> float:
    """Seconds of computing time."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.deep(stands_in="test_each_question_gets_computing_time_of_its_own_and_no_more")
def test_a_question_that_takes_too_long_is_not_computed_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CPU_SECONDS", 1)
    started: list[Child] = []
    start = Child.start

    async def counted() -> Child:
        started.append(await start())
        return started[-1]

    monkeypatch.setattr(process.Child, "start", counted)

    async def both() -> None:
        async with opened() as analyses:
            await analyses.answer("one", LITTLE)
            with pytest.raises(Invalid, match="needs more than"):
                await analyses.answer("one", MUCH)
            assert len(started) == 1

    run(both())


@pytest.mark.deep(
    stands_in="test_a_caller_that_leaves_ends_its_process_and_a_closed_one_keeps_none"
)
def test_an_answer_after_the_end_leaves_no_process(run: Run) -> None:
    before = children()

    async def late() -> None:
        analyses = Analyses()
        asking = asyncio.ensure_future(analyses.answer("one", LITTLE))
        await asyncio.sleep(0)
        await analyses.close()
        assert await asking
        assert children() <= before

    run(late())


@pytest.mark.deep(stands_in="test_a_computing_process_is_killed_when_no_caller_waits_for_it")
def test_a_question_whose_time_is_up_leaves_no_process(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SECONDS", 1.0)
    before = children()
    with pytest.raises(Unavailable, match="did not finish within"):
        run(asked("one", MUCH))
    assert children() <= before


@pytest.mark.deep(stands_in="test_a_computing_process_is_killed_when_no_caller_waits_for_it")
def test_a_caller_that_leaves_takes_its_analysis_along(run: Run) -> None:
    before = children()

    async def left() -> None:
        async with opened() as analyses:
            asking = asyncio.ensure_future(analyses.answer("one", MUCH))
            await asyncio.sleep(1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert await analyses.answer("one", LITTLE)  # its place is free again

    run(left())
    assert children() <= before


@pytest.mark.deep(stands_in="test_each_question_gets_computing_time_of_its_own_and_no_more")
def test_computing_time_has_a_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CPU_SECONDS", 1)
    with pytest.raises(Invalid, match="needs more than"):
        run(asked("one", MUCH))


@pytest.mark.deep(
    stands_in="test_a_caller_that_leaves_ends_its_process_and_a_closed_one_keeps_none"
)
def test_a_tenant_has_one_analysis_at_a_time_and_all_have_two(run: Run) -> None:
    async def several() -> None:
        async with opened() as analyses:
            asking = [asyncio.ensure_future(analyses.answer(each, MUCH)) for each in ("one", "two")]
            await asyncio.sleep(0)
            for tenant in ("one", "three"):
                with pytest.raises(Unavailable, match="running already"):
                    await analyses.answer(tenant, LITTLE)
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            assert await analyses.answer("three", LITTLE)

    run(several())


class Scripted:
    """A process that answers as it is told, and keeps whether it was ended."""

    def __init__(self, *answers: Answer | AnalysisProcessDied | None) -> None:
        self._answers = list(answers)
        self.ended = False

    async def ask(self, job: bytes) -> Answer:
        answer = self._answers.pop(0)
        if answer is None:
            await asyncio.sleep(60)
            raise AssertionError("it was waited for")
        if isinstance(answer, AnalysisProcessDied):
            raise answer
        return answer

    async def end(self) -> None:
        self.ended = True


FINE, SMALL = Answer(200, b"{}"), Job("diff", {}, [b"[]", b"[]"])


async def test_a_process_is_reused_replaced_if_it_ended_and_stopped_if_too_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = [
        Scripted(FINE, FINE, AnalysisProcessDied(1, b"")),
        Scripted(FINE, AnalysisProcessDied(-signal.SIGKILL, b"")),
        Scripted(FINE, AnalysisProcessDied(-signal.SIGXCPU, b"")),
        Scripted(None),
    ]
    left = iter(some)

    async def start() -> Any:
        return next(left)

    monkeypatch.setattr(process.Child, "start", start)
    monkeypatch.setattr(process, "SECONDS", 0.05)
    analyses = Analyses()
    for _ in range(4):  # the second finds the first's process, and the others find it gone
        await analyses.answer("one", SMALL)
    assert [each.ended for each in some] == [True, True, False, False]
    with pytest.raises(Invalid):  # not computed again
        await analyses.answer("one", SMALL)
    with pytest.raises(Unavailable, match="did not finish within"):
        await analyses.answer("one", SMALL)
    assert all(each.ended for each in some)


async def test_a_caller_that_leaves_ends_its_process_and_a_closed_one_keeps_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = [Scripted(None), Scripted(FINE)]
    left = iter(some)

    async def start() -> Any:
        return next(left)

    monkeypatch.setattr(process.Child, "start", start)
    analyses = Analyses()
    asking = asyncio.ensure_future(analyses.answer("one", SMALL))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="running already"):
        await analyses.answer("one", SMALL)  # there is room, but not for the same tenant
    for tenant in ("one", "two"):
        with analyses.room("three"), pytest.raises(Unavailable, match="running already"):
            await analyses.answer(tenant, SMALL)
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert some[0].ended
    await analyses.close()
    await analyses.answer("one", SMALL)
    assert some[1].ended


async def test_each_question_gets_computing_time_of_its_own_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program itself, in this process, by a clock of the test."""
    limits: list[tuple[int, int]] = []
    spent = iter((0.4, 50.4, 50.4))  # at the end it looks for a third
    most = resource.RLIM_INFINITY

    def limit(kind: int, pair: tuple[int, int]) -> None:
        if kind == resource.RLIMIT_CPU:
            limits.append(pair)

    reading, writing = os.pipe()
    os.write(writing, 2 * write_job(LITTLE))
    os.close(writing)
    answers = io.BytesIO()
    with os.fdopen(reading, "rb", buffering=0) as jobs, monkeypatch.context() as patch:
        patch.setattr(program, "MAX_KEPT", sys.maxsize)
        patch.setattr(resource, "setrlimit", limit)
        patch.setattr(resource, "getrlimit", lambda _: (most, most))
        patch.setattr(time, "process_time", lambda: next(spent))
        patch.setattr(os, "nice", lambda _: None)
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=jobs))
        patch.setattr(sys, "stdout", SimpleNamespace(buffer=answers))
        assert program.main(["20", str(1 << 30), "60"]) == 0
    # A process that is killed at the hard limit does not say why.
    assert limits[:2] == [(20, most), (70, most)]
    told = answers.getvalue()
    half = len(told) // 2
    assert told[:half] == told[half:]
    assert read_answer(told[SIZE:half]).status == 200
    over = AnalysisProcessDied(-signal.SIGXCPU, b"")
    assert over.out_of_time
    assert over.answer().status == 422
    # It is not computed again.
    some = [Scripted(over), Scripted(over)]
    left = iter(some)

    async def start() -> Any:
        return next(left)

    monkeypatch.setattr(process.Child, "start", start)
    with pytest.raises(Invalid, match="needs more than"):
        await Analyses().answer("one", SMALL)
    assert [each.ended for each in some] == [True, False]


async def test_a_computing_process_is_killed_when_no_caller_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = children()
    forever = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    monkeypatch.setattr(process, "this_program", lambda _: forever)
    started: list[Child] = []
    start = Child.start

    async def noted() -> Child:
        started.append(await start())
        return started[-1]

    monkeypatch.setattr(process.Child, "start", noted)
    analyses = Analyses()
    asking = asyncio.ensure_future(analyses.answer("one", SMALL))
    await until_async("it is asked", lambda: started)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert children() <= before
    monkeypatch.setattr(process, "SECONDS", 0.05)
    # The start of a process counts, too: on a busy machine it may take all of the time.
    while len(started) < 2:
        with pytest.raises(Unavailable, match="did not finish within"):
            await analyses.answer("one", SMALL)
    assert children() <= before
