"""Rebuilds the columns beside entries and openings, and the search index over them, in bounded
transactions.

    rebuild_group     the columns of a group of entries, and their rows in the index
    rebuild_spans     the times of the index's blocks

An entry whose bytes don't match the hash stored beside it is left as it is: there, the log itself
was changed, and the right content is unknown. Rows are deleted and inserted, since the service has
no permission to update any.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Row, bindparam, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.checks import find_unindexed, span_fits
from control_api.log.scheduled.rederivation import stopped
from control_api.store.log import index as log_index
from control_api.store.log.chain import NO_OPENINGS, user_id_of
from control_api.store.log.index import SPAN, block_end, indexed_size
from control_api.store.queries import purges, redactions
from control_api.store.queries.leases import begin_round, count_checks, self_checks
from control_api.store.queries.purges import purged_size
from control_api.store.schema.log import entries_with_openings, log_entries, log_spans, openings
from control_api.store.schema.statements import in_span, of_tenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.trail.change import change_record
from policies.trail.entry import Index, index_of
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import leaf_hash
from policies.trail.record import Record

BEGUN, DONE = "log.rebuild_begun", "log.rebuilt"
"""The names of the `change` entries that a rebuild writes: before the first row was changed, and
after the last."""


class RebuildChanges:
    """Makes the changes of one rebuild of one log, and records them in the log. `new_id` draws
    entry ids."""

    def __init__(self, store: Store, tenant_id: str, new_id: Callable[[], str]) -> None:
        self._store, self._tenant_id, self._new_id = store, tenant_id, new_id
        self._begun = False

    async def make(self, work: Callable[[AsyncConnection], Awaitable[int]]) -> int:
        """Run `work` in a transaction, under the log's lock; `work` returns how many things it
        changed. The transaction of the first change also appends an entry that says that a rebuild
        has begun."""
        begun = self._begun

        async def change(tx: Transaction) -> int:
            # Appends and purges wait for this lock, so neither comes between.
            await tx.connection.run_sync(purges.lock, self._tenant_id)
            changed = await work(tx.connection)
            if changed and not begun:
                await tx.append(self._record(BEGUN, {}))
            return changed

        # If we die before the commit, nothing has happened; after it, the log says that a rebuild
        # has begun, and the next one changes what is left.
        changed = await self._store.write(self._tenant_id, change)
        self._begun = begun or changed > 0
        return changed

    async def end(self, detail: dict[str, int]) -> int | None:
        """Start a new verification of the log. If anything was changed, record that too, and return
        the number of that entry, otherwise None."""

        async def work(tx: Transaction) -> int | None:
            seq = None
            if self._begun:
                seq = (await tx.append(self._record(DONE, detail))).seq
            state = await self_checks.state(tx.connection, self._tenant_id)
            if state is not None:
                await begin_round(tx.connection, self._tenant_id, stopped=stopped(state))
            await count_checks.ask(tx.connection, self._tenant_id)
            return seq

        return await self._store.write(self._tenant_id, work)

    def _record(self, what: str, detail: dict[str, int]) -> Record:
        return change_record(what, self._tenant_id, "system", detail, record_id=self._new_id())


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The faults in a group of entries: the rows with `wrong` columns, each with the right columns;
    the rows with a wrong column `user_id` (`users`), each with the right user; and the findings of
    entries that are damaged themselves."""

    wrong: list[tuple[Row[Any], Index]]
    users: list[tuple[Row[Any], str | None]]
    damaged: list[Finding]


async def rebuild_group(
    store: Store, tenant_id: str, changes: RebuildChanges, first: int
) -> tuple[int, list[Finding]]:
    """Rebuild a group of entries from `first` on: as many as one row of the index may name. Returns
    how many rows were changed, and the findings of damaged entries."""
    async with store.reading(tenant_id) as connection:
        size = await redactions.log_size(connection, tenant_id)
        found = await _group(connection, tenant_id, first)
        unindexed = await _is_unindexed(connection, tenant_id, first, size)
    if not (found.wrong or found.users or unindexed):
        return 0, found.damaged

    async def work(connection: AsyncConnection) -> int:
        # Read again, under the lock: a purge or an erasure may have removed some.
        group = await _group(connection, tenant_id, first)
        changed = await _replace(connection, tenant_id, group)
        now = await redactions.log_size(connection, tenant_id)
        if changed or await _is_unindexed(connection, tenant_id, first, now):
            await connection.run_sync(log_index.rewrite, tenant_id, first, now)
            changed = max(changed, 1)
        return changed

    return await changes.make(work), found.damaged


