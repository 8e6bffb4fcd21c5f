"""Verifies one log in its database: SQLite, also a copy of the file, or PostgreSQL.

Reads through the store's own queries, without starting any part of the service.
`control_api.log.verify` checks entries, columns, index, head and anchor; this module compares the
result with the checkpoints of the database, of the checkpoint store and of the arguments.
"""

import asyncio
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import orjson
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.checkpoint_store.location import StoreLocation, open_store
from control_api.checkpoint_store.stored_note import CheckpointStore, CheckpointStoreFault, cosigned
from control_api.log import verify as online
from control_api.store.errors import ReadFault
from control_api.store.opening import open_read_only
from control_api.store.queries import checkpoints, log_keys, tree_nodes
from control_api.store.queries.purges import latest_anchor, purged_size
from control_api.store.queries.tree_nodes import TooManyRows
from control_api.store.schema.log import log_entries, log_heads
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from control_api.store.url import DatabaseUnreachable, UnusableDatabase
from policies.ground.clock import Clock
from policies.ground.signing import Endorsement
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs import signed_note, tree_proofs
from policies.trail.proofs.nodes import KnownNodes, NodeGap, Part, frontier_nodes
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from policies.trail.verdict.checkpoint_judge import CheckpointJudge, KnownNotes, earlier_roots
from policies.trail.verdict.outcome import Outcome, Unusable
from policies.trail.verdict.summary import describe
from policies.trail.verdict.trusted_keys import TrustedKeys, witnessed
from policies.trail.walk.gaps import Silences

NOTES_PAGE = 5000
MAX_TRIES_DURING_PURGES = 5
"""The number of times that entries are read if a purge interferes. Purges run hourly, so after this
many tries the reading gives up."""


async def published_notes(connection: AsyncConnection, tenant: str) -> tuple[str, str, list[str]]:
    """Return the log's name, the origin of its newest checkpoints, and a list with its latest
    published note, empty if none of that origin can be read."""
    query = select(log_heads.c.log).where(of_tenant(log_heads, tenant))
    log = str((await connection.execute(query)).scalar() or "")
    origin = await checkpoints.current_origin(connection, tenant, log)
    # One that was edited by hand proves nothing.
    published = await checkpoints.readable_latest(connection, tenant)
    if published is None or published.origin != origin:
        return log, origin, []
    return log, origin, [published.note]


async def last_entry(connection: AsyncConnection, tenant: str) -> str:
    """Return the time of the newest entry (`ts`), empty if it can't be read."""
    query = (
        select(log_entries.c.entry)
        .where(of_tenant(log_entries, tenant))
        .order_by(log_entries.c.seq.desc())
        .limit(1)
    )
    raw = (await connection.execute(query)).scalar()
    try:
        return str(orjson.loads(raw or b"")["ts"])
    except (ValueError, TypeError, LookupError):
        return ""


async def neighbour_rows(
    connection: AsyncConnection, tenant: str, seq: int
) -> list[tuple[str, bytes]]:
    """Return the entry at `seq` and those beside it, as far as they exist, each with `before`,
    `here` or `after`."""
    query = (
        select(log_entries.c.seq, log_entries.c.entry)
        .where(
            of_tenant(log_entries, tenant), log_entries.c.seq >= seq - 1,
            log_entries.c.seq <= seq + 1,
        )
        .order_by(log_entries.c.seq)
    )  # fmt: skip
    marks = {seq - 1: "before", seq: "here", seq + 1: "after"}
    rows = (await connection.execute(query)).all()
    # SQLite does not enforce column types: an entry may have become a text.
    return [
        (marks[row.seq], row.entry if isinstance(row.entry, bytes) else str(row.entry).encode())
        for row in rows
    ]


async def roots_at(store: Store, tenant: str, sizes: Collection[int], end: int) -> dict[int, bytes]:
    """Return the roots of the tree at those of `sizes` that are not above `end`. The entries up to
    there must have been verified, since only the hashes stored beside them are read."""
    wanted = sorted(size for size in sizes if size <= end)
    roots: dict[int, bytes] | None = None
    tries_left = MAX_TRIES_DURING_PURGES
    # A purge that removes entries while they are read leaves a gap: read again from its anchor.
    while wanted and roots is None and tries_left:
        roots, tries_left = await _roots_at(store, tenant, wanted), tries_left - 1
    return {size: root for size, root in (roots or {}).items() if size in sizes}


