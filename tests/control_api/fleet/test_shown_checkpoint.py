"""A report that asks is shown the log's latest checkpoint, and a proof that a sidecar verifies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from policies.ground.canonical import unb64
from policies.trail import checkpoint
from sidecar.control.log_client import PinnedCheckpoint
from tests.control_api.fleet.test_fleet import tell
from tests.support import waiting
from tests.support.control_api import ControlApi


def test_a_sidecar_that_asks_gets_a_checkpoint_that_it_can_pin(
    either: ControlApi, tmp_path: Path
) -> None:
    key = unb64(either.admin("GET", "/v1/sidecars/policy-set?since=0")["log_key"])
    now = [0.0]
    pinned = PinnedCheckpoint(tmp_path, lambda: (key,), lambda: now[0])
    assert tell(either, "s-1")["checkpoint"] is None  # an older sidecar does not ask
    sizes: list[int] = []
    for name in ("one", "two"):
        either.admin("POST", "/v1/agents", {"agent_id": f"agt_{name}", "agent_role": "support"})
        answer = _grown(either, pinned, sizes[-1] if sizes else 0)
        now[0] += 60
        asyncio.run(pinned.shown(answer))
        assert pinned.pinned is not None
        sizes.append(pinned.pinned.size)
    assert sizes[0] < sizes[1]
    assert (pinned.fork, pinned.other_origin) == (None, None)
    # A size that the log never had: nothing is proven, and the sidecar sees the fork itself.
    ahead = tell(either, "s-1", pinned_size=10_000)
    assert (checkpoint.unverified(ahead["checkpoint"]).size, ahead["consistency"]) == (sizes[1], [])


def _grown(api: ControlApi, pinned: PinnedCheckpoint, before: int) -> dict[str, Any]:
    """The answer to a report, once a checkpoint of more than `before` entries is shown."""
    size, found = pinned.wanted(), dict[str, Any]()

    def grown() -> bool:
        found.update(tell(api, "s-1", pinned_size=size))
        note = found["checkpoint"]
        return note is not None and checkpoint.unverified(note).size > before

    waiting.until("a checkpoint of what was added", grown)
    return found
