"""`kill -9` between append, read-back, signature, store and publication: no fork, no note over rows
that are not there, and no row of the table ahead of the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from control_api.checkpoint_store.location import FileStore
from control_api.store.queries import checkpoints
from policies.trail import checkpoint
from policies.trail.merkle_tree import Frontier, leaf_hash
from tests.control_api.log.checkpoints.signer import STEPS
from tests.control_api.log.checkpoints.signing import LOG, SIGNER, grow, latest, maker, sizes
from tests.control_api.log.purging import valid
from tests.runner import tiers
from tests.support.open_store import TENANT, OpenStore, opened

PUBLISHED = ("published",)


@tiers.rotating(0, 4)
@pytest.mark.parametrize("step", [*STEPS, *PUBLISHED])
async def test_a_kill_before_any_step_leaves_only_signed_rows_and_the_next_start_continues(
    either_url: str, notes: Path, step: str
) -> None:
    if step not in ("signature", "row") and either_url.startswith("postgresql"):
        pytest.skip("two steps show that it is the same on PostgreSQL")
    async with opened(either_url):
        pass
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.control_api.log.checkpoints.signer", either_url, notes, step],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"reached\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    async with opened(either_url) as world:
        stored = step in ("note not synced", "nodes", "row", *PUBLISHED)
        assert sizes(notes)[0] == (303 if stored else 3)
        await signed_rows_are_there(world, notes)
        await maker(world, notes).make(TENANT)  # the next start
        assert latest(notes).size == 303
        await signed_rows_are_there(world, notes)
        await grow(world, 2)
        made = await maker(world, notes).make(TENANT)
        assert made is not None
        assert made.size == latest(notes).size == 305
        await valid(world)


async def signed_rows_are_there(world: OpenStore, notes: Path) -> None:
    """Every note and every row signs the tree of the entries that are there; and each row's
    checkpoint is not larger than the store's."""
    query = "SELECT entry FROM log_entries WHERE tenant_id = :t ORDER BY seq"
    tree, roots = Frontier(), dict[int, bytes]()
    for row in await world.rows(query, t=TENANT):
        tree.append(leaf_hash(bytes(row.entry)))
        roots[tree.size] = tree.root()
    async with world.store.reading(TENANT) as connection:
        published = await checkpoints.page(connection, TENANT, None, 100)
    found = [each.note for each in FileStore(notes).notes(TENANT)]
    for note in (*found, *(each.note for each in published)):
        at = checkpoint.read(note, LOG, (SIGNER.public,))
        assert roots[at.size] == at.root
    assert all(each.size <= latest(notes).size for each in published)
