"""The attacks of `FORMAT.md`, as rows of one table: what is done to a
log, the least evidence that finds it, and the reason that this gives. Runs nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from control_api.checkpoint_store.location import FileStore
from control_api.log.append import Log
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.log.purge import Purge
from control_api.log.verify import verify
from policies.ground.signing import Signer
from policies.trail.findings import Reason
from tests.control_api.log.checkpoints.signing import RING, SIGNER, grow, maker
from tests.control_api.log.insider import Copy, Insider, Line, chain_sources
from tests.control_api.log.purging import DAY, keep_days
from tests.support.open_store import TENANT, OpenStore, event_id

OTHER_KEY = Signer(bytes(32))
VERDICT, DENIED, RECORD, OPENED, SIZE = 0, 1, 4, 8, 12
"""Entries of the log: an ALLOW, a DENY, a sidecar's record between two others, one with openings;
and its size."""


class Evidence(IntEnum):
    """What a verification has, each with all before it."""

    LOG = 0  # its rows, and the log's public keys
    PUBLISHED = 1  # the checkpoints in the database
    STORE = 2  # the checkpoint store outside


@dataclass
class Attacked:
    """The log under attack. `mine` is a checkpoint store of the attacker's."""

    world: OpenStore
    insider: Insider
    younger: Copy
    notes: Path
    mine: Path

    async def reason(self, evidence: Evidence) -> str | None:
        """The code that `GET /v1/audit/verify` begins its reason with, None for a valid log."""
        publics = (SIGNER.public,)
        if evidence is Evidence.LOG:
            answer = await verify(self.world.store, TENANT, publics)
        else:
            notes = self.notes if evidence is Evidence.STORE else self.mine / "empty"
            signed = await maker(self.world, notes).signed(TENANT)
            answer = await verify(self.world.store, TENANT, publics, signed)
        return None if answer["valid"] else answer["reason"].partition(":")[0]


Attack = Callable[[Attacked], Awaitable[None]]


def by_sql(*statements: str) -> Attack:
    async def attack(on: Attacked) -> None:
        await on.insider.run(*statements, zero=bytes(32))

    return attack


def rewritten(
    *changes: Callable[[list[Line]], object],
    key: Signer | None = None,
    forget: bool = False,
    counted: bool = False,
) -> Attack:
    """Every hash fits again; if `counted`, the counters of the spools too. With a key, the
    published checkpoints do too."""

    async def attack(on: Attacked) -> None:
        for change in changes:
            await on.insider.rewrite(change)
        if counted:
            await on.insider.count_records()
        if key is not None:
            await on.insider.sign(key)
        if forget:
            await on.insider.forget_checkpoints()

    return attack


# ------------------------------------------------------------------------------ what is rewritten


def responded(**fields: str) -> Callable[[list[Line]], object]:
    return lambda lines: lines[DENIED].entry["pub"]["response"].update(fields)


def requested(**fields: str) -> Callable[[list[Line]], object]:
    return lambda lines: lines[DENIED].entry["pub"]["request"].update(fields)


def drop_the_newest(lines: list[Line]) -> None:
    del lines[-1]


def drop_a_record(lines: list[Line]) -> None:
    del lines[RECORD]


def repeat_a_record(lines: list[Line]) -> None:
    copied = lines[RECORD]
    entry = {**copied.entry, "eid": "repeated", "src": dict(copied.entry["src"])}
    lines.insert(RECORD, Line(entry, copied.openings))


def reorder_records(lines: list[Line]) -> None:
    lines[RECORD], lines[RECORD + 1] = lines[RECORD + 1], lines[RECORD]


def change_a_record(lines: list[Line]) -> None:
    lines[RECORD].entry["pub"]["response"]["reason"] = "another"


def swap_openings(lines: list[Line]) -> None:
    lines[VERDICT].openings, lines[OPENED].openings = (
        lines[OPENED].openings,
        lines[VERDICT].openings,
    )


def swap_commitments_too(lines: list[Line]) -> None:
    swap_openings(lines)
    one, other = lines[VERDICT].entry, lines[OPENED].entry
    one["cm"], other["cm"] = other["cm"], one["cm"]


def drop_the_redact_entry(lines: list[Line]) -> None:
    lines[:] = [line for line in lines if line.entry["kind"] != "redact"]


# -------------------------------------------------------------------------- what is done with more


async def edit_one(on: Attacked) -> None:
    """The entry, its hash and its columns fit each other; the next entry still cites the old."""
    old = (await on.insider.copy())["log_entries"]
    await on.insider.rewrite(responded(reason="another"))
    new = await on.insider.copy()
    new["log_entries"] = [*old[:DENIED], new["log_entries"][DENIED], *old[DENIED + 1 :]]
    await on.insider.restore(new)


