"""Masks the texts of many requests in turns with everything else that an event loop does.

    turns = MaskingTurns(monotonic, pause, Event)   # one a process
    masked = await turns.text("mail ann@…")         # Masked("mail [EMAIL]", ("EMAIL",))

Masking takes up to 100 µs a character, and its text is a stranger's. So no turn of the loop has
more than `SLICE` of it, however many ask: whatever isn't done by then goes on in a later turn, the
text that had the fewest slices first, so that many long texts don't hold up ordinary ones. Those
are done at once, without a pause, if none waits. Has no clock and no event loop of its own.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from policies.ground.masking.recognizer import UNREAD, Masked

SLICE = 0.0005
"""Seconds of masking in a turn of the loop, and what the last step takes beyond them."""

SECONDS = 5.0
"""The seconds that a text, or a JSON value, may wait and be read. After that it is masked whole."""


class Event(Protocol):
    """The event that a text waits for."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    async def wait(self) -> object: ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A text that must be done `until` a time; `turn` is set while it has the turn."""

    until: float
    turn: Event
    slices: int = 0


_slices = attrgetter("slices")
T = TypeVar("T")
_URGENT = -1_000_000
"""Slices that an urgent text has had less than any other; none takes as many."""
_Steps = Generator[None, None, T]


class MaskingTurns:
    """`monotonic` is in seconds; `pause` returns in the next turn of the loop; `event` makes one of
    the loop's, like `asyncio.Event`."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        pause: Callable[[], Awaitable[None]],
        event: Callable[[], Event],
    ) -> None:
        self._monotonic = monotonic
        self._pause = pause
        self._spent = 0.0
        """Seconds of masking since the last pause."""
        self._event = event
        self._waiting: list[_Waiting] = []
        """The texts that are not done, in the order in which they came. One has the turn."""

    async def text(self, text: str, *, urgent: bool = False) -> Masked:
        """Mask a text like `masked_text`; return `UNREAD` if there wasn't enough time. With
        `urgent`, every text that isn't urgent waits behind this one."""
        from policies.ground.masking.mask import SHORT, mask, mask_steps

        if len(text) <= SHORT and self._spent < SLICE and not self._waiting:
            began = self._monotonic()
            masked = mask(text)
            self._spent += self._monotonic() - began
            return masked
        return await self._taken(mask_steps(text), _URGENT if urgent else 0) or UNREAD

    async def json(self, value: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Mask an object like `masked_json`; return `{"detail": "[UNREAD]"}` if there wasn't enough
        time. The caller must bound the depth."""
        from policies.ground.masking.mask import tree_steps

        masked = await self._taken(tree_steps(value))
        return ({"detail": UNREAD.text}, UNREAD.labels) if masked is None else masked

    async def _taken(self, steps: _Steps[T], slices: int = 0) -> T | None:
        """Return the result of `steps`; None if there wasn't enough time. `slices` is the number of
        slices that it counts as having had."""
        until = self._monotonic() + SECONDS
        if not self._waiting and self._spent < SLICE:
            done = self._slice(steps)
            if done is not None:
                return done[0]
        me = _Waiting(until, self._event(), slices)
        self._waiting.append(me)
        if len(self._waiting) == 1:
            me.turn.set()
        try:
            while True:
                await me.turn.wait()
                # Everyone else waits for this one, so nothing is masked in between.
                await self._pause()
                self._spent = 0.0
                if self._monotonic() > until:
                    return None
                done = self._slice(steps)
                if done is not None:
                    return done[0]
                me.slices += 1
                me.turn.clear()
                self._pass_on()
        finally:
            self._waiting.remove(me)
            steps.close()
            if me.turn.is_set():
                self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the text that had the fewest slices, or to one whose time is up."""
        waiting = self._waiting
        if waiting:
            late = waiting[0].until < self._monotonic()
            following = waiting[0] if late else min(waiting, key=_slices)
            following.turn.set()

    def _slice(self, steps: _Steps[T]) -> tuple[T] | None:
        """Take steps until the slice is over; the result, if that was the last one."""
        monotonic = self._monotonic
        began = now = monotonic()
        over = began + SLICE - self._spent
        try:
            while now < over:
                next(steps)
                now = monotonic()
        except StopIteration as done:
            return (done.value,)
        finally:
            self._spent += monotonic() - began
        return None
