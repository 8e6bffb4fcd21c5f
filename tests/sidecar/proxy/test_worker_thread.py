"""Long computations leave the loop free: bodies and responses of more than 64 KiB are walked in a
thread beside it, with the same result."""

import asyncio
import gc
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.ground.errors import UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import FetchedResponse, RoutedRequest, SourceRef
from sidecar.protocols.strict_body import MAX_BRACKETS, Budget, OverBudget
from sidecar.proxy.worker_thread import LONGEST_INLINE, WorkerThread
from tests.sidecar.protocols.minimal import denied, minimal, scripted
from tests.support.proxy import policy
from tests.support.waiting import turns, until_async

LARGE = LONGEST_INLINE + 1


@pytest.fixture
def worker() -> Any:
    made = WorkerThread()
    yield made
    made.close()


def asked(answers: dict[str, Any]) -> RoutedRequest:
    async def fetch(target: str, _body: bytes | None = None) -> FetchedResponse:
        assert threading.current_thread() is threading.main_thread()
        answer = answers[target]
        if isinstance(answer, Exception):
            raise answer
        return FetchedResponse(200, "OK", [], answer)

    who = Attribution("ada", None, None, None)
    return RoutedRequest("GET", canonical("/a"), (), None, fetch, [], who, Budget())


@pytest.mark.parametrize(("size", "beside"), [(LONGEST_INLINE, False), (LARGE, True)])
async def test_only_long_work_leaves_the_event_loop(
    worker: WorkerThread, size: int, beside: bool
) -> None:
    thread = await worker.call(size, threading.current_thread)
    assert (thread is not threading.main_thread()) is beside


async def test_the_loop_turns_while_the_worker_computes(worker: WorkerThread) -> None:
    turns = 0

    def long() -> int:
        until = time.monotonic() + 5
        while turns < 20 and time.monotonic() < until:
            pass
        return turns

    computing = asyncio.ensure_future(worker.call(LARGE, long))
    while not computing.done():
        turns += 1
        await asyncio.sleep(0)
    assert computing.result() >= 20


async def test_a_failure_in_the_worker_is_the_callers(worker: WorkerThread) -> None:
    def failing() -> None:
        raise OverBudget("too much")

    with pytest.raises(OverBudget, match="too much"):
        await worker.call(LARGE, failing)


@pytest.mark.parametrize("size", [0, LARGE])
async def test_look_ups_run_on_the_loop_and_work_between_them_where_its_size_demands(
    worker: WorkerThread, size: int
) -> None:
    threads = []

    async def places(asked: RoutedRequest) -> list[bytes]:
        found = []
        for target in ("/short", "/long", "/short"):
            threads.append(threading.current_thread())
            found.append((await asked.fetch(target)).body[:1])
        threads.append(threading.current_thread())
        return found

    answers = {"/short": b"s", "/long": b"l" * LARGE}
    assert await worker.drive(asked(answers), size, places) == [b"s", b"l", b"s"]
    beside = [thread is not threading.main_thread() for thread in threads]
    # After a long answer the work is long, whatever the body was.
    assert beside == ([True] * 4 if size else [False, False, True, False])


async def test_a_failed_look_up_is_raised_where_it_was_requested(worker: WorkerThread) -> None:
    async def places(asked: RoutedRequest) -> str:
        try:
            await asked.fetch("/away")
        except UpstreamFailed as error:
            return f"caught {error}"
        raise AssertionError("it must fail")

    away = asked({"/away": UpstreamFailed("gone")})
    assert await worker.drive(away, LARGE, places) == "caught gone"


async def test_permissions_are_checked_before_each_step_off_the_loop(
    worker: WorkerThread,
) -> None:
    looked: list[str] = []

    async def places(asked: RoutedRequest) -> tuple[SourceRef, ...]:
        await asked.fetch("/x")
        return ()

    def fresh() -> None:
        looked.append(threading.current_thread().name)

    await worker.drive(asked({"/x": b""}), LARGE, places, fresh)
    assert looked == ["MainThread"] * 2