async def delete_and_close_up(on: Attacked) -> None:
    await on.insider.run("DELETE FROM log_entries WHERE seq = 3")
    await moved(*((seq, seq - 1) for seq in range(4, SIZE)))(on)
    await on.insider.run(f"UPDATE log_heads SET size = {SIZE - 1}")


async def insert_in_the_middle(on: Attacked) -> None:
    await moved(*((seq, seq + 1) for seq in range(3, SIZE)))(on)
    await on.insider.run(
        "INSERT INTO log_entries (tenant_id, seq, eid, kind, ts, entry, hash)"
        " SELECT tenant_id, 3, 'x', kind, ts, entry, hash FROM log_entries WHERE seq = 2",
        f"UPDATE log_heads SET size = {SIZE + 1}",
    )


async def put_the_younger_copy(on: Attacked) -> None:
    await on.insider.restore(on.younger)


async def sign_the_store_with_another_key(on: Attacked) -> None:
    await rewritten(responded(reason="another"), key=OTHER_KEY)(on)
    [row] = await on.world.rows("SELECT note FROM checkpoints")
    FileStore(on.notes).put(TENANT, 3, row.note)


async def show_another_version(on: Attacked) -> None:
    """One reader is shown the rows, the other a checkpoint of the same size with another root."""
    log = await on.insider.copy()
    await rewritten(responded(reason="another"), key=SIGNER)(on)
    shown = (await on.insider.copy())["checkpoints"]
    await on.insider.restore({**log, "checkpoints": shown})


def purged(key: Signer, *changes: Callable[[list[Line]], object], beyond: int = 0) -> Attack:
    """Retention, run by the attacker with a checkpoint store of the attacker's own; with `beyond`,
    of all rows that the store outside has signed, and of so many more."""

    async def attack(on: Attacked) -> None:
        for change in changes:
            await on.insider.rewrite(change)
        await on.insider.forget_checkpoints()
        if beyond:
            on.world.log = await Log.open(on.world.store)
            await grow(on.world, beyond)
            on.world.now.ahead += 2 * DAY
        await keep_days(on.world, 1)
        ring = type(RING)(key)
        making = CheckpointMaker(on.world.store, ring, FileStore(on.mine / "purge"))
        done = await Purge(on.world.store, ring, making, event_id).run(TENANT)
        assert done.removed
        await on.insider.run("DELETE FROM checkpoints")

    return attack


def moved(*pairs: tuple[int, int]) -> Attack:
    """Entries get other numbers, by way of numbers that are free."""
    away = [f"UPDATE log_entries SET seq = {at + 1000} WHERE seq = {at}" for at, _ in pairs]
    back = [f"UPDATE log_entries SET seq = {to} WHERE seq = {at + 1000}" for at, to in pairs]
    return by_sql(*away, *back)