async def _roots_at(store: Store, tenant: str, wanted: Sequence[int]) -> dict[int, bytes] | None:
    """Return the roots at the sizes in `wanted`, which is sorted; None if an entry is missing."""
    async with store.snapshot(tenant) as connection:
        try:
            anchor = await latest_anchor(connection, tenant)
            tree = Frontier() if anchor is None else anchor.purged.tree()
        except (ValueError, TypeError):
            return {}
        purged = {size for size in wanted if 0 < size < tree.size}
        roots = await _purged_roots(connection, tenant, tree, purged)
    roots |= earlier_roots(tree)
    while tree.size < wanted[-1]:
        query = (
            select(log_entries.c.seq, log_entries.c.hash)
            .where(of_tenant(log_entries, tenant), log_entries.c.seq >= tree.size)
            .order_by(log_entries.c.seq)
            .limit(min(NOTES_PAGE, wanted[-1] - tree.size))
        )
        async with store.reading(tenant) as connection:
            rows = (await connection.execute(query)).all()
        if not rows:
            return None
        for row in rows:
            if row.seq != tree.size:
                return None
            tree.append(row.hash)
            if tree.size in wanted:
                roots[tree.size] = tree.root()
    return roots


async def _purged_roots(
    connection: AsyncConnection, tenant: str, anchor: Frontier, sizes: Collection[int]
) -> dict[int, bytes]:
    """Return the roots at sizes inside the purged prefix for which stored nodes prove that the
    anchor's tree begins with that tree. That works at multiples of 256, and at most checkpoints
    that are kept."""
    roots: dict[int, bytes] = {}
    for size in sizes:
        known, parts = KnownNodes(), tree_proofs.consistency_parts(size, anchor.size)
        wanted = {*(node for part in parts for node in part.nodes()), *frontier_nodes(size)}
        try:
            stored = await checkpoints.at(connection, tenant, size)
            if stored is not None:
                known.add_frontier(Frontier.from_bytes(size, stored.frontier))
            known.add_frontier(anchor)
            await connection.run_sync(tree_nodes.read, tenant, wanted, known)
            hashes = [part.root(known.hash) for part in parts]
            root = Part(0, size).root(known.hash)
        except (NodeGap, TooManyRows, ValueError, TypeError):
            continue
        # Stored nodes may be forged: only a proof that leads to the anchor's root counts.
        if tree_proofs.proves_consistency(size, root, anchor.size, anchor.root(), hashes):
            roots[size] = root
    return roots


_SEQ = re.compile(r"seq ([0-9]{1,18}): ")
MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """The options of `sluice verify --database`. `url` is like SLUICE_DATABASE_URL, `store` like
    SLUICE_CHECKPOINT_STORE; `tenant` is that of `--log`. The others are the keys, witnesses, quorum
    and checkpoints that the arguments pin."""

    url: str
    store: str | None = None
    tenant: str | None = None
    keys: Sequence[VerifierKey] = ()
    witnesses: Sequence[VerifierKey] = ()
    quorum: int | None = None
    known: Sequence[str] = ()


def verify_database(options: DatabaseOptions, clock: Clock) -> Outcome:
    """Verify one log, and return the outcome. Raises `Unusable` if the database or the store can't
    be read."""
    try:
        return asyncio.run(_verify(options, clock))
    except (UnusableDatabase, DatabaseUnreachable, CheckpointStoreFault) as error:
        raise Unusable(f"--database: {error}") from error
    except ReadFault as error:
        # An older schema, or damage to the database's own structure.
        cause = str(error.__cause__ or error).splitlines()[0]
        raise Unusable(f"--database: it can't be read: {cause:.200}") from error
    except DBAPIError as error:
        raise Unusable(f"--database: it can't be read: {error.orig!s:.200}") from error


async def _verify(options: DatabaseOptions, clock: Clock) -> Outcome:
    notes = None
    if options.store is not None:
        try:
            notes = open_store(StoreLocation.parse(options.store))
        except ValueError as error:
            raise Unusable(f"--store {error}") from error
    store = await open_read_only(options.url, clock)
    try:
        tenant = await _tenant(store, options.tenant, notes)
        return await _verify_log(store, tenant, notes, options)
    finally:
        await store.close()


async def _tenant(store: Store, named: str | None, notes: CheckpointStore | None) -> str:
    if named is not None:
        return named
    async with store.reading_all_tenants() as connection:
        query = select(log_heads.c.tenant_id).order_by(log_heads.c.tenant_id)
        found = set((await connection.execute(query.limit(10_000))).scalars())
        with suppress(ReadFault):
            # Where the head is gone, the entries still name their tenant.
            first = select(log_entries.c.tenant_id).limit(1)
            found |= set((await connection.execute(first)).scalars())
    if notes is not None:
        found |= set(notes.tenants())
    if len(found) != 1:
        names = ", ".join(f"`{name}`" for name in sorted(found)[:MOST_SHOWN])
        has = f"{len(found)} logs, name one with --log: {names}" if found else "no log"
        raise Unusable(f"the database has {has}")
    return str(found.pop())


