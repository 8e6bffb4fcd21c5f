"""A log that contradicts its checkpoints is not signed, and `verify` says why, until an operator
accepts it as a new incarnation. The database is altered by SQL, with the real key where that
helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from control_api.checkpoint_store.location import FileStore
from control_api.checkpoint_store.stored_note import CosignedNote
from control_api.log.append import Log
from control_api.log.checkpoints.acceptance import Acceptance
from control_api.log.checkpoints.expected import Diverged
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.log.purge import Purge
from control_api.log.verify import verify
from control_api.store.queries import checkpoints
from policies.ground.canonical import b64, micros
from policies.ground.errors import Conflict, Unavailable
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint, split_origin
from policies.trail.findings import Reason
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs.signed_note import Signature
from tests.control_api.log.checkpoints.signing import LOG, RING, SIGNER, grow, latest, maker, sizes
from tests.control_api.log.purging import DAY, keep_days
from tests.support.open_store import TENANT, OpenStore, event_id, opened

PUBLICS = (SIGNER.public,)


async def rewritten(world: OpenStore, size: int, change: bool = False) -> None:
    """Makes the log one of `size` entries in which everything agrees, as its database's owner can;
    `change` edits the first entry and chains all others anew."""
    wanted = {"t": TENANT, "size": size}
    for table in ("log_entries", "openings"):
        await world.rows(f"DELETE FROM {table} WHERE tenant_id = :t AND seq >= :size", **wanted)
    rows = await world.rows("SELECT * FROM log_entries WHERE tenant_id = :t ORDER BY seq", t=TENANT)
    tree, last, ts = Frontier(), b"", 0
    for row in rows:
        entry = bytes(row.entry)
        if change:
            entry = entry.replace(b"support-reads", b"support-lends")
            head, _, rest = entry.partition(b'"prev":"')
            entry = head + b'"prev":"' + b64(last).encode() + rest[rest.index(b'"') :]
        last, ts = leaf_hash(entry), micros(orjson.loads(entry)["ts"])
        tree.append(last)
        values = {"t": TENANT, "seq": row.seq, "entry": entry, "hash": last}
        await world.rows(
            "UPDATE log_entries SET entry = :entry, hash = :hash,"
            " policy_name = replace(policy_name, 'support-reads', :name)"
            " WHERE tenant_id = :t AND seq = :seq",
            name="support-lends" if change else "support-reads",
            **values,
        )
    await world.rows(
        "UPDATE log_heads SET size = :size, last_leaf = :leaf, last_ts = :ts, frontier = :frontier"
        " WHERE tenant_id = :t",
        leaf=last,
        ts=ts,
        frontier=tree.to_bytes(),
        **wanted,
    )


async def written_by_hand(world: OpenStore, note: str) -> None:
    """A row that says that an operator has accepted a new incarnation."""
    await world.rows(
        "INSERT INTO incarnations (tenant_id, number, origin, seq, cited_note, accepted_at)"
        " VALUES (:t, 1, :origin, 2, :note, 0)",
        t=TENANT,
        origin=f"{LOG}#1",
        note=note,
    )


async def by_hand_is_refused(world: OpenStore, service: CheckpointMaker, note: str) -> None:
    await written_by_hand(world, note)
    with pytest.raises(Diverged):
        await service.make(TENANT)
    await world.rows("DELETE FROM incarnations")


async def verified(world: OpenStore, notes: Path) -> dict[str, Any]:
    signed = await maker(world, notes).signed(TENANT)
    return await verify(world.store, TENANT, PUBLICS, signed)


async def refused(world: OpenStore, notes: Path, reason: Reason) -> None:
    before = sizes(notes)
    with pytest.raises(Diverged) as raised:
        await maker(world, notes).make(TENANT)
    assert raised.value.finding.reason == reason
    assert sizes(notes) == before  # nothing was signed
    answer = await verified(world, notes)
    assert not answer["valid"]
    assert answer["reason"].startswith(f"{reason}: ")
    assert answer["checkpoint"]["size"] == before[0]


async def test_a_log_without_its_newest_rows_is_not_signed(world: OpenStore, notes: Path) -> None:
    await grow(world, 5)
    assert await maker(world, notes).make(TENANT) is not None
    await rewritten(world, 4)
    await world.rows("DELETE FROM checkpoints")
    await refused(world, notes, Reason.LOG_BEHIND_CHECKPOINT)
    # It is found as well once the log has the signed size again.
    await grow(world, 3)
    await refused(world, notes, Reason.ROOT_MISMATCH)


@pytest.mark.deep(stands_in="test_a_log_without_its_newest_rows_is_not_signed")
async def test_an_older_copy_of_the_database_is_not_signed(either_url: str, notes: Path) -> None:
    """All tables as they were, checkpoints included."""
    async with opened(either_url) as world:
        await grow(world, 3)
        await maker(world, notes).make(TENANT)
        copy = await world.rows("SELECT number FROM checkpoints")
        await grow(world, 3)
        await maker(world, notes).make(TENANT)
        await rewritten(world, 3)
        await world.rows("DELETE FROM checkpoints WHERE number > :number", number=copy[0].number)
        await refused(world, notes, Reason.LOG_BEHIND_CHECKPOINT)


@pytest.mark.deep(
    stands_in="tests/control_api/log/checkpoints/test_loop.py::test_a_log_that_the_database_has_lost_is_found"
)
async def test_a_log_whose_tables_were_emptied_is_not_signed(world: OpenStore, notes: Path) -> None:
    await grow(world, 3)
    await maker(world, notes).make(TENANT)
    for table in ("log_entries", "openings", "log_heads", "checkpoints", "tree_nodes"):
        await world.rows(f"DELETE FROM {table}")
    await refused(world, notes, Reason.LOG_BEHIND_CHECKPOINT)


async def test_a_log_of_another_epoch_is_behind_whatever_its_size(
    world: OpenStore, notes: Path
) -> None:
    note = checkpoint.sign(Checkpoint(f"sluice/older/{TENANT}", 2, bytes(32)), SIGNER)
    FileStore(notes).put(TENANT, 1, note)
    await grow(world, 9)
    await refused(world, notes, Reason.LOG_BEHIND_CHECKPOINT)
    # Nor is a note followed that is by another key.
    forged = f"{LOG}\n1\n{b64(bytes(32))}\n\n— {LOG} {b64(bytes(68))}\n"
    FileStore(notes.with_name("forged")).put(TENANT, 1, forged)
    await refused(world, notes.with_name("forged"), Reason.SIGNATURE_MISSING)


async def sign_again(world: OpenStore, size: int) -> None:
    """Puts a checkpoint of the log as it is in place of the published one, by the log's key."""
    (head,) = await world.rows("SELECT frontier FROM log_heads WHERE tenant_id = :t", t=TENANT)
    tree = Frontier.from_bytes(size, bytes(head.frontier))
    await world.rows(
        "UPDATE checkpoints SET root_hash = :root, frontier = :frontier, note = :note",
        root=tree.root(),
        frontier=tree.to_bytes(),
        note=checkpoint.sign(Checkpoint(LOG, size, tree.root()), SIGNER),
    )


