"""A sidecar pins what it was shown, and notices that it is shown another version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.ground.canonical import b64
from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from sidecar.control.log_client import INTERVAL_SECONDS, PinnedCheckpoint
from tests.deploy.commands.witness.protocol_client import leaf, mth, proof

SIGNER = Signer(bytes(32))
LOG = "sluice/epoch/default"
ONE = [leaf(b"%d" % n) for n in range(40)]
TWO = [leaf(b"another %d" % n) for n in range(40)]


class PinnedCheckpointSetup:
    """A sidecar's state, and a control API that shows it checkpoints."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = 0.0
        self.keys: tuple[bytes, ...] = (SIGNER.public,)
        self.pinned = self.restart()

    def restart(self) -> PinnedCheckpoint:
        self.pinned = PinnedCheckpoint(self.directory, lambda: self.keys, lambda: self.now)
        return self.pinned

    async def show(
        self,
        leaves: list[bytes],
        size: int,
        origin: str = LOG,
        signer: Signer = SIGNER,
        **changed: Any,
    ) -> int | None:
        """The pinned size after a checkpoint of these leaves, with their own proof."""
        wanted = self.pinned.wanted()
        assert wanted is not None
        self.now += INTERVAL_SECONDS
        note = checkpoint.sign(Checkpoint(origin, size, mth(leaves[:size])), signer)
        hashes = [b64(each) for each in proof(wanted, leaves[:size])] if wanted < size else []
        await self.pinned.shown({"checkpoint": note, "consistency": hashes} | changed)
        return None if self.pinned.pinned is None else self.pinned.pinned.size


@pytest.fixture
def world(tmp_path: Path) -> PinnedCheckpointSetup:
    return PinnedCheckpointSetup(tmp_path)


async def test_a_growing_log_is_pinned_and_the_pin_survives_a_restart(
    world: PinnedCheckpointSetup,
) -> None:
    for size in (1, 2, 7, 7, 8, 33):
        assert await world.show(ONE, size) == size
        pinned = world.restart().pinned
        assert pinned == Checkpoint(LOG, size, mth(ONE[:size]))
    assert (world.pinned.fork, world.pinned.other_origin) == (None, None)


@pytest.mark.parametrize("size", [3, 9, 10, 16, 40])
async def test_another_version_is_a_fork_even_after_a_restart(
    world: PinnedCheckpointSetup, size: int
) -> None:
    assert await world.show(ONE, 9) == 9
    assert await world.show(TWO, size) == 9
    assert world.pinned.fork is not None
    # The first version again does not settle it: two were signed.
    assert await world.show(ONE, 12) == 9
    assert world.pinned.fork is not None
    world.restart()
    assert await world.show(TWO, size) == 9
    assert world.pinned.fork is not None
    # An operator accepts it.
    (world.directory / "pinned-checkpoint").unlink()
    world.restart()
    assert await world.show(TWO, size) == size
    assert world.pinned.fork is None


async def test_growth_without_a_proof_is_only_claimed(world: PinnedCheckpointSetup) -> None:
    assert await world.show(ONE, 9) == 9
    assert await world.show(TWO, 20, consistency=None) == 9
    assert world.pinned.fork is None
    assert await world.show(ONE, 20) == 20


async def test_a_note_that_the_log_has_not_signed_changes_nothing(
    world: PinnedCheckpointSetup,
) -> None:
    assert await world.show(ONE, 9, signer=Signer(bytes(range(32)))) is None
    for note in (None, "", 3, "no note\n", "a\n" * 9):
        await world.pinned.shown({"checkpoint": note, "consistency": []})
    assert await world.show(ONE, 9) == 9
    assert await world.show(TWO, 9, signer=Signer(bytes(range(32)))) == 9
    for hashes in (["x"], [3], "xx", {"a": 1}):
        await world.show(ONE, 12, consistency=hashes)
    assert world.pinned.pinned == Checkpoint(LOG, 9, mth(ONE[:9]))


async def test_a_new_origin_is_logged_once_and_not_pinned(
    world: PinnedCheckpointSetup, caplog: pytest.LogCaptureFixture
) -> None:
    assert await world.show(ONE, 9) == 9
    for _ in range(3):
        assert await world.show(TWO, 20, f"{LOG}#1") == 9
    assert (world.pinned.fork, world.pinned.other_origin) == (None, f"{LOG}#1")
    assert len([each for each in caplog.records if "began again" in each.message]) == 1
    assert await world.show(ONE, 12) == 12
    assert world.pinned.other_origin is None


async def test_a_checkpoint_is_requested_once_a_minute_and_only_with_a_known_key(
    world: PinnedCheckpointSetup,
) -> None:
    world.keys = ()
    assert world.pinned.wanted() is None
    world.keys = (SIGNER.public,)
    assert world.pinned.wanted() == 0
    assert world.pinned.wanted() is None
    world.now += INTERVAL_SECONDS
    assert world.pinned.wanted() == 0


async def test_a_damaged_file_is_logged_and_replaced(
    world: PinnedCheckpointSetup, caplog: pytest.LogCaptureFixture
) -> None:
    path = world.directory / "pinned-checkpoint"
    path.write_bytes(b"\xff damaged")
    assert world.restart().pinned is None
    assert "pinned anew" in caplog.text
    assert await world.show(ONE, 5) == 5
    assert path.stat().st_mode & 0o777 == 0o600
