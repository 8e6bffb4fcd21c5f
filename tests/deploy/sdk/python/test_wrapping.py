"""Every kind of function keeps its kind, and runs nothing before an ALLOW."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Any

import pytest

from sluice_guard import Denied, Guard
from tests.deploy.sdk.python.scripted_server import ALLOW, DENY, response, says, serving


@pytest.fixture
def allowing() -> Iterator[Guard]:
    with (
        serving(says(response(ALLOW))) as server,
        Guard(server.url, "k", "a", "r", timeout=30) as guard,
    ):
        yield guard


@pytest.fixture
def denying() -> Iterator[Guard]:
    with (
        serving(says(response(DENY))) as server,
        Guard(server.url, "k", "a", "r", timeout=30) as guard,
    ):
        yield guard


class Reader:
    """Methods of each kind; `ran` holds what ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def plain(self, word: str) -> str:
        self.ran.append(word)
        return word

    async def coroutine(self, word: str) -> str:
        self.ran.append(word)
        return word

    def generator(self, word: str) -> Generator[str, str | None, str]:
        self.ran.append(word)
        got = yield word
        yield f"got {got}"
        return "returned"

    async def async_generator(self, word: str) -> AsyncGenerator[str, str | None]:
        self.ran.append(word)
        try:
            got = yield word
            yield f"got {got}"
        except LookupError:
            yield "caught"
        finally:
            self.ran.append("closed")


KINDS = ("plain", "coroutine", "generator", "async_generator")


@pytest.mark.parametrize("kind", KINDS)
def test_a_guarded_function_keeps_its_kind_and_signature(allowing: Guard, kind: str) -> None:
    bare = getattr(Reader, kind)
    guarded = allowing.source("s")(bare)
    assert inspect.signature(guarded) == inspect.signature(bare)
    for test in (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    ):
        assert test(guarded) == test(bare)


async def run(guard: Guard, reader: Reader, kind: str) -> Any:
    outcome = guard.source("s")(getattr(reader, kind))("word")
    if kind == "coroutine":
        return await outcome
    if kind == "async_generator":
        return await anext(outcome)
    return next(outcome) if kind == "generator" else outcome


@pytest.mark.parametrize("kind", KINDS)
async def test_a_guarded_function_runs_after_an_allow(allowing: Guard, kind: str) -> None:
    reader = Reader()
    assert await run(allowing, reader, kind) == "word"
    assert reader.ran[0] == "word"
    await allowing.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_no_part_of_a_guarded_function_runs_after_a_deny(denying: Guard, kind: str) -> None:
    reader = Reader()
    with pytest.raises(Denied):
        await run(denying, reader, kind)
    assert reader.ran == []
    await denying.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_of_any_kind_answers(denying: Guard, kind: str) -> None:
    reader = Reader()
    outcome = denying.tool(getattr(reader, kind), answer=True)("word")
    if kind == "coroutine":
        outcome = await outcome
    elif kind == "generator":
        (outcome,) = outcome
    elif kind == "async_generator":
        (outcome,) = [each async for each in outcome]
    assert "was denied" in outcome
    assert reader.ran == []
    await denying.aclose()


def test_values_and_errors_pass_through_a_guarded_generator(allowing: Guard) -> None:
    made = allowing.source("s")(Reader().generator)("word")
    assert next(made) == "word"
    assert made.send("more") == "got more"
    with pytest.raises(StopIteration) as ended:
        next(made)
    assert ended.value.value == "returned"


async def test_values_and_errors_pass_through_a_guarded_async_generator(allowing: Guard) -> None:
    reader = Reader()
    guarded = allowing.source("s")(reader.async_generator)
    made = guarded("word")
    assert await anext(made) == "word"
    assert await made.asend("more") == "got more"
    thrown = guarded("second")
    await anext(thrown)
    assert await thrown.athrow(LookupError()) == "caught"
    await thrown.aclose()
    await made.aclose()
    assert reader.ran == ["word", "second", "closed", "closed"]
    await allowing.aclose()


def test_methods_partials_and_functions_below_staticmethod_work(denying: Guard) -> None:
    ran: list[str] = []

    class Tools:
        @staticmethod
        @denying.source("s")
        def static() -> None:
            ran.append("static")

        @classmethod
        @denying.source("s")
        def of_class(cls) -> None:
            ran.append("class")

    partial = denying.source("s")(functools.partial(ran.append, "partial"))
    for call in (Tools.static, Tools.of_class, partial):
        with pytest.raises(Denied):
            call()
    assert ran == []


@pytest.mark.parametrize("thing", [Reader, Reader(), staticmethod(len), classmethod(str), "text"])
def test_an_object_that_would_bypass_the_guard_is_refused(denying: Guard, thing: Any) -> None:
    with pytest.raises(TypeError, match="put the guard"):
        denying.source("s")(thing)


async def test_a_body_s_own_error_passes_through(allowing: Guard) -> None:
    @allowing.source("s")
    async def broken() -> None:
        raise LookupError("its own")

    with pytest.raises(LookupError, match="its own"):
        await broken()
    await allowing.aclose()
