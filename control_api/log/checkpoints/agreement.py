"""Checks whether a log agrees with its checkpoints before it is signed again. Reads back the
entries since a signed checkpoint, or all of them if there is no such checkpoint or if something
differs. Memory stays flat, and other tasks run between two pages.

Also tells how much a published note proves by its signatures: unsigned, signed, or witnessed by a
quorum. For that it verifies the note; the number of cosignatures stored beside the note is not
believed.
"""

import asyncio
from collections.abc import Collection, Iterable
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, select

from control_api.log.checkpoints.expected import Diverged, Expected
from control_api.store.queries import checkpoints, tree_nodes
from control_api.store.queries.purges import latest_anchor
from control_api.store.schema.log import log_entries
from control_api.store.schema.statements import in_span
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.errors import Unavailable
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs import signed_note
from policies.trail.proofs.nodes import Node, WideTree
from policies.trail.proofs.signed_note import Signature, VerifierKey
from policies.trail.removal import Anchor


class Level(StrEnum):
    """The protection that a checkpoint's signatures give against a rewritten log."""

    unsigned = "unsigned"
    """There is no checkpoint, or the log's key has not signed it."""
    signed = "signed"
    """The log's key has signed the checkpoint. Those who have that key could have rewritten the
    log."""
    witnessed = "witnessed"
    """The log's key has signed the checkpoint, and a quorum of witnesses has cosigned it. They
    would not cosign a rewritten log."""


def level_of(
    note: str | None,
    origin: str,
    publics: Collection[bytes],
    witnesses: Collection[VerifierKey],
    quorum: int,
) -> tuple[Level, int]:
    """Return the level of a note of the log `origin`, and how many of the witnesses have cosigned
    it."""
    if note is None:
        return Level.unsigned, 0
    try:
        checkpoint.read(note, origin, publics)
        count = len(signed_note.verified_cosignatures(signed_note.parse(note), witnesses))
    except BadNote:
        return Level.unsigned, 0
    # Without a witness there is no quorum to reach.
    return (Level.witnessed if 0 < quorum <= count else Level.signed), count


def cosigners(note: str, witnesses: Collection[VerifierKey]) -> list[str]:
    """Return the sorted names of the witnesses whose cosignature is on the note. No cosignature is
    verified, so that a list of many notes stays cheap; `level_of` verifies them."""
    try:
        lines = {(each.name, each.key_id) for each in signed_note.parse(note).signatures}
    except BadNote:
        return []
    return sorted({each.name for each in witnesses if (each.name, each.key_id) in lines})


def merged(
    note: str, lines: Collection[Signature], witnesses: Collection[VerifierKey]
) -> tuple[str, int]:
    """Return the note with these signature lines added, and how many witnesses have cosigned it. A
    new line replaces the note's line of the same key. Raises `BadNote` if a line or the note can't
    be used."""
    parsed = signed_note.parse(note)
    replaced = {(each.name, each.key_id) for each in lines}
    kept = tuple(each for each in parsed.signatures if (each.name, each.key_id) not in replaced)
    made = parsed._replace(signatures=(*kept, *lines))
    return made.render(), len(signed_note.verified_cosignatures(made, witnesses))


FIRST_ROWS, MAX_ROWS = 50, 200
"""The number of rows of the first page, and the maximum for any page. The rows of a page are hashed
without a pause, in about a millisecond."""
PAGE_BYTES = 512 * 1024
PAUSE = 0.001
"""Seconds to sleep between two pages, so that other tasks can run."""


MAX_NODES = 4096
"""Tree nodes to keep in memory before they are stored: as many as a million entries have."""

StoredNode = tuple[Node, bytes]


class ReadBack(NamedTuple):
    """The result of reading entries back: the tree that they lead to, and those of its nodes that
    are still to be stored."""

    tree: Frontier
    nodes: list[StoredNode]


class EntriesMissing(Exception):
    """an entry below the head has no row"""

    def __init__(self, seq: int) -> None:
        super().__init__(f"entry {seq} is missing, though the head counts it")
        self.seq = seq


class RootDiffers(Exception):
    """the entries have another root than the checkpoint of their size"""

    def __init__(self, size: int) -> None:
        super().__init__(f"the entries up to {size} have another root than their checkpoint")
        self.size = size


