"""Wraps functions, coroutines and generators with a gate, which checks each call before anything of
the function's body runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, cast

from sluice_guard.decisions import NotAllowed
from sluice_guard.gate import Gate

Function = TypeVar("Function", bound=Callable[..., Any])


def behind(gate: Gate, function: Function) -> Function:
    """Wrap `function` with the gate; the result is of the same kind and has the same signature.
    Raises `TypeError` for anything else, such as a class, a `staticmethod` or a framework's object,
    since these are called in other ways than through the function."""
    if isinstance(function, (staticmethod, classmethod)):
        raise TypeError("put the guard below `@staticmethod` or `@classmethod`")
    if not inspect.isroutine(function) and not isinstance(function, functools.partial):
        raise TypeError(
            f"a guard takes functions, and `{type(function).__name__}` is not one: put the guard "
            "next to the function, below other decorators"
        )
    wrap = next(wrap for fits, wrap in _KINDS if fits(function))
    return cast(Function, functools.update_wrapper(wrap(gate, function), function))


def _function(gate: Gate, function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            gate.enter(args, kwargs)
        except NotAllowed as refusal:
            return gate.result_if_refused(refusal)
        return function(*args, **kwargs)

    return guarded


def _coroutine(gate: Gate, function: Callable[..., Any]) -> Callable[..., Any]:
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            await gate.aenter(args, kwargs)
        except NotAllowed as refusal:
            return gate.result_if_refused(refusal)
        return await function(*args, **kwargs)

    return guarded


def _generator(gate: Gate, function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        try:
            gate.enter(args, kwargs)
        except NotAllowed as refusal:
            yield gate.result_if_refused(refusal)
            return None
        return (yield from function(*args, **kwargs))

    return guarded


def _async_generator(gate: Gate, function: Callable[..., Any]) -> Callable[..., Any]:
    async def guarded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        try:
            await gate.aenter(args, kwargs)
        except NotAllowed as refusal:
            yield gate.result_if_refused(refusal)
            return
        inner = function(*args, **kwargs)
        try:
            item = await anext(inner)
            while True:
                try:
                    sent = yield item
                except Exception as thrown:  # noqa: BLE001  it is for the function
                    item = await inner.athrow(thrown)
                else:
                    item = await inner.asend(sent)
        except StopAsyncIteration:
            return
        finally:
            await inner.aclose()

    return guarded


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[..., Callable[..., Any]]], ...] = (
    (inspect.isasyncgenfunction, _async_generator),
    (inspect.iscoroutinefunction, _coroutine),
    (inspect.isgeneratorfunction, _generator),
    (callable, _function),
)
