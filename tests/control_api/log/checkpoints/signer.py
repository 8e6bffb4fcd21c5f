"""A process that signs a log as the service does, until it is killed at one of the steps.

    python -m tests.control_api.log.checkpoints.signer <database> <notes> <step>

At the step it writes a line and waits for the kill.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from control_api.checkpoint_store.location import NoteFolder
from control_api.log.checkpoints import maker as maker_module
from control_api.store.queries import checkpoints, tree_nodes
from policies.trail import checkpoint
from tests.control_api.log.checkpoints.signing import grow, maker
from tests.support.open_store import TENANT, opened

STEPS = {
    "read-back": (maker_module, "read_agreeing"),
    "signature": (checkpoint, "sign"),
    "note unnamed": (os, "link"),
    "note not synced": (NoteFolder, "sync"),
    "nodes": (tree_nodes, "extend"),
    "row": (checkpoints, "add"),
}
"""The function before which the process stops."""


def stop(*_: Any, **__: Any) -> Any:
    print("reached", flush=True)
    time.sleep(600)


async def sign(url: str, notes: Path, step: str) -> None:
    async with opened(url) as world:
        await grow(world, 3)
        signing = maker(world, notes)
        await signing.make(TENANT)
        await grow(world, 300)
        holder, name = STEPS.get(step, (None, ""))
        after: Callable[..., Any] | None = None
        if holder is not None:
            after = getattr(holder, name)
            setattr(holder, name, stop)
        await signing.make(TENANT)
        assert after is None, "the step was not reached"
        stop()


if __name__ == "__main__":
    asyncio.run(sign(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
