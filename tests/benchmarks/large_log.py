"""Makes a large log quickly: valid entries and openings, head, tree nodes, signed checkpoints, and
the role's document that the decisions cite.

    python -m tests.benchmarks.large_log DIR [ENTRIES]

writes `DIR/data/sluice.db` and the log's key beside it: 2 KB of disk an entry, 20 to 40 µs. The
control API can be started on `DIR/data`. The rows go into the tables directly, without counts and
without the index of the lists' filters, so measure on it only what reads the log itself.
"""

import asyncio
import hashlib
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from control_api.log import log_key
from policies.ground.canonical import b64, rfc3339
from policies.ground.signing import KeyRing
from policies.sets.policy_set import role_document
from policies.trail.checkpoint import Checkpoint, sign
from policies.trail.entry import index_of
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.record import Record
from tests.policies.world import FULL, POLICY, decided, full_facts
from tests.support.open_store import TENANT, opened

ENTRIES = 1_000_000
BATCH = 10_000
"""Entries a transaction; a checkpoint follows each."""
USER = "ann@example.com"
WIDTH = 256
"""The children of a tree node (`control_api.store.schema.log`)."""


class Row(NamedTuple):
    """A row of `log_entries` with its openings."""

    seq: int
    eid: str
    ts: int
    entry: bytes
    hash: bytes
    openings: bytes
    columns: tuple[str | None, ...]


class LargeLog:
    """The entries of a log one after another, and the tree over those made so far."""

    def __init__(self, log: str, start: int, records: Sequence[Record] = ()) -> None:
        """`records` are decisions to repeat, by default that of one agent."""
        self.log = log
        self.start = start
        self.tree = Frontier()
        self.last = b""
        self._records = records or [decided(FULL, full_facts())]

    def rows(self) -> Iterator[Row]:
        """Decisions, a millisecond apart, without end. Only their ids, places and times differ from
        the records', so that making them costs little more than hashing them."""
        heads = [each.head.replace(each.eid.encode(), b"%b") for each in self._records]
        columns = dict[int, tuple[str | None, ...]]()
        prev = ""
        while True:
            seq = self.tree.size
            which = seq % len(heads)
            eid, ts = f"event-{seq:012d}", self.start + seq * 1000
            record = self._records[which]._replace(eid=eid, head=heads[which] % eid.encode())
            entry = record.entry(self.log, seq, prev, rfc3339(ts))
            self.last = leaf_hash(entry)
            prev = b64(self.last)
            self.tree.append(self.last)
            if which not in columns:
                columns[which] = index_of(orjson.loads(entry))[3:]
            yield Row(seq, eid, ts, entry, self.last, record.openings, columns[which])


class Nodes:
    """The tree's nodes of `WIDTH` children each, as they are completed."""

    def __init__(self) -> None:
        self._open: list[list[bytes]] = []
        self._made: list[int] = []

    def add(self, hash_: bytes, level: int = 0) -> Iterator[tuple[int, int, bytes]]:
        """The `(level, place, hash)` of the nodes that the node or leaf `hash_` completes."""
        if len(self._open) == level:
            self._open.append([])
            self._made.append(0)
        children = self._open[level]
        children.append(hash_)
        if len(children) < WIDTH:
            return
        tree = Frontier()
        for child in children:
            tree.append(child)
        children.clear()
        # Of complete subtrees, the tree over their roots is the tree over their leaves.
        yield level + 1, self._made[level], tree.root()
        self._made[level] += 1
        yield from self.add(tree.root(), level + 1)


def signed(log: LargeLog, ring: KeyRing) -> tuple[object, ...]:
    """The row of `checkpoints` for the entries made so far."""
    checkpoint = Checkpoint(log.log, log.tree.size, log.tree.root())
    note, at = sign(checkpoint, ring.signer), log.start + log.tree.size * 1000
    number = -(-log.tree.size // BATCH) - 1
    return TENANT, log.log, log.tree.size, checkpoint.root, log.tree.to_bytes(), note, at, number


def fill(database: Path, log: LargeLog, ring: KeyRing, entries: int) -> None:
    """Writes the tables of an empty log. Nothing is synced: a benchmark's data may be lost."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    document = role_document([POLICY])
    assert document is not None
    digest = hashlib.sha256(document).hexdigest()
    cited = (TENANT, digest, f"role/{POLICY.agent_role}", document, log.start, None)
    connection.execute("INSERT OR IGNORE INTO cited_documents VALUES (?,?,?,?,?,?)", cited)
    rows, nodes = log.rows(), Nodes()
    while log.tree.size < entries:
        batch = list(islice(rows, min(BATCH, entries - log.tree.size)))
        connection.execute("BEGIN")
        connection.executemany(
            _INSERT.format("log_entries", ",".join("?" * 14)),
            [(TENANT, r.seq, r.eid, "decision", r.ts, *r.columns, r.entry, r.hash) for r in batch],
        )
        connection.executemany(
            _INSERT.format("openings", "?,?,?,?"),
            [(TENANT, r.seq, USER, r.openings) for r in batch],
        )
        completed = [(TENANT, *node) for r in batch for node in nodes.add(r.hash)]
        connection.executemany(_INSERT.format("tree_nodes", "?,?,?,?"), completed)
        connection.execute(_CHECKPOINT, signed(log, ring))
        end = (log.tree.size, log.last, batch[-1].ts, log.tree.to_bytes(), TENANT)
        connection.execute(_HEAD, end)
        connection.execute("COMMIT")
    connection.close()


_INSERT = "INSERT INTO {} VALUES ({})"
_CHECKPOINT = """INSERT INTO checkpoints (tenant_id, origin, size, root_hash, frontier, note,
    signed_at, number, witnesses) VALUES (?,?,?,?,?,?,?,?,0)"""
_HEAD = "UPDATE log_heads SET size=?, last_leaf=?, last_ts=?, frontier=? WHERE tenant_id=?"


async def make(directory: Path, entries: int, records: Sequence[Record] = ()) -> None:
    """A data directory with a log of so many entries, as a service would have left it."""
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    ring = log_key.open_or_make(data)
    database = data / "sluice.db"
    async with opened(f"sqlite+aiosqlite:///{database}") as world:
        await log_key.ensure_database_key(world.store, ring, data)
        # One real record makes the head; it is taken away again.
        await world.log.append(TENANT, decided())
        (head,) = await world.rows("SELECT log FROM log_heads")
        for table in ("log_entries", "openings", "tallies", "first_accesses"):
            await world.rows(f"DELETE FROM {table}")
    start = time.time_ns() // 1000 - entries * 1000 - 60_000_000
    fill(database, LargeLog(head.log, start, records), ring, entries)


def main() -> None:
    directory = Path(sys.argv[1])
    entries = int(sys.argv[2]) if len(sys.argv) > 2 else ENTRIES
    started = time.perf_counter()
    asyncio.run(make(directory, entries))
    print(f"{entries} entries in {time.perf_counter() - started:.0f} s: {directory / 'data'}")


if __name__ == "__main__":
    main()
