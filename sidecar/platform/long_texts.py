"""Masks the long texts of requests one at a time, in turns with everything else on the loop."""

import asyncio
from collections.abc import Mapping

from policies.ground.masking import LONGEST_AT_ONCE, UNREAD, Masked, mask_ahead

PAUSE_SECONDS = 0.002
"""How long a text is read before others are served."""

SECONDS = 2.0
"""How long a text may wait and be read; after that it is masked whole."""


class LongTexts:
    """Masks texts ahead of their records."""

    def __init__(self) -> None:
        # One at a time: a hundred would take a hundred steps in each turn of the loop.
        self._turn = asyncio.Lock()

    async def masked(self, text: str | None) -> Mapping[str, Masked]:
        """The masked form of `text` if it is too long to be masked at once, by the text."""
        if text is None or len(text) <= LONGEST_AT_ONCE:
            return {}
        try:
            async with asyncio.timeout(SECONDS), self._turn:
                return {text: await _in_turns(text)}
        except TimeoutError:
            return {text: Masked(f"[{UNREAD}]", (UNREAD,))}


async def _in_turns(text: str) -> Masked:
    steps = mask_ahead(text)
    time = asyncio.get_running_loop().time
    began = time()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            masked: Masked = done.value
            return masked
        if time() - began > PAUSE_SECONDS:
            await asyncio.sleep(0)
            began = time()
