"""Masks what is long in a request one at a time, in turns with everything else on the loop."""

import asyncio
from collections.abc import Generator, Mapping
from typing import Any, TypeVar

from policies.ground.masking import (
    LONGEST_AT_ONCE,
    UNREAD,
    Masked,
    mask_ahead,
    mask_json_ahead,
)

PAUSE_SECONDS = 0.002
"""How long a text is read before others are served."""

SECONDS = 5.0
"""How long a text or a `detail` may wait and be read; after that it is masked whole."""

T = TypeVar("T")


class LongTexts:
    """Masks texts and JSON values ahead of their records."""

    def __init__(self) -> None:
        # One at a time: a hundred would take a hundred steps in each turn of the loop.
        self._turn = asyncio.Lock()

    async def masked(self, text: str | None) -> Mapping[str, Masked]:
        """The masked form of `text` if it is too long to be masked at once, by the text."""
        if text is None or len(text) <= LONGEST_AT_ONCE:
            return {}
        try:
            return {text: await self._in_turns(mask_ahead(text))}
        except TimeoutError:
            return {text: Masked(f"[{UNREAD}]", (UNREAD,))}

    async def masked_detail(self, detail: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
        """The masked `detail` and what was found in it."""
        try:
            return await self._in_turns(mask_json_ahead(detail))
        except TimeoutError:
            return {"detail": f"[{UNREAD}]"}, (UNREAD,)

    async def _in_turns(self, steps: Generator[None, None, T]) -> T:
        async with asyncio.timeout(SECONDS), self._turn:
            time = asyncio.get_running_loop().time
            began = time()
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    result: T = done.value
                    return result
                if time() - began > PAUSE_SECONDS:
                    await asyncio.sleep(0)
                    began = time()