async def test_a_log_rewritten_even_with_its_key_is_not_signed(
    world: OpenStore, notes: Path
) -> None:
    await grow(world, 2)
    signing = maker(world, notes)
    await signing.make(TENANT)
    await rewritten(world, 2, change=True)
    await refused(world, notes, Reason.ROOT_MISMATCH)
    await sign_again(world, 2)
    await refused(world, notes, Reason.ROOT_MISMATCH)
    await grow(world, 1)
    await refused(world, notes, Reason.ROOT_MISMATCH)


@pytest.mark.deep(stands_in="test_a_log_rewritten_even_with_its_key_is_not_signed")
@pytest.mark.parametrize("signed_again", [False, True])
async def test_a_log_rewritten_as_a_whole_is_not_signed(
    world: OpenStore, notes: Path, signed_again: bool
) -> None:
    """Even with the log's own key: the store has the note of what was there before."""
    await grow(world, 6)
    await maker(world, notes).make(TENANT)
    await rewritten(world, 6, change=True)
    if signed_again:
        await sign_again(world, 6)
    await refused(world, notes, Reason.ROOT_MISMATCH)
    await grow(world, 2)
    await refused(world, notes, Reason.ROOT_MISMATCH)


@pytest.mark.deep(stands_in="test_a_new_row_that_was_edited_or_deleted_is_not_signed")
async def test_rows_that_are_not_there_are_not_signed(world: OpenStore, notes: Path) -> None:
    await grow(world, 3)
    await maker(world, notes).make(TENANT)
    await grow(world, 3)
    await world.rows("DELETE FROM log_entries WHERE tenant_id = :t AND seq = 4", t=TENANT)
    with pytest.raises(Diverged) as raised:
        await maker(world, notes).make(TENANT)
    assert raised.value.finding.reason == Reason.ENTRIES_MISSING
    assert sizes(notes) == [3]