ROWS: dict[str, tuple[Attack, Evidence, Reason]] = {
    # Edit, insert, delete in the middle, reorder, any column, any byte: chain, tree and columns.
    "an entry edited": (
        by_sql(f"UPDATE log_entries SET entry = :zero WHERE seq = {DENIED}"),
        Evidence.LOG, Reason.NOT_AN_ENTRY,
    ),
    "an entry edited, with its hash and columns": (edit_one, Evidence.LOG, Reason.CHAIN_BROKEN),
    "an entry in place of another": (
        by_sql("UPDATE log_entries SET entry = (SELECT entry FROM log_entries WHERE seq = 5)"
               " WHERE seq = 4"),
        Evidence.LOG, Reason.WRONG_SEQ,
    ),
    "an entry deleted": (
        by_sql("DELETE FROM log_entries WHERE seq = 3"), Evidence.LOG, Reason.ENTRIES_MISSING,
    ),
    "two entries reordered": (moved((4, 5), (5, 4)), Evidence.LOG, Reason.WRONG_SEQ),
    "an entry deleted, and the rest moved up": (
        delete_and_close_up, Evidence.LOG, Reason.WRONG_SEQ,
    ),
    "an entry inserted": (insert_in_the_middle, Evidence.LOG, Reason.WRONG_SEQ),
    "column hash": (
        by_sql("UPDATE log_entries SET hash = :zero WHERE seq = 1"),
        Evidence.LOG, Reason.HASH_MISMATCH,
    ),
    "column seq": (
        by_sql("UPDATE log_entries SET seq = 400 WHERE seq = 3"),
        Evidence.LOG, Reason.ENTRIES_MISSING,
    ),
    "column decision": (
        by_sql("UPDATE log_entries SET decision = 'ALLOW' WHERE seq = 1"),
        Evidence.LOG, Reason.COLUMN_MISMATCH,
    ),
    # Newest rows, all rows, a younger copy: the size of a checkpoint.
    "the newest row deleted": (
        by_sql(f"DELETE FROM log_entries WHERE seq = {SIZE - 1}"),
        Evidence.LOG, Reason.HEAD_MISMATCH,
    ),
    "the newest row deleted, and the head fixed up": (
        rewritten(drop_the_newest), Evidence.PUBLISHED, Reason.LOG_BEHIND_CHECKPOINT,
    ),
    "the same, and the checkpoints deleted": (
        rewritten(drop_the_newest, forget=True), Evidence.STORE, Reason.LOG_BEHIND_CHECKPOINT,
    ),
    "the same, and signed anew with the log's key": (
        rewritten(drop_the_newest, key=SIGNER), Evidence.STORE, Reason.LOG_BEHIND_CHECKPOINT,
    ),
    "all rows deleted": (
        by_sql("DELETE FROM log_entries", "DELETE FROM openings", "DELETE FROM log_heads",
               "DELETE FROM checkpoints", "DELETE FROM tree_nodes", "DELETE FROM sources"),
        Evidence.STORE, Reason.LOG_BEHIND_CHECKPOINT,
    ),
    "a younger copy": (put_the_younger_copy, Evidence.STORE, Reason.LOG_BEHIND_CHECKPOINT),
    # Oldest rows, as if by retention: the anchor against the checkpoint.
    "the oldest rows deleted": (
        by_sql("DELETE FROM log_entries WHERE seq < 3", "DELETE FROM openings WHERE seq < 3"),
        Evidence.LOG, Reason.ENTRIES_MISSING,
    ),
    "an anchor signed with another key": (
        purged(OTHER_KEY), Evidence.LOG, Reason.ANCHOR_INVALID,
    ),
    "an anchor of other rows, signed with the log's key": (
        purged(SIGNER, responded(reason="another")), Evidence.STORE, Reason.ROOT_MISMATCH,
    ),
    "all that the store has signed purged, with the log's key": (
        purged(SIGNER, responded(reason="another"), beyond=1),
        Evidence.STORE, Reason.PURGE_UNCOVERED,
    ),
    # The whole log rewritten: the signature; with the log's key, the store outside.
    "all rewritten": (
        rewritten(responded(reason="another")), Evidence.PUBLISHED, Reason.ROOT_MISMATCH,
    ),
    "all rewritten, and signed with another key": (
        rewritten(responded(reason="another"), key=OTHER_KEY), Evidence.STORE, Reason.ROOT_MISMATCH,
    ),
    "the same, in the store too": (
        sign_the_store_with_another_key, Evidence.STORE, Reason.SIGNATURE_MISSING,
    ),
    "all rewritten, and signed with the log's key": (
        rewritten(responded(reason="another"), key=SIGNER), Evidence.STORE, Reason.ROOT_MISMATCH,
    ),
    # Two versions shown to two readers: one size, two roots.
    "another version shown": (show_another_version, Evidence.PUBLISHED, Reason.ROOT_MISMATCH),
    # At or behind a sidecar: the source's counter and chain. Even they can be made to fit.
    "a record dropped": (rewritten(drop_a_record), Evidence.LOG, Reason.SOURCE_GAP),
    "a record repeated": (rewritten(repeat_a_record), Evidence.LOG, Reason.SOURCE_GAP),
    "two records reordered": (rewritten(reorder_records), Evidence.LOG, Reason.SOURCE_GAP),
    "a record changed": (rewritten(change_a_record), Evidence.LOG, Reason.SOURCE_CHAIN_BROKEN),
    "a record changed, with its source's chain and counter": (
        rewritten(change_a_record, chain_sources, key=SIGNER, counted=True),
        Evidence.STORE, Reason.ROOT_MISMATCH,
    ),
    # A verdict with all that belongs to it: each is inside the entry.
    **{f"a verdict's {name}": (rewritten(change, key=SIGNER), Evidence.STORE, Reason.ROOT_MISMATCH)
       for name, change in {
           "decision": responded(decision="ALLOW"),
           "policy": responded(policy_name="other"),
           "agent": requested(agent_id="agt_other"),
           "session": requested(session_id="s_other"),
       }.items()},
    # Openings: the commitment, and the ledger of `redact` entries.
    "openings swapped": (rewritten(swap_openings), Evidence.LOG, Reason.OPENING_MISMATCH),
    "openings swapped with their commitments": (
        rewritten(swap_commitments_too, key=SIGNER), Evidence.STORE, Reason.ROOT_MISMATCH,
    ),
    "an opening silently erased": (
        by_sql(f"DELETE FROM openings WHERE seq = {OPENED}"), Evidence.LOG, Reason.OPENING_MISSING,
    ),
    "the ledger's entry removed": (
        rewritten(drop_the_redact_entry), Evidence.LOG, Reason.OPENING_MISSING,
    ),
}  # fmt: skip
