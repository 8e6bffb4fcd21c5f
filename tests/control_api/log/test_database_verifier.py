"""`sluice verify --database`: also on a damaged log, and never with a write."""

import asyncio
import base64
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from control_api.checkpoint_store.location import FileStore
from control_api.checkpoint_store.stored_note import CosignedNote
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.log.ingest import ingest
from control_api.log.purge import Purge
from policies.ground.signing import KeyRing, Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs import signed_note
from policies.trail.proofs.signed_note import COSIGNATURE, VerifierKey
from tests.control_api.log.purging import aged, keep_days, purge
from tests.control_api.store.databases import postgresql_url
from tests.deploy.commands.verify.world import SIGNER, Answer, run_on_database
from tests.support.open_store import (
    TENANT,
    OpenStore,
    Spool,
    action,
    decision,
    event_id,
    opened,
    sql,
)

__all__ = ["postgresql_url"]
Capture = pytest.CaptureFixture[str]
SIZE = 12
WITNESS = Signer(bytes([9]) * 32)
WITNESS_KEY = VerifierKey("w", COSIGNATURE, WITNESS.public)


@contextlib.asynccontextmanager
async def logged(url: str) -> AsyncIterator[OpenStore]:
    async with opened(url) as world:
        for number in range(3):
            event = await world.log.append(TENANT, decision(user_id=f"u-{number}"))
            await world.log.append(TENANT, action(event.eid, event.leaf_hash, number))
        spool = Spool()
        await ingest(world.store, TENANT, spool.source, spool.instance, spool.records(6))
        yield world


async def verify(capsys: Capture, url: str, *arguments: str) -> Answer:
    # The command has an event loop of its own.
    return await asyncio.to_thread(run_on_database, capsys, url, "--json", *arguments)


async def test_a_log_holds_on_either_database(either_url: str, capsys: Capture) -> None:
    async with logged(either_url):
        answer = await verify(capsys, either_url)
    assert (answer.code, answer.json["entries"], answer.json["level"]) == (0, SIZE, "unsigned")


@pytest.mark.deep(
    stands_in="tests/control_api/log/test_database_verifier.py::test_a_log_holds_on_either_database"
)
async def test_the_command_becomes_the_program_that_reads_the_store(sqlite_url: str) -> None:
    async with logged(sqlite_url):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deploy.command"),
            *("verify", "--database", sqlite_url, "--json"),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    assert (process.returncode, json.loads(out)["entries"]) == (0, SIZE)


