"""A purge removes nothing that does not verify, and every change of what it leaves is found."""

from __future__ import annotations

import pytest

from control_api.log.purge_plan import PurgeMismatch
from control_api.log.verify import verify
from policies.ground.signing import Signer
from tests.control_api.log.purging import SIGNER, aged, purge, seqs, valid
from tests.runner import tiers
from tests.support.open_store import TENANT, OpenStore, opened, sql

pytestmark = pytest.mark.usefixtures("small_steps")


@tiers.sampled("either_url", each=5)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log_entries SET agent_role = 'other' WHERE seq = 8",
        "UPDATE log_entries SET ts = ts + 1 WHERE seq = 8",
        "UPDATE openings SET user_id = 'other' WHERE seq = (SELECT min(seq) FROM openings)",
        "DELETE FROM log_entries WHERE seq = 8",
        "DELETE FROM log_entries WHERE seq = 0",
        "DELETE FROM log_entries WHERE seq = 39",
        "UPDATE log_entries SET entry = '{}' WHERE seq = 40",
    ],
)
async def test_an_invalid_prefix_is_not_removed(either_url: str, statement: str) -> None:
    async with opened(either_url) as world:
        await aged(world, 40, 10)
        await sql(either_url, statement)
        left = await seqs(world)
        with pytest.raises(PurgeMismatch):
            await purge(world).run(TENANT)
        assert await seqs(world) == left
        assert await world.rows("SELECT * FROM purges") == []


TAMPERED = {
    "size": "UPDATE purges SET tree_size = tree_size + 1",
    "root": "UPDATE purges SET root_hash = :zero",
    "frontier": "UPDATE purges SET frontier = :zero",
    "last leaf": "UPDATE purges SET last_hash = :zero",
    "cutoff": "UPDATE purges SET purged_before = purged_before + 1",
    "count": "UPDATE purges SET purged_count = purged_count - 1",
    "time": "UPDATE purges SET purged_at = purged_at + 1",
    "place": "UPDATE purges SET seq = seq - 1",
    "anchor note": "UPDATE purges SET anchor_note = cover_note",
    "cover note": "UPDATE purges SET cover_note = anchor_note",
    "no cover note": "UPDATE purges SET cover_note = NULL, finished_at = NULL",
    "gone": "DELETE FROM purges",
    "more rows gone": "DELETE FROM log_entries WHERE seq < 70",
    "more rows gone, and the row edited": (
        "UPDATE purges SET tree_size = tree_size + 1, purged_count = purged_count + 1"
    ),
    "a purged row is back": (
        "INSERT INTO log_entries SELECT tenant_id, 3, 'back', kind, ts, agent_role, agent_id, "
        "source_id, decision, policy_name, session_id, ref, entry, hash FROM log_entries "
        "WHERE seq = 70"
    ),
    "a purged opening is back": (
        "INSERT INTO openings (tenant_id, seq, user_id, openings) VALUES ('default', 3, 'x', :zero)"
    ),
    "the purge entry is another": "UPDATE log_entries SET entry = :zero WHERE kind = 'purge'",
    "a span": "UPDATE log_spans SET last_ts = 0 WHERE seq = (SELECT min(seq) FROM log_spans)",
}


@tiers.sampled("either_url", each=5)
@pytest.mark.parametrize("statement", TAMPERED.values(), ids=TAMPERED.keys())
async def test_a_change_of_anything_that_a_purge_kept_is_found(
    either_url: str, statement: str
) -> None:
    async with opened(either_url) as world:
        await aged(world, 60, 90)
        await purge(world).run(TENANT)
        await valid(world)
        values = {"zero": b"\0" * 32} if ":zero" in statement else {}
        await sql(either_url, statement, **values)
        answer = await verify(world.store, TENANT, (SIGNER.public,))
        assert not answer["valid"]
        assert answer["broken_at"] is not None
        assert answer["reason"]


@pytest.mark.deep(
    stands_in="tests/control_api/log/test_purge.py::test_a_purge_removes_old_entries_and_the_rest_verifies"
)
async def test_the_oldest_rows_deleted_as_if_by_retention_are_found(world: OpenStore) -> None:
    """With an anchor that is right in everything, but signed by another key."""
    await aged(world, 60, 30)
    await purge(world, Signer(b"\1" * 32)).run(TENANT)
    answer = await verify(world.store, TENANT, (SIGNER.public,))
    assert not answer["valid"]
    assert "not signed by the log's key" in answer["reason"]
    assert answer["anchor"] is None
    answer = await verify(world.store, TENANT)
    assert not answer["valid"]
