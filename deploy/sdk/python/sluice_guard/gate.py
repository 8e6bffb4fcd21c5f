"""Asks Sluice on each call of one function, and decides what a refused call returns or raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sluice_guard.decisions import Decision, Denied, NotAllowed, Sensitivity

if TYPE_CHECKING:
    from sluice_guard.guard import Guard

Source = str | Callable[..., str]
"""A source's id, or a function that returns it from the arguments of a call."""

Answering = bool | type[Exception]
"""The outcome of a refused call: True returns the refusal's text, an exception class is raised with
that text, and False raises the refusal itself."""


class Gate:
    """Checks the calls of one function before they run. The source may depend on a call's
    arguments."""

    def __init__(
        self, guard: Guard, source: Source, sensitivity: Sensitivity, answer: Answering = False
    ) -> None:
        self._guard = guard
        self._source = source
        self._sensitivity = sensitivity
        self._answer = answer

    def enter(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Check a call with these arguments: return if Sluice allows it, and raise `NotAllowed`
        otherwise."""
        source_id = self._source_id(args, kwargs)
        require(source_id, self._guard.check(source_id, self._sensitivity))

    async def aenter(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Check a call in an event loop of asyncio: return if Sluice allows it, and raise
        `NotAllowed` otherwise."""
        source_id = self._source_id(args, kwargs)
        require(source_id, await self._guard.acheck(source_id, self._sensitivity))

    def result_if_refused(self, refusal: NotAllowed) -> str:
        """Return the text that a refused call returns in place of its result, or raise an
        exception, as `Answering` says."""
        if isinstance(self._answer, type):
            raise self._answer(str(refusal)) from refusal
        if not self._answer:
            raise refusal
        return str(refusal)

    def _source_id(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        return self._source if isinstance(self._source, str) else self._source(*args, **kwargs)


def require(source_id: str, decision: Decision) -> None:
    """Return if the decision is an ALLOW. Raises `Denied` otherwise."""
    if not decision:
        raise Denied(source_id, decision)