async def test_a_caller_that_leaves_ends_its_look_ups(worker: WorkerThread) -> None:
    begun = asyncio.Event()
    closed = threading.Event()

    async def places(asked: RoutedRequest) -> None:
        try:
            await asked.fetch("/never")
        finally:
            closed.set()

    async def never(_: str, _body: bytes | None = None) -> FetchedResponse:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    driving = asyncio.ensure_future(worker.drive(asked({})._replace(fetch=never), LARGE, places))
    await begun.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert closed.is_set()


async def test_work_of_a_request_that_was_cancelled_ends_at_its_next_charge(
    worker: WorkerThread,
) -> None:
    budget, running, ended = Budget(), threading.Event(), threading.Event()

    def long() -> None:
        try:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                budget.check()
                running.set()
        finally:
            ended.set()

    working = asyncio.ensure_future(worker.call_for(budget, LARGE, long))
    await until_async("it runs", running.is_set)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert ended.is_set(), "its body counts until it has ended"


async def test_waiting_work_is_released_with_its_request(worker: WorkerThread) -> None:
    class Body:
        pass

    go, body = threading.Event(), Body()
    held = weakref.ref(body)
    before = asyncio.ensure_future(worker.call(LARGE, go.wait, 30))
    waiting = asyncio.ensure_future(worker.call_for(Budget(), LARGE, id, body))
    del body
    await turns()
    waiting.cancel()
    await asyncio.wait((waiting,))
    del waiting
    gc.collect()
    let_go = held() is None
    go.set()
    assert await before
    assert let_go, "although other work was still before it"


# The whole proxy: the same answers beside the loop as on it.


def large(names: list[str]) -> dict[str, Any]:
    return {
        "query": [0.123456] * 20_000,
        "prefetch": [{"query": 1, "lookup_from": {"collection": name}} for name in names],
    }


def answer(_method: str, target: str, _body: bytes) -> tuple[int, Any]:
    if target == "/aliases":
        return 200, {"result": {"aliases": []}}
    if target == "/collections":
        names = [{"name": f"{word}{n}"} for n in range(5_000) for word in ("open", "shut")]
        return 200, {"result": {"collections": names}}
    return 200, {"result": []}


READERS = policy(allowed_sources=("qdrant://kb/open*",))
QUERY = "/collections/open/points/query"


async def test_a_large_body_is_judged_like_a_small_one(tmp_path: Path) -> None:
    async with minimal(tmp_path, "qdrant", scripted(answer), READERS) as front:
        assert len(orjson.dumps(large([]))) > LONGEST_INLINE
        assert (await front.ask("POST", QUERY, large(["open2"]))).status == 200
        denied(await front.ask("POST", QUERY, large(["shut"])), "analysts-read")
        many = large([f"open{number}" for number in range(64)])
        denied(await front.ask("POST", QUERY, many), "unreadable_request", 400)
        twice = b'{"query":[' + b"1," * 40_000 + b'1],"a":1,"a":2}'
        denied(await front.ask("POST", QUERY, raw=twice), "unreadable_request", 400)


async def test_a_large_list_is_filtered_to_the_visible_names(tmp_path: Path) -> None:
    async with minimal(tmp_path, "qdrant", scripted(answer), READERS) as front:
        answered = await front.ask("GET", "/collections")
        names = [each["name"] for each in answered.json["result"]["collections"]]
        assert names == [f"open{number}" for number in range(5_000)]


async def test_a_body_with_too_many_brackets_is_unreadable(
    tmp_path: Path,
) -> None:
    async with minimal(tmp_path, "qdrant", scripted(answer), READERS) as front:
        raw = b'{"query":[' + b"[]," * MAX_BRACKETS + b"1]}"
        denied(await front.ask("POST", QUERY, raw=raw), "unreadable_request", 400)


async def test_an_answer_with_more_brackets_than_that_is_not_passed_on(tmp_path: Path) -> None:
    def crowded(method: str, target: str, body: bytes) -> tuple[int, Any]:
        if target == "/collections":
            return 200, {"result": {"collections": [], "x": [[]] * MAX_BRACKETS}}
        return answer(method, target, body)

    async with minimal(tmp_path, "qdrant", scripted(crowded), READERS) as front:
        assert (await front.ask("GET", "/collections")).status == 502
