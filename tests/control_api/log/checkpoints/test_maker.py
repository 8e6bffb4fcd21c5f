"""A checkpoint is of the log as it is, in the store outside first, and then in the table."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from control_api.checkpoint_store.location import FileStore
from control_api.log.checkpoints.expected import read_state
from control_api.store.queries import checkpoints
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.transaction import Transaction
from policies.ground.errors import Unavailable
from policies.trail import checkpoint
from policies.trail.merkle_tree import Frontier
from tests.control_api.log.checkpoints.signing import SIGNER, grow, latest, maker, sizes
from tests.control_api.log.purging import valid
from tests.support.open_store import OTHER, TENANT, OpenStore, decision, opened


@pytest.mark.deep(stands_in="test_an_older_log_is_read_back_whole_and_signed")
async def test_a_log_that_grows_is_signed_and_published(world: OpenStore, notes: Path) -> None:
    signing = maker(world, notes)
    assert await signing.make(TENANT) is None  # no log yet
    for size in (1, 3, 70):
        await grow(world, size - (await _size(world)))
        made = await signing.make(TENANT)
        assert made is not None
        assert (made.size, latest(notes)) == (size, latest(notes)._replace(size=size))
        assert latest(notes).root == made.root_hash
        assert Frontier.from_bytes(size, made.frontier).root() == made.root_hash
        assert await signing.make(TENANT) == made  # nothing new, nothing signed
    assert (await valid(world))["total"] == 70
    async with world.store.reading(TENANT) as connection:
        kept = await checkpoints.page(connection, TENANT, None, 10)
        assert [each.size for each in kept] == [70, 3, 1]
        assert [each.size for each in await checkpoints.page(connection, TENANT, 2, 1)] == [3]
        assert await checkpoints.at(connection, TENANT, 3) == kept[1]
    assert FileStore(notes).tenants() == [TENANT]


async def _size(world: OpenStore) -> int:
    rows = await world.rows("SELECT size FROM log_heads WHERE tenant_id = :t", t=TENANT)
    return rows[0].size if rows else 0


async def test_each_tenant_gets_checkpoints_of_its_own(world: OpenStore, notes: Path) -> None:
    signing = maker(world, notes)
    await grow(world, 2)
    await world.log.append(OTHER, decision())
    assert (await signing.make(TENANT), await signing.make(OTHER)) != (None, None)
    assert FileStore(notes).tenants() == [TENANT, OTHER]
    assert latest(notes).size == 2


async def test_an_older_log_is_read_back_whole_and_signed(world: OpenStore, notes: Path) -> None:
    """An installation from before checkpoints: nothing in the store, nothing in the table."""
    signing = maker(world, notes)
    assert await signing.make(TENANT) is None  # no log yet
    await grow(world, 300)
    made = await signing.make(TENANT)
    assert made is not None
    assert made.size == latest(notes).size == 300
    assert made.root_hash == latest(notes).root
    assert Frontier.from_bytes(300, made.frontier).root() == made.root_hash
    assert await signing.make(TENANT) == made  # nothing new, nothing signed
    await grow(world, 2)
    assert await signing.make(TENANT) != made
    async with world.store.reading(TENANT) as connection:
        kept = await checkpoints.page(connection, TENANT, None, 10)
        assert [each.size for each in kept] == [302, 300]
        assert await checkpoints.at(connection, TENANT, 300) == kept[1]


@pytest.mark.deep(stands_in="test_a_checkpoint_that_is_published_late_does_not_follow_a_larger_one")
async def test_replicas_that_sign_at_once_make_one_series(
    either_url: str, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(either_url) as world, opened(either_url) as other:
        await grow(world, 1)
        signing = [maker(each, notes) for each in (world, other, world, other)]
        growing = asyncio.ensure_future(grow(world, 40))
        while not growing.done():
            made = await asyncio.gather(*(each.make(TENANT) for each in signing))
            assert None not in made
        await growing
        last = await signing[0].make(TENANT)
        assert last is not None
        async with world.store.reading(TENANT) as connection:
            kept = await checkpoints.page(connection, TENANT, None, 100)
        assert kept[0] == last
        assert [each.size for each in kept] == sorted((each.size for each in kept), reverse=True)
    assert latest(notes).size == 41
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_a_checkpoint_that_is_published_late_does_not_follow_a_larger_one(
    world: OpenStore, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing = maker(world, notes)
    await grow(world, 2)
    first = await signing.make(TENANT)
    assert first is not None
    await grow(world, 2)
    late = await signed_only(world, 4)
    await grow(world, 2)

    def beaten(store: FileStore, *stored: Any) -> bool:
        """Another replica, which signs the same, puts its note into the store a moment before."""
        monkeypatch.undo()
        assert store.put(*stored)
        return store.put(*stored)

    monkeypatch.setattr(FileStore, "put", beaten)
    last = await signing.make(TENANT)
    assert last is not None
    assert last.size == latest(notes).size == 6

    async def work(tx: Transaction) -> StoredCheckpoint:
        return await checkpoints.add(tx.connection, TENANT, late)

    assert await world.store.write(TENANT, work) == last
    late = await signed_only(world, 6)  # as by another replica that signed at the same time
    assert await world.store.write(TENANT, work) == last
    async with world.store.reading(TENANT) as connection:
        kept = await checkpoints.page(connection, TENANT, None, 100)
    assert [each.size for each in kept] == [6, 2]


async def signed_only(world: OpenStore, size: int) -> StoredCheckpoint:
    """The checkpoint of the log as it is, known to its signer alone."""
    async with world.store.reading(TENANT) as connection:
        state = await read_state(connection, TENANT)
    at = state.checkpoint()
    assert at.size == size
    note = checkpoint.sign(at, SIGNER)
    return StoredCheckpoint(at.origin, at.size, at.root, state.frontier(), note, world.now())


@pytest.mark.deep(
    stands_in="tests/control_api/log/checkpoints/test_loop.py::test_a_failure_is_logged_once_and_tried_again"
)
async def test_a_store_that_fails_shows_no_checkpoint(world: OpenStore, notes: Path) -> None:
    notes.write_text("no directory")
    signing = maker(world, notes)
    await grow(world, 2)
    with pytest.raises(Unavailable):
        await signing.make(TENANT)
    assert await world.rows("SELECT 1 FROM checkpoints") == []
    notes.unlink()
    made = await signing.make(TENANT)
    assert made is not None
    assert sizes(notes) == [2]
    assert SIGNER.public not in made.note.encode()