async def test_a_new_row_that_was_edited_or_deleted_is_not_signed(
    world: OpenStore, notes: Path
) -> None:
    await grow(world, 3)
    await maker(world, notes).make(TENANT)
    await grow(world, 3)
    await world.rows(
        "UPDATE log_entries SET entry = hash WHERE tenant_id = :t AND seq = 4", t=TENANT
    )
    with pytest.raises(Diverged) as raised:
        await maker(world, notes).make(TENANT)
    assert raised.value.finding.reason == Reason.HEAD_MISMATCH
    await world.rows("DELETE FROM log_entries WHERE tenant_id = :t AND seq = 4", t=TENANT)
    with pytest.raises(Diverged) as raised:
        await maker(world, notes).make(TENANT)
    assert raised.value.finding.reason == Reason.ENTRIES_MISSING
    assert sizes(notes) == [3]


@pytest.mark.deep(stands_in="test_a_log_of_another_epoch_is_behind_whatever_its_size")
async def test_a_note_by_another_key_is_not_followed(world: OpenStore, notes: Path) -> None:
    await grow(world, 3)
    FileStore(notes).put(TENANT, 1, f"{LOG}\n1\n{b64(bytes(32))}\n\n— {LOG} {b64(bytes(68))}\n")
    await refused(world, notes, Reason.SIGNATURE_MISSING)


