"""A checkpoint maker on a real store and a real directory, for the tests of checkpoints."""

from __future__ import annotations

from pathlib import Path

from control_api.checkpoint_store.location import FileStore
from control_api.log.checkpoints.maker import CheckpointMaker
from policies.ground.signing import KeyRing, Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from tests.support.open_store import TENANT, OpenStore, decision

SIGNER = Signer(bytes(range(32)))
RING = KeyRing(SIGNER)
LOG = f"sluice/epoch/{TENANT}"


def maker(world: OpenStore, directory: Path) -> CheckpointMaker:
    return CheckpointMaker(world.store, RING, FileStore(directory))


async def grow(world: OpenStore, count: int) -> None:
    for _ in range(count):
        await world.log.append(TENANT, decision())


def latest(directory: Path, origin: str = LOG) -> Checkpoint:
    """The store's latest checkpoint, verified."""
    note = FileStore(directory).latest(TENANT)
    assert note is not None
    return checkpoint.read(note.note, origin, (SIGNER.public,))


def sizes(directory: Path) -> list[int]:
    """The sizes of the notes in the store, newest first."""
    return [checkpoint.unverified(each.note).size for each in FileStore(directory).notes(TENANT)]
