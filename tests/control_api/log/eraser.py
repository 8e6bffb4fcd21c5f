"""A process that erases a user's entries, and kills itself at a chosen step.

python -m tests.control_api.log.eraser URL USER STEP MOMENT

MOMENT is `before` or `after` the commit of the transaction number STEP, counted from 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from control_api.log import erasure as erase_module
from control_api.store.transaction import Transaction
from tests.control_api.log.erasing import erase
from tests.support.open_store import opened

STEP = 5
"""Entries of one step."""


async def main(url: str, user: str, step: str, moment: str) -> None:
    erase_module.FIRST_STEP = erase_module.MAX_STEP = erase_module.MIN_STEP = STEP
    async with opened(url) as world:
        write, left = world.store.write, int(step)

        def die(now: str) -> None:
            if (left, moment) == (0, now):
                os.kill(os.getpid(), signal.SIGKILL)

        async def counted(tenant_id: str, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
            nonlocal left
            left -= 1

            async def dying(tx: Transaction) -> Any:
                result = await work(tx)
                die("before")
                return result

            result = await write(tenant_id, dying)
            die("after")
            return result

        world.store.write = counted  # type: ignore[method-assign]
        await erase(world, user_id=user)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