async def read_back(
    store: Store, tenant_id: str, start: Frontier, until: int, expected: Iterable[Checkpoint]
) -> ReadBack:
    """Read the entries from `start.size` up to `until` and append them to a copy of `start`. Raises
    `RootDiffers` at the first expected checkpoint whose root differs from the tree's, and
    `EntriesMissing` if an entry has no row."""
    tree, nodes = WideTree(start), list[StoredNode]()
    stops: dict[int, set[bytes]] = {}
    for each in expected:
        # Two checkpoints of one size may contradict each other: then neither is passed over.
        stops.setdefault(each.size, set()).add(each.root)
    _compare(tree, stops)
    limit = FIRST_ROWS
    while tree.size < until:
        # A page ends at the next checkpoint, where the root is compared.
        end = min((size for size in stops if size > tree.size), default=until)
        wanted = {"tenant": tenant_id, "first": tree.size, "until": min(end, until), "rows": limit}
        # A transaction for each page: a long-lived reader would keep SQLite from folding its WAL.
        page = await store.run_reading(tenant_id, partial(_hashed, wanted))
        if page is None:
            raise EntriesMissing(tree.size)
        nodes += tree.append_all(page.leaves)
        _compare(tree, stops)
        if len(nodes) >= MAX_NODES:
            # Before they are proven, so that memory stays flat: proofs trust none of them.
            await store.write(tenant_id, partial(_extend, nodes))
            nodes.clear()
        rows, weight = len(page.leaves), page.weight
        limit = max(1, min(MAX_ROWS, PAGE_BYTES * rows // max(1, weight)))
        await asyncio.sleep(PAUSE)
    return ReadBack(tree.frontier(), nodes)


class _Page(NamedTuple):
    """The leaf hashes of consecutive entries, and the entries' total size in bytes (`weight`)."""

    leaves: list[bytes]
    weight: int


def _hashed(wanted: dict[str, Any], connection: Connection) -> _Page | None:
    """Return the hashes of the next entries from `first` on; None if one of them is missing."""
    rows = connection.execute(_PAGE, wanted).all()
    first = wanted["first"]
    # `seq` is unique and ordered, so first and last tell whether one is missing.
    if not rows or rows[0].seq != first or rows[-1].seq != first + len(rows) - 1:
        return None
    try:
        return _Page([leaf_hash(row.entry) for row in rows], sum(len(row.entry) for row in rows))
    except TypeError:  # SQLite keeps what is no bytes, if someone puts it there
        return None


def _compare(tree: WideTree, stops: dict[int, set[bytes]]) -> None:
    roots = stops.get(tree.size)
    if roots is not None and roots != {tree.frontier().root()}:
        raise RootDiffers(tree.size)


async def _extend(nodes: list[StoredNode], tx: Transaction) -> None:
    await tree_nodes.extend(tx.connection, tx.tenant_id, nodes)


_PAGE: Select[Any] = (
    select(log_entries.c.seq, log_entries.c.entry)
    .where(*in_span(log_entries))
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)


MAX_TRIES_DURING_PURGES = 5
"""The number of times that a log is read back if a purge interferes. Purges run hourly, so after
this many tries the check gives up with `Unavailable`."""


async def read_agreeing(store: Store, tenant_id: str, expected: Expected) -> list[StoredNode]:
    """Read the log's new entries back, and return the nodes of its tree that are to be stored.
    Raises `Diverged` unless the entries' tree passes through every expected checkpoint and ends in
    the head's tree."""
    base = await _base(store, tenant_id, expected)
    if base is not None:
        found = await _read(store, tenant_id, expected, base)
        if isinstance(found, ReadBack):
            return found.nodes
    # There is no base, or it does not lead to the head: what was changed may be below it.
    for _ in range(MAX_TRIES_DURING_PURGES):
        anchor = await _anchor(store, tenant_id, expected)
        start = Frontier() if anchor is None else anchor.purged.tree()
        found = await _read(store, tenant_id, expected, start)
        if isinstance(found, ReadBack):
            return found.nodes
        # If a purge removed rows that were being read, their absence proves nothing.
        if await _anchor(store, tenant_id, expected) == anchor:
            raise Diverged.of(tenant_id, found)
    raise Unavailable(f"the log of tenant `{tenant_id}` is being purged")


async def _anchor(store: Store, tenant_id: str, expected: Expected) -> Anchor | None:
    async with store.reading(tenant_id) as connection:
        try:
            anchor = await latest_anchor(connection, tenant_id)
            fault = anchor and anchor.fault(expected.state.log, expected.publics)
        except (ValueError, TypeError):
            anchor, fault = None, "the anchor can't be read"
    if fault:
        raise Diverged.of(tenant_id, Finding(None, Reason.ANCHOR_INVALID, fault))
    return anchor


async def _base(store: Store, tenant_id: str, expected: Expected) -> Frontier | None:
    """Return the tree of an earlier checkpoint to continue from, so that only new entries are read;
    None if there is no such tree. It comes from the database, and is proven by leading to the first
    expected checkpoint."""
    if not expected.before:
        return None
    state, first = expected.state, expected.before[0].size
    row = state.published
    try:
        if row is None or row.size > first:
            async with store.reading(tenant_id) as connection:
                row = await checkpoints.upto(connection, tenant_id, state.origin, first)
        return None if row is None else Frontier.from_bytes(row.size, row.frontier)
    except (ValueError, TypeError):  # edited by hand
        return None


async def _read(
    store: Store, tenant_id: str, expected: Expected, start: Frontier
) -> ReadBack | Finding:
    state = expected.state
    if expected.before and expected.before[0].size < start.size:
        # `read_expected` has compared the anchor of then. The next try reads both again.
        raise Unavailable(f"the log of tenant `{tenant_id}` was purged meanwhile")
    try:
        found = await read_back(store, tenant_id, start, state.size, expected.before)
    except RootDiffers as error:
        return Finding(error.size, Reason.ROOT_MISMATCH, str(error))
    except EntriesMissing as error:
        return Finding(error.seq, Reason.ENTRIES_MISSING, str(error))
    if found.tree != state.tree:
        text = f"the entries from {start.size} on do not hash to the head's tree"
        return Finding(state.size, Reason.HEAD_MISMATCH, text)
    return found