DAMAGES = {
    "an entry": ("UPDATE log_entries SET entry = :zero WHERE seq = 4", "not_an_entry", 4),
    "a column": ("UPDATE log_entries SET decision = 'DENY' WHERE seq = 4", "column_mismatch", 4),
    "a hash": ("UPDATE log_entries SET hash = :zero WHERE seq = 4", "hash_mismatch", 4),
    "a row": ("DELETE FROM log_entries WHERE seq = 4", "entries_missing", 5),
    "openings": ("UPDATE openings SET openings = :zero WHERE seq = 4", "not_an_entry", 4),
    # With these the service does not start.
    "the head": ("UPDATE log_heads SET size = 11", "head_mismatch", 11),
    "the last row": ("DELETE FROM log_entries WHERE seq = 11", "head_mismatch", 11),
    "all rows": ("DELETE FROM log_entries", "head_mismatch", 0),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_each_damage_is_named(name: str, either_url: str, capsys: Capture) -> None:
    statement, reason, seq = DAMAGES[name]
    async with logged(either_url) as world:
        await sql(world.url, statement, **({"zero": bytes(32)} if ":zero" in statement else {}))
        answer = await verify(capsys, either_url)
        shown = await asyncio.to_thread(run_on_database, capsys, either_url)
    assert answer.code == 1
    assert (answer.reasons[0], answer.json["findings"][0]["seq"]) == (reason, seq)
    if name in ("an entry", "a column"):
        assert "the first bad entry:\n  before  seq 3" in shown.out
        assert "\n  after   seq 5" in shown.out


async def test_a_copy_without_its_wal_is_read_and_not_changed(
    sqlite_url: str, tmp_path: Path, capsys: Capture
) -> None:
    async with logged(sqlite_url):
        pass  # closing it folds the WAL into the file
    copy = tmp_path / "copy" / "sluice.db"
    copy.parent.mkdir()
    shutil.copy(sqlite_url.removeprefix("sqlite:///"), copy)
    before = copy.read_bytes()
    copy.chmod(0o400)
    copy.parent.chmod(0o500)
    try:
        answer = await verify(capsys, f"sqlite:///{copy}")
        assert (answer.code, answer.json["entries"]) == (0, SIZE)
        assert copy.read_bytes() == before
        assert [path.name for path in copy.parent.iterdir()] == ["sluice.db"]
    finally:
        copy.parent.chmod(0o700)


async def note_of(world: OpenStore, size: int, *, fork: bool = False) -> str:
    tree = Frontier()
    for row in await world.rows(f"SELECT hash FROM log_entries WHERE seq < {size} ORDER BY seq"):
        tree.append(bytes(32) if fork and not tree.size else bytes(row.hash))
    (head,) = await world.rows("SELECT log FROM log_heads")
    return checkpoint.sign(Checkpoint(head.log, size, tree.root()), SIGNER)


@pytest.mark.deep(stands_in="test_a_purge_beyond_the_stores_checkpoint_is_named")
async def test_the_outside_store_reveals_what_the_database_alone_hides(
    sqlite_url: str, tmp_path: Path, capsys: Capture
) -> None:
    key = ["--key", base64.b64encode(SIGNER.public).decode()]
    store = ["--store", f"file://{tmp_path}/notes"]
    notes = FileStore(tmp_path / "notes")
    async with logged(sqlite_url) as world:
        notes.put(TENANT, 0, await note_of(world, 10))
        answer = await verify(capsys, sqlite_url, *store, *key)
        assert (answer.code, answer.json["level"]) == (0, "signed")
        assert answer.json["unproven_tail"] == SIZE - 10
        other = await note_of(world, 10, fork=True)
        known = tmp_path / "fork"
        known.write_text(other)
        answer = await verify(capsys, sqlite_url, *store, *key, "--checkpoint", str(known))
        assert answer.reasons == ["root_mismatch"]
        cosigned = [*key, "--witness", WITNESS_KEY.text()]
        answer = await verify(capsys, sqlite_url, *store, *cosigned)
        assert (answer.json["level"], answer.reasons) == ("signed", ["quorum_missing"])
        note = await note_of(world, 10)
        text = note.partition("\n\n")[0] + "\n"
        line = signed_note.cosign(text, "w", WITNESS, 1_767_225_600).line()
        notes.put_cosigned(TENANT, CosignedNote("00000000", 0, 10, note + line))
        answer = await verify(capsys, sqlite_url, *store, *cosigned)
        assert (answer.code, answer.json["level"]) == (0, "witnessed")
        for table in ("log_entries", "openings", "log_heads", "log_index", "log_spans", "sources"):
            await sql(world.url, f"DELETE FROM {table}")
        shown = await asyncio.to_thread(
            run_on_database, capsys, sqlite_url, "--log", TENANT, *store, *cosigned
        )
        assert shown.code == 1
        assert "the store's latest checkpoint, of 10 entries, is cosigned by `w`" in shown.out
        answer = await verify(capsys, sqlite_url, *store, *key)
        assert answer.code == 1
        assert answer.reasons[0] == "log_behind_checkpoint"


async def test_a_purge_beyond_the_stores_checkpoint_is_named(
    sqlite_url: str, tmp_path: Path, capsys: Capture
) -> None:
    notes, day = FileStore(tmp_path / "notes"), 86_400_000_000
    async with logged(sqlite_url) as world:
        notes.put(TENANT, 0, await note_of(world, 10))
        await _compare_with_the_store(world, tmp_path, capsys)
        world.now.ahead += 2 * day
        await keep_days(world, 1)
        # An insider with the key, or a replica that does not share the store.
        ring, other = KeyRing(SIGNER), FileStore(tmp_path / "other")
        await Purge(world.store, ring, CheckpointMaker(world.store, ring, other), event_id).run(
            TENANT
        )
    key = ["--key", base64.b64encode(SIGNER.public).decode()]
    assert (await verify(capsys, sqlite_url, *key)).code == 0
    answer = await verify(capsys, sqlite_url, *key, "--store", f"file://{tmp_path}/notes")
    assert (answer.code, answer.reasons) == (1, ["purge_uncovered"])
    assert answer.json["findings"][0]["seq"] == SIZE
    # The database was emptied.
    for table in ("log_entries", "openings", "log_heads", "log_index", "log_spans", "purges"):
        await sql(sqlite_url, f"DELETE FROM {table}")
    store = ("--store", f"file://{tmp_path}/notes", "--log", TENANT)
    answer = await verify(capsys, sqlite_url, *key, *store)
    assert (answer.code, answer.reasons[0]) == (1, "log_behind_checkpoint")


async def _compare_with_the_store(world: OpenStore, tmp_path: Path, capsys: Capture) -> None:
    """The store's note of 10 entries proves them, and shows what the database hides."""
    key = ["--key", base64.b64encode(SIGNER.public).decode()]
    store = ["--store", f"file://{tmp_path}/notes"]
    answer = await verify(capsys, world.url, *store, *key)
    assert (answer.code, answer.json["level"]) == (0, "signed")
    assert answer.json["unproven_tail"] == SIZE - 10
    cosigned = [*key, "--witness", WITNESS_KEY.text()]
    answer = await verify(capsys, world.url, *store, *cosigned)
    assert (answer.json["level"], answer.reasons) == ("signed", ["quorum_missing"])
    (tmp_path / "fork").write_text(await note_of(world, 10, fork=True))
    known = ["--checkpoint", str(tmp_path / "fork")]
    assert (await verify(capsys, world.url, *store, *key, *known)).reasons == ["root_mismatch"]


@pytest.mark.deep(stands_in="test_a_purge_beyond_the_stores_checkpoint_is_named")
async def test_a_checkpoint_inside_a_purged_prefix_is_compared_where_stored_nodes_prove_it(
    sqlite_url: str, tmp_path: Path, capsys: Capture
) -> None:
    async with opened(sqlite_url) as world:
        await aged(world, 516, 4)  # so that the frontier alone gives the root of 512, not of 256
        notes, forks = {}, {}
        for size in (255, 256):
            notes[size] = await note_of(world, size)
            forks[size] = await note_of(world, size, fork=True)
        await purge(world).run(TENANT)

        async def compared(text: str) -> Answer:
            (tmp_path / "note").write_text(text)
            key = base64.b64encode(SIGNER.public).decode()
            known = str(tmp_path / "note")
            return await verify(capsys, sqlite_url, "--key", key, "--checkpoint", known)

        answer = await compared(notes[256])
        assert (answer.code, answer.json["not_compared"]) == (0, []), answer.out
        assert (await compared(forks[256])).reasons == ["root_mismatch"]
        answer = await compared(notes[255])
        assert (answer.code, answer.reasons) == (2, [])
        assert "inside the purged prefix" in answer.json["not_compared"][0]["why"]
        # A node that was changed proves nothing, for or against.
        await sql(world.url, "UPDATE tree_nodes SET hash = :zero WHERE place = 0", zero=bytes(32))
        assert (await compared(notes[256])).code == 2


async def test_a_missing_empty_or_foreign_file_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "text.db").write_text("not a database " * 100)
    (tmp_path / "empty.db").touch()
    for url in (
        f"sqlite:///{tmp_path}/none.db", f"sqlite:///{tmp_path}/text.db", "mysql://x/y", "",
        f"sqlite:///{tmp_path}/empty.db", "postgresql://u:secret@127.0.0.1:1/x",
    ):  # fmt: skip
        answer = await verify(capsys, url)
        assert (answer.code, answer.out) == (2, ""), url
        assert answer.err.startswith("sluice verify: ")
        assert "secret" not in answer.err
    assert not (tmp_path / "none.db").exists()
    assert (tmp_path / "empty.db").read_bytes() == b""


async def test_one_of_several_logs_must_be_named(sqlite_url: str, capsys: Capture) -> None:
    async with logged(sqlite_url) as world:
        copied = (
            "INSERT INTO log_heads (tenant_id, log, size, last_leaf, last_ts, frontier) "
            "SELECT 'other', log, size, last_leaf, last_ts, frontier FROM log_heads"
        )
        await sql(world.url, str(text(copied)))
        answer = await verify(capsys, sqlite_url)
        assert answer.code == 2
        assert f"`{TENANT}`, `other`" in answer.err
        assert (await verify(capsys, sqlite_url, "--log", TENANT)).code == 0