async def rebuild_spans(store: Store, tenant_id: str, changes: RebuildChanges) -> int:
    """Rebuild the earliest and latest time of each complete block of the index; return how many
    were wrong."""
    async with store.reading(tenant_id) as connection:
        size = await redactions.log_size(connection, tenant_id)
        kept = await purged_size(connection, tenant_id)
    changed, first = 0, indexed_size(SPAN, kept)
    while (until := block_end(SPAN, first)) <= indexed_size(SPAN, size):

        async def work(connection: AsyncConnection, first: int = first) -> int:
            if await _span_fits(connection, tenant_id, first, divided=first < kept):
                return 0
            await connection.run_sync(log_index.rewrite_span, tenant_id, first)
            return 1

        async with store.reading(tenant_id) as connection:
            fits = await _span_fits(connection, tenant_id, first, divided=first < kept)
        changed += 0 if fits else await changes.make(work)
        first = until
    return changed


async def _group(connection: AsyncConnection, tenant_id: str, first: int) -> GroupRows:
    group = {"tenant": tenant_id, "first": first, "until": first + log_index.STEP}
    wrong, users, damaged = [], [], []
    for row in (await connection.execute(_GROUP, group)).all():
        if leaf_hash(row.entry) != row.hash:
            message = f"seq {row.seq}: the entry is not the one whose hash is stored beside it"
            damaged.append(Finding(row.seq, Reason.HASH_MISMATCH, message))
            continue
        try:
            right = index_of(orjson.loads(row.entry))
            user_id = user_id_of(row.openings or NO_OPENINGS)
        except (ValueError, TypeError, LookupError, AttributeError):
            message = f"seq {row.seq}: the entry, or what is stored of its openings, can't be read"
            damaged.append(Finding(row.seq, Reason.NOT_AN_ENTRY, message))
            continue
        if right != tuple(getattr(row, name) for name in Index._fields):
            wrong.append((row, right))
        if user_id != row.user_id:
            users.append((row, user_id))
    return GroupRows(wrong, users, damaged)


async def _is_unindexed(connection: AsyncConnection, tenant_id: str, first: int, size: int) -> bool:
    until = min(first + log_index.STEP, size)
    return await find_unindexed(connection, tenant_id, first, until, size) is not None


async def _replace(connection: AsyncConnection, tenant_id: str, group: GroupRows) -> int:
    """Replace the wrong rows of a group; return how many."""
    await _make_room(connection, tenant_id, group.wrong)
    seqs = [row.seq for row, _ in group.wrong]
    rows = [
        {**_place(tenant_id, row), **right._asdict(), "entry": row.entry, "hash": row.hash}
        for row, right in group.wrong
    ]
    opened = [
        {**_place(tenant_id, row), "user_id": user_id, "openings": row.openings}
        for row, user_id in group.users
    ]
    if rows:
        await connection.execute(_delete(log_entries, tenant_id, seqs))
        await connection.execute(insert(log_entries), rows)
    if opened:
        seqs = [row.seq for row, _ in group.users]
        await connection.execute(_delete(openings, tenant_id, seqs))
        await connection.execute(insert(openings), opened)
    return len(rows) + len(opened)


async def _make_room(
    connection: AsyncConnection, tenant_id: str, wrong: Sequence[tuple[Row[Any], Index]]
) -> None:
    """Free the ids that these entries should have, since ids are unique. Other rows that have one
    of them get an id that no entry has; those rows are rebuilt later, with their own group."""
    ids, seqs = [right.eid for _, right in wrong], [row.seq for row, _ in wrong]
    there = log_entries.c.eid.in_(ids) & log_entries.c.seq.not_in(seqs)
    query = select(log_entries).where(of_tenant(log_entries, tenant_id), there)
    taken = (await connection.execute(query)).mappings().all()
    if taken:
        await connection.execute(_delete(log_entries, tenant_id, [row["seq"] for row in taken]))
        rows = [{**row, "eid": f"displaced/{row['seq']}"} for row in taken]
        await connection.execute(insert(log_entries), rows)


async def _span_fits(
    connection: AsyncConnection, tenant_id: str, first: int, *, divided: bool
) -> bool:
    until = block_end(SPAN, first)
    block = {"tenant": tenant_id, "first": first, "until": until}
    low, high = (await connection.execute(_TIMES, block)).one()
    if low is None:
        return True  # all of it was purged
    row = (await connection.execute(_SPAN, block)).one_or_none()
    stored = None if row is None else (row.until_seq, row.first_ts, row.last_ts)
    return span_fits((until, low, high), stored, divided=divided)


def _place(tenant_id: str, row: Row[Any]) -> dict[str, Any]:
    return {"tenant_id": tenant_id, "seq": row.seq}


def _delete(table: Any, tenant_id: str, seqs: Sequence[int]) -> Any:
    return delete(table).where(of_tenant(table, tenant_id), table.c.seq.in_(seqs))


def _within(table: Any) -> tuple[Any, ...]:
    return (*in_span(table),)


_GROUP = (
    select(log_entries, openings.c.user_id, openings.c.openings)
    .select_from(entries_with_openings)
    .where(*_within(log_entries))
    .order_by(log_entries.c.seq)
)
_TIMES = select(func.min(log_entries.c.ts), func.max(log_entries.c.ts)).where(*_within(log_entries))
_SPAN = select(log_spans).where(of_tenant(log_spans), log_spans.c.seq == bindparam("first"))