@pytest.mark.deep(
    stands_in="tests/control_api/log/checkpoints/test_loop.py::test_a_log_that_the_database_has_lost_is_found"
)
async def test_decisions_continue_on_a_diverged_log_and_one_error_is_logged(
    world: OpenStore, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await grow(world, 5)
    signing = maker(world, notes)
    await signing.make(TENANT)
    await rewritten(world, 4)
    world.log = Log(world.store)  # as after a restart
    for _ in range(3):
        await grow(world, 1)
        with pytest.raises(Diverged):
            await signing.make(TENANT)
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(errors) == 1
    assert set(signing.diverged) == {TENANT}


async def test_an_operator_accepts_a_new_incarnation(
    either_url: str, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(either_url) as world:
        await grow(world, 5)
        service = maker(world, notes)
        await service.make(TENANT)
        last = FileStore(notes).latest(TENANT)
        assert last is not None
        cosigned = last.note + Signature("witness", bytes(4), bytes(72)).line()
        FileStore(notes).put_cosigned(TENANT, CosignedNote("00000000", 0, 5, cosigned))
        acceptance = Acceptance(world.store, RING, FileStore(notes), event_id)
        with pytest.raises(Conflict):
            await acceptance.accept(TENANT, "nothing is wrong")
        await rewritten(world, 3)
        with pytest.raises(Diverged):
            await service.make(TENANT)
        # Only the note in the store ends it, and that takes the log's key.
        await by_hand_is_refused(world, service, last.note)
        # Dies after the entry: it is still refused, and the same command goes on from there.
        with monkeypatch.context() as patch:
            patch.setattr(FileStore, "put", lambda *_: False)
            with pytest.raises(Unavailable):
                await acceptance.accept(TENANT, "restored from the backup of noon")
        with pytest.raises(Diverged):
            await service.make(TENANT)
        done = await acceptance.accept(TENANT, "restored from the backup of noon")
        assert (done.seq, done.origin) == (3, f"{LOG}#1")
        assert latest(notes, f"{LOG}#1").size == 4
        assert sizes(notes) == [4, 5]  # the store keeps both
        # The running service takes it up, and goes on under the new origin.
        world.log = Log(world.store)
        await grow(world, 2)
        made = await service.make(TENANT)
        assert made is not None
        assert (made.origin, made.size, service.diverged) == (f"{LOG}#1", 6, {})
        answer = await verified(world, notes)
        assert (answer["valid"], answer["checkpoint"]["size"]) == (True, 6)
        (entry,) = await world.rows("SELECT entry FROM log_entries WHERE kind = 'incarnation'")
        assert last.note.partition("\n\n")[0].replace("\n", "\\n").encode() in bytes(entry.entry)
        async with world.store.reading(TENANT) as connection:
            row = await checkpoints.latest_incarnation(connection, TENANT)
        assert row is not None
        assert row.cited_note == cosigned
        assert split_origin(row.origin) == (LOG, 1)


async def test_a_log_that_was_purged_unseen_by_the_store_can_be_accepted(
    sqlite_url: str, notes: Path
) -> None:
    async with opened(sqlite_url) as world:
        await grow(world, 1)
        await maker(world, notes).make(TENANT)
        await grow(world, 1)
        await keep_days(world, 1)
        world.now.ahead += 2 * DAY
        purging = maker(world, notes.with_name("other"))
        assert (await Purge(world.store, RING, purging, event_id).run(TENANT)).removed == 2
        with pytest.raises(Diverged) as raised:
            await maker(world, notes).make(TENANT)
        assert raised.value.finding.reason == Reason.PURGE_UNCOVERED
        acceptance = Acceptance(world.store, RING, FileStore(notes), event_id)
        assert (await acceptance.accept(TENANT, "known")).origin == f"{LOG}#1"


@pytest.mark.deep(stands_in="test_a_log_that_was_purged_unseen_by_the_store_can_be_accepted")
async def test_a_store_that_is_behind_a_purge_can_be_accepted(
    world: OpenStore, notes: Path
) -> None:
    """The log was purged by a replica with another store, or with the log's key by an insider."""
    await grow(world, 3)
    await maker(world, notes).make(TENANT)
    await grow(world, 4)
    await keep_days(world, 1)
    world.now.ahead += 2 * DAY
    purging = maker(world, notes.with_name("other"))
    assert (await Purge(world.store, RING, purging, event_id).run(TENANT)).removed == 7
    await refused(world, notes, Reason.PURGE_UNCOVERED)
    await world.rows("DELETE FROM checkpoints")
    await refused(world, notes, Reason.PURGE_UNCOVERED)
    done = await Acceptance(world.store, RING, FileStore(notes), event_id).accept(TENANT, "known")
    assert done.origin == f"{LOG}#1"
    assert (await verified(world, notes))["valid"]


@pytest.mark.deep(stands_in="test_an_operator_accepts_a_new_incarnation")
async def test_an_incarnation_written_into_the_database_changes_nothing(
    world: OpenStore, notes: Path
) -> None:
    """Only the note in the store ends a divergence, and that takes the log's key."""
    await grow(world, 5)
    await maker(world, notes).make(TENANT)
    last = FileStore(notes).latest(TENANT)
    assert last is not None
    await rewritten(world, 3)
    await written_by_hand(world, last.note)
    await refused(world, notes, Reason.LOG_BEHIND_CHECKPOINT)


@pytest.mark.deep(
    stands_in="tests/control_api/log/checkpoints/test_loop.py::test_replicas_with_separate_stores_report_it_and_sign_within_the_hour"
)
async def test_a_lost_store_is_filled_from_the_database_with_an_error_in_the_log(
    world: OpenStore, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await grow(world, 4)
    await maker(world, notes).make(TENANT)
    lost = notes.with_name("new")
    made = await maker(world, lost).make(TENANT)
    assert made is not None
    assert FileStore(lost).latest(TENANT) == FileStore(notes).latest(TENANT)
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    # The rows must agree with what the database itself has published.
    await rewritten(world, 4, change=True)
    with pytest.raises(Diverged):
        await maker(world, notes.with_name("third")).make(TENANT)
