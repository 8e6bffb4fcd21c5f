"""A database that commits, but whose answer does not arrive."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.open_store import OpenStore


def lose_first_answer(world: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next transaction is committed, and its caller sees a lost connection."""
    run: Any = world.database.run
    lost: list[Any] = []

    async def run_and_lose(lane: str, work: Any) -> Any:
        result = await run(lane, work)
        if not lost:
            lost.append(result)
            raise ConnectionResetError
        return result

    monkeypatch.setattr(world.database, "run", run_and_lose)
