"""The owner of a log's database: reads it, writes it anew with the project's own chain code so that
every hash, column and head fits again, and goes back to a copy. Has the log's key only where a test
hands it a signer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Table, delete, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from control_api.store.log.chain import user_id_of
from control_api.store.schema.log import (
    checkpoints,
    log_entries,
    log_heads,
    openings,
    purges,
    sources,
    tree_nodes,
)
from control_api.store.schema.tables import tenants
from control_api.store.url import parse_url
from policies.ground.canonical import b64, encode, micros
from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.entry import index_of
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.spool_chain import core_hash
from tests.support.open_store import TENANT
from tests.support.postgres import unbound

TABLES = (log_entries, openings, log_heads, purges, sources, checkpoints, tree_nodes)
Copy = dict[str, list[dict[str, Any]]]


@dataclass
class Line:
    """An entry, decoded, and its openings; None if they are not stored."""

    entry: dict[str, Any]
    openings: bytes | None


Change = Callable[[list[Line]], object]


class Insider:
    """Works on the database at `url` as its superuser, each step in a transaction."""

    def __init__(self, url: str) -> None:
        self._engine = create_async_engine(parse_url(unbound(url)))

    async def close(self) -> None:
        """End its connections."""
        await self._engine.dispose()

    async def copy(self) -> Copy:
        """All that the database has of its logs."""
        async with self._engine.connect() as connection:
            return {table.name: await _rows(connection, table) for table in TABLES}

    async def restore(self, copy: Copy) -> None:
        """Put the tables back to the copy, and undo `keep_days`."""
        async with self._engine.begin() as connection:
            await connection.execute(tenants.update().values(retention_days=365))
            for table in TABLES:
                await _replace(connection, table, copy[table.name])

    async def run(self, *statements: str, **values: Any) -> None:
        """Each statement gets those of the values that it names."""
        async with self._engine.begin() as connection:
            for each in statements:
                used = {name: value for name, value in values.items() if f":{name}" in each}
                await connection.execute(text(each), used)

    async def rewrite(self, change: Change) -> None:
        """Change the entries, and make all that follows from them anew; sources keep their own
        chains. Published checkpoints stay."""
        async with self._engine.begin() as connection:
            opened = {row["seq"]: row["openings"] for row in await _rows(connection, openings)}
            stored = await _rows(connection, log_entries)
            lines = [Line(orjson.loads(row["entry"]), opened.get(row["seq"])) for row in stored]
            change(lines)
            await self._write(connection, lines)

    async def sign(self, signer: Signer, size: int | None = None) -> str:
        """Replace the published checkpoints by one of the log as it is, and return its note."""
        async with self._engine.begin() as connection:
            [head] = await _rows(connection, log_heads)
            tree = Frontier.from_bytes(head["size"], head["frontier"])
            at = Checkpoint(head["log"], tree.size if size is None else size, tree.root())
            [*_, row] = await _rows(connection, checkpoints)
            row |= {
                "size": at.size,
                "root_hash": at.root,
                "frontier": head["frontier"],
                "note": checkpoint.sign(at, signer),
            }
            await _replace(connection, checkpoints, [row])
        return str(row["note"])

    async def forget_checkpoints(self) -> None:
        """As if none was ever published."""
        async with self._engine.begin() as connection:
            await connection.execute(delete(checkpoints))

    async def count_records(self) -> None:
        """Set the counter of each spool to its last record in the log."""
        async with self._engine.begin() as connection:
            for row in await _rows(connection, log_entries):
                entry = orjson.loads(row["entry"])
                if (src := entry.get("src")) is not None:
                    spool = sources.c.source == src["id"], sources.c.instance == src["inst"]
                    values = {"n": src["n"], "hash": core_hash(_core(entry))}
                    await connection.execute(sources.update().where(*spool).values(values))

    async def _write(self, connection: AsyncConnection, lines: list[Line]) -> None:
        tree, last, entries, opened = Frontier(), b"", [], []
        times = sorted(line.entry["ts"] for line in lines)
        for seq, line in enumerate(lines):
            entry = {**line.entry, "seq": seq, "prev": b64(last), "ts": times[seq]}
            raw = encode(entry)
            last = leaf_hash(raw)
            tree.append(last)
            place = {"tenant_id": TENANT, "seq": seq}
            entries.append({**place, **index_of(entry)._asdict(), "entry": raw, "hash": last})
            if line.openings is not None:
                values = {"user_id": user_id_of(line.openings), "openings": line.openings}
                opened.append({**place, **values})
        await _replace(connection, log_entries, entries)
        await _replace(connection, openings, opened)
        head = {"size": tree.size, "last_leaf": last, "frontier": tree.to_bytes()}
        await connection.execute(log_heads.update().values(last_ts=micros(times[-1]), **head))


def chain_sources(lines: list[Line]) -> None:
    """Number and chain the records of enforcement points anew: no signature is over them."""
    ends: dict[tuple[str, str], tuple[int, str]] = {}
    for line in lines:
        if (src := line.entry.get("src")) is not None:
            name = src["id"], src["inst"]
            src["n"], src["prev"] = ends.get(name, (0, ""))
            ends[name] = src["n"] + 1, b64(core_hash(_core(line.entry)))


def _core(entry: dict[str, Any]) -> bytes:
    members = ("v", "kind", "eid", "src", "pub", "cm", "masked")
    return encode({member: entry[member] for member in members})


async def _rows(connection: AsyncConnection, table: Table) -> list[dict[str, Any]]:
    ordered = select(table).order_by(*table.primary_key)
    return [dict(row) for row in (await connection.execute(ordered)).mappings()]


async def _replace(connection: AsyncConnection, table: Table, rows: list[dict[str, Any]]) -> None:
    await connection.execute(delete(table))
    if rows:
        await connection.execute(insert(table), rows)
