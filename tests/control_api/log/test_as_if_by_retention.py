"""Who owns the database, and no key, deletes the oldest entries and says that retention did: with
an anchor that cites notes that the service really signed. Only the `purge` entry can't be forged.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from control_api.log.export import file
from control_api.log.export.file import Wanted, open_export
from control_api.log.scheduled.self_check import SelfChecker
from control_api.log.verify import verify
from policies.ground.errors import Conflict, Unavailable
from policies.ground.signing import KeyRing
from policies.trail.log_file.file import LogFileReader
from policies.trail.log_file.lines import Line, PurgeLine
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from tests.control_api.log.purging import SIGNER, aged, fill, maker, purge
from tests.deploy.commands.verify.world import Answer, run, run_on_database
from tests.support.open_store import TENANT, OpenStore, sql

Capture = pytest.CaptureFixture[str]
RING = KeyRing(SIGNER)
CUT = 30
_INSERT = """INSERT INTO purges (tenant_id, seq, tree_size, root_hash, frontier, last_hash,
    purged_before, purged_count, purged_at, anchor_note, cover_note, finished_at)
    VALUES (:tenant, :seq, :size, :root, :frontier, :last, 0, :size, 1, :anchor, :cover, 2)"""


async def signed(world: OpenStore) -> str:
    await maker(world, RING).make(TENANT)
    [row] = await world.rows("SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1")
    return str(row.note)


async def deleted_as_if_by_retention(world: OpenStore) -> None:
    """A log with two checkpoints, and nothing left of what the first one covers."""
    await fill(world, CUT)
    anchor = await signed(world)
    await fill(world, 40, seed=2)
    cover = await signed(world)
    tree, rows = Frontier(), await world.rows("SELECT hash FROM log_entries ORDER BY seq")
    for row in rows[:CUT]:
        tree.append(bytes(row.hash))
    for table in ("log_entries", "openings"):
        await sql(world.url, f"DELETE FROM {table} WHERE seq < {CUT}")
    await sql(
        world.url, _INSERT, tenant=TENANT, seq=CUT + 5, size=CUT, root=tree.root(),
        frontier=tree.to_bytes(), last=bytes(rows[CUT - 1].hash), anchor=anchor, cover=cover,
    )  # fmt: skip


async def content(world: OpenStore, wanted: Wanted) -> bytes:
    async def go_on() -> str | None:
        return None

    export = await open_export(world.store, TENANT, wanted, RING)
    return b"".join([piece async for piece in export.pieces(go_on)])


async def verdict(capsys: Capture, path: Path, raw: bytes) -> Answer:
    path.write_bytes(raw)
    [line] = LogFileReader().feed(raw.partition(b"\n")[0] + b"\n")
    key = VerifierKey(getattr(line, "origin", ""), ED25519, SIGNER.public).text()
    return await asyncio.to_thread(run, capsys, str(path), "--key", key, "--json")


def lines_of(raw: bytes) -> list[Line]:
    reader = LogFileReader()
    return [*reader.feed(raw)]


@pytest.fixture
async def attacked(world: OpenStore) -> OpenStore:
    await deleted_as_if_by_retention(world)
    return world


async def test_the_service_does_not_export_a_log_cut_as_if_by_retention(
    attacked: OpenStore,
) -> None:
    for wanted in (Wanted(), Wanted(CUT + 1), Wanted(None, CUT + 3)):
        with pytest.raises(Conflict, match="entry 35 is not the `purge` entry that says so"):
            await open_export(attacked.store, TENANT, wanted, RING)


@pytest.mark.parametrize("first", [None, CUT + 2], ids=["all that is left", "a part"])
async def test_a_file_of_such_a_log_does_not_pass_as_a_purged_one(
    attacked: OpenStore,
    first: int | None,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a service would export it that does not look."""

    async def shown(*_: object) -> None:
        return None

    monkeypatch.setattr(file, "shown_purge", shown)
    answer = await verdict(capsys, tmp_path / "log", await content(attacked, Wanted(first)))
    assert (answer.code, answer.reasons) == (1, ["purge_uncovered"])
    assert answer.json["findings"][0]["seq"] == (first or CUT)
    told = await asyncio.to_thread(run, capsys, str(tmp_path / "log"))
    assert f"the entries before {CUT} are gone, and no `purge` entry shows" in told.out
    assert "without a gap" not in told.out


async def test_the_database_s_verification_finds_the_cut(
    attacked: OpenStore, capsys: Capture
) -> None:
    answer = await verify(attacked.store, TENANT, (SIGNER.public,))
    assert answer["reason"].startswith("purge_mismatch: seq 35: is not the `purge` entry")
    key = VerifierKey("log", ED25519, SIGNER.public).text()
    told = await asyncio.to_thread(run_on_database, capsys, attacked.url, "--key", key, "--json")
    assert (told.code, told.reasons[0]) == (1, "purge_mismatch")


async def test_the_scheduled_verification_finds_the_cut_at_once(attacked: OpenStore) -> None:
    checker = SelfChecker(attacked.store)
    state, _ = await checker.step(TENANT, (SIGNER.public,))
    assert state is not None
    assert (state.reason or "").startswith("purge_mismatch: seq 35: is not the `purge` entry")


async def test_a_log_that_retention_cut_is_exported_with_its_purge(
    world: OpenStore, tmp_path: Path, capsys: Capture
) -> None:
    await aged(world, 30, 25)
    await purge(world).run(TENANT)
    [at] = await world.rows("SELECT seq, tree_size FROM purges")
    await fill(world, 20, seed=5)
    await signed(world)
    # All that is left; a part before the `purge` entry; two behind it; one that has it.
    parts = [
        (Wanted(), False),
        (Wanted(None, at.seq), True),
        (Wanted(at.tree_size + 2, at.tree_size + 9), True),
        (Wanted(at.seq + 1), True),
        (Wanted(at.seq + 1, at.seq + 4), True),
        (Wanted(at.seq - 1, at.seq + 1), False),
    ]
    for wanted, brought in parts:
        raw = await content(world, wanted)
        assert any(isinstance(each, PurgeLine) for each in lines_of(raw)) == brought
        answer = await verdict(capsys, tmp_path / "log", raw)
        assert (answer.code, answer.json["level"]) == (0, "signed"), (wanted, answer.out)


async def test_an_export_waits_until_a_checkpoint_covers_the_purge(world: OpenStore) -> None:
    await aged(world, 30, 25)
    await purge(world).run(TENANT)
    await sql(world.url, "UPDATE purges SET cover_note = NULL, finished_at = NULL")
    with pytest.raises(Unavailable, match="try again in a few seconds"):
        await open_export(world.store, TENANT, Wanted(), RING)
