"""Masks the texts of many requests bit by bit, so that the event loop can do other work in between.

    turns = MaskingTurns(monotonic, pause, Event)   # one a process
    masked = await turns.text("mail ann@…")         # Masked("mail [EMAIL]", ("EMAIL",))

Masking takes up to 100 µs a character, and callers choose the text. So no iteration of the event
loop spends more than `SLICE` on it, whatever the number of requests. Whatever isn't done by then
goes on in a later iteration. The text that has had the fewest slices comes first, so that many long
texts don't hold up ordinary ones. A text is masked at once, without a pause, if no other waits and
it fits into the slice. Has no clock and no event loop of its own.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from policies.ground.masking.recognizer import UNREAD, Masked

SLICE = 0.0005
"""The seconds of masking after which an iteration of the event loop pauses; the last step may
exceed them."""

TIME_LIMIT_SECONDS = 5.0
"""The most seconds for which a text, or a JSON value, may wait and be read. After that it is masked
as a whole."""


class Event(Protocol):
    """An event that coroutines can wait for, such as `asyncio.Event`."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    async def wait(self) -> object: ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A text that waits to be masked further. It must be done by the time `until`, and may continue
    while `turn` is set; `slices` counts the slices that it has had."""

    until: float
    turn: Event
    slices: int = 0


_slices = attrgetter("slices")
T = TypeVar("T")
_URGENT = -1_000_000
"""The slices with which an urgent text starts: so few that it comes before every text that isn't
urgent."""
_Steps = Generator[None, None, T]


class MaskingTurns:
    """Masks texts in slices of time, one text at a time. `monotonic` returns seconds; `pause`
    returns in the next iteration of the event loop; `event` makes an event of that loop, such as
    `asyncio.Event`."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        pause: Callable[[], Awaitable[None]],
        event: Callable[[], Event],
    ) -> None:
        self._monotonic = monotonic
        self._pause = pause
        self._spent = 0.0
        """The seconds of masking since the last pause."""
        self._event = event
        self._waiting: list[_Waiting] = []
        """The texts that are not done, in the order in which they came. The turn of exactly one is
        set."""

    async def text(self, text: str, *, urgent: bool = False) -> Masked:
        """Mask a text as `masked_text` does; return `UNREAD` if there wasn't enough time. If
        `urgent` is true, every text that isn't urgent waits until this one is done."""
        from policies.ground.masking.mask import SHORT, mask, mask_steps

        if len(text) <= SHORT and self._spent < SLICE and not self._waiting:
            began = self._monotonic()
            masked = mask(text)
            self._spent += self._monotonic() - began
            return masked
        return await self._taken(mask_steps(text), _URGENT if urgent else 0) or UNREAD

    async def json(
        self, value: dict[str, Any], *, urgent: bool = False
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Mask a decoded JSON object as `masked_json` does; return `{"detail": "[UNREAD]"}` if
        there wasn't enough time. The caller must bound the depth. `urgent` is as in `text`."""
        from policies.ground.masking.mask import tree_steps

        masked = await self._taken(tree_steps(value), _URGENT if urgent else 0)
        return ({"detail": UNREAD.text}, UNREAD.labels) if masked is None else masked

    async def _taken(self, steps: _Steps[T], slices: int = 0) -> T | None:
        """Run the generator `steps` in slices, and return its result; None if there wasn't enough
        time. `slices` is the number of slices that it counts as having had already."""
        until = self._monotonic() + TIME_LIMIT_SECONDS
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
        """Give the turn to the text that has had the fewest slices, or to the oldest one if its
        time is up."""
        waiting = self._waiting
        if waiting:
            late = waiting[0].until < self._monotonic()
            following = waiting[0] if late else min(waiting, key=_slices)
            following.turn.set()

    def _slice(self, steps: _Steps[T]) -> tuple[T] | None:
        """Run `steps` until the slice is over. Return the result in a tuple if they came to their
        end, None otherwise."""
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