async def _verify_log(
    store: Store, tenant: str, notes: CheckpointStore | None, options: DatabaseOptions
) -> Outcome:
    outcome = Outcome(f"the log of `{tenant}`")
    async with store.reading(tenant) as connection:
        purged = await purged_size(connection, tenant)
    # Between anchor and log: the service may run, and the store must be no older than the one and
    # no newer than the other.
    latest = None if notes is None else _latest(notes, tenant)
    async with store.reading(tenant) as connection:
        log, origin, published = await published_notes(connection, tenant)
    outcome.log, outcome.origin = log, origin
    keys = TrustedKeys(options.keys, await _claimed(store, origin, outcome))
    publics = [*keys.reasons, *keys.former] if keys.pinned else keys.claimed
    found: list[Silences] = []
    answer = await online.verify(store, tenant, publics, silences=found.append)
    outcome.silences = found[-1]
    finding = _finding(answer["broken_at"], answer["reason"])
    outcome.first = outcome.oldest = answer["first_seq"] or 0
    outcome.size = outcome.first + answer["total"]
    outcome.decisions = answer["events"]
    async with store.reading(tenant) as connection:
        outcome.last_ts = await last_entry(connection, tenant)
        if finding is not None:
            outcome.add(finding)
            if finding.seq is not None:
                for mark, raw in await neighbour_rows(connection, tenant, finding.seq):
                    outcome.neighbours.append(f"{mark:<6}  {describe(raw)}")
    if latest is not None:
        published = _of_store(latest, published, purged, outcome)
        if latest not in published and options.witnesses:
            outcome.notes.append(_cosigned(latest, options.witnesses))
    judge = CheckpointJudge(log, keys, options.witnesses, options.quorum)
    judged = KnownNotes(judge, origin, options.known)
    for text in published:
        judged.add(text, outcome)
    roots = await roots_at(store, tenant, judged.sizes(), outcome.size)
    judged.compare(outcome, roots, whole=finding is None)
    judge.conclude(outcome, whole=finding is None)
    return outcome


async def _claimed(store: Store, origin: str, outcome: Outcome) -> list[dict[str, object]]:
    async with store.reading_all_tenants() as connection:
        chain: list[Endorsement] = await log_keys.endorsements(connection)
        current = await log_keys.current(connection)
    publics = [each.former for each in chain] + ([] if current is None else [current])
    claimed: list[dict[str, object]] = []
    for place, public in enumerate(publics):
        key = VerifierKey(origin or "log", ED25519, public).text()
        outcome.claimed_keys.append(key)
        endorsement = chain[place - 1].to_wire() if place else None
        claimed.append({"key": key, "endorsement": endorsement})
    return claimed


def _latest(notes: CheckpointStore, tenant: str) -> str | None:
    stored = notes.latest(tenant)
    return None if stored is None else cosigned(notes, tenant, stored.note)


def _of_store(latest: str, published: list[str], purged: int, outcome: Outcome) -> list[str]:
    """Return the published notes and the store's latest note, if that is about this log. Adds a
    finding to `outcome` otherwise: a note about a log that the database does not have, or not under
    this name, means that the database was emptied or put back. A note of fewer entries than were
    `purged` means that nothing is left to compare it with."""
    noted, log, origin = latest.partition("\n")[0], outcome.log, outcome.origin
    if noted == origin:
        with suppress(BadNote):
            size = checkpoint.unverified(latest).size
            if size < purged:
                message = f"{purged} entries were purged, the store's latest note counts {size}"
                outcome.add(Finding(purged, Reason.PURGE_UNCOVERED, message))
        return [*published, latest]
    message = f"the store's latest checkpoint is of `{noted:.80}`, the database has `{origin}`"
    if not log:
        message = f"the store has a checkpoint of `{noted:.80}`, the database has no such log"
    outcome.add(Finding(outcome.size, Reason.LOG_BEHIND_CHECKPOINT, message))
    return published


def _cosigned(latest: str, witnesses: Sequence[VerifierKey]) -> str:
    """Return a sentence that names the witnesses who cosigned a note of the store. The database has
    nothing to compare that note with."""
    try:
        size = checkpoint.unverified(latest).size
        names = [each.key.name for each in witnessed(signed_note.parse(latest), witnesses)]
    except BadNote as error:
        return f"the store's latest checkpoint can't be judged: {error}"
    by = ", ".join(f"`{name}`" for name in names) or "none of the given witnesses"
    return f"the store's latest checkpoint, of {size} entries, is cosigned by {by}"


def _finding(broken_at: str | None, text: str | None) -> Finding | None:
    """Return the finding that the online verification shows as a text; None if there is no text."""
    if text is None:
        return None
    code, _, message = text.partition(": ")
    seq = _SEQ.match(message)
    place = int(seq[1]) if seq else None
    if place is None and broken_at is not None and broken_at.isdecimal():
        place = int(broken_at)
    return Finding(place, Reason(code), message, broken_at)
