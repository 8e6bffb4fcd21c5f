"""A decision on each call of one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sluice_guard.decisions import Decision, Denied, NotAllowed, Sensitivity

if TYPE_CHECKING:
    from sluice_guard.guard import Guard

Source = str | Callable[..., str]
"""A source's id, or a function that makes it from the arguments of a call."""

Answering = bool | type[Exception]
"""The way of a refusal: True returns its text, a class of exceptions is raised with it, False
raises the refusal itself."""


class Gate:
    """Asks by a call's arguments."""

    def __init__(
        self, guard: Guard, source: Source, sensitivity: Sensitivity, answer: Answering = False
    ) -> None:
        self._guard = guard
        self._source = source
        self._sensitivity = sensitivity
        self._answer = answer

    def enter(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Return on an ALLOW only. Raises `NotAllowed`."""
        source_id = self._source_id(args, kwargs)
        require(source_id, self._guard.check(source_id, self._sensitivity))

    async def aenter(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Return on an ALLOW only. Raises `NotAllowed`."""
        source_id = self._source_id(args, kwargs)
        require(source_id, await self._guard.acheck(source_id, self._sensitivity))

    def instead(self, refusal: NotAllowed) -> str:
        """Return what the call returns instead. Raises the refusal unless it is to be an answer."""
        if isinstance(self._answer, type):
            raise self._answer(str(refusal)) from refusal
        if not self._answer:
            raise refusal
        return str(refusal)

    def _source_id(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        return self._source if isinstance(self._source, str) else self._source(*args, **kwargs)


def require(source_id: str, decision: Decision) -> None:
    """Return on an ALLOW only. Raises `Denied`."""
    if not decision:
        raise Denied(source_id, decision)
