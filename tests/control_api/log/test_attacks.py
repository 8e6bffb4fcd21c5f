"""Every attack of `FORMAT.md`, on a running log, and by which means each
is found. The database is altered by SQL; where the attack needs it, with the log's own key.

Evidence is what a verification has at hand. Each row says the least that finds its attack: with all
that is less, the log verifies. `tests/deploy/commands/verify/test_attacks.py` does the same to
files, `test_verify.py` goes through every column, and `test_divergence.py` shows what is not
signed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from control_api.checkpoint_store.location import FileStore
from control_api.log.append import Log
from control_api.log.checkpoints.agreement import Level, level_of
from control_api.log.ingest import ingest
from policies.sets.policy_set import role_document
from policies.trail.findings import Finding, Reason
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from policies.trail.recompute.recomputer import Recomputer
from tests.control_api.log.attacks import (
    DENIED,
    OPENED,
    OTHER_KEY,
    ROWS,
    VERDICT,
    Attacked,
    Evidence,
    drop_the_newest,
    responded,
    rewritten,
)
from tests.control_api.log.checkpoints.signing import LOG, SIGNER, grow, maker
from tests.control_api.log.checkpoints.test_witnesses import Asking, address
from tests.control_api.log.erasing import erase
from tests.control_api.log.insider import Copy, Insider
from tests.control_api.log.purging import DAY
from tests.deploy.commands.witness.running_witness import WitnessProcess, configure
from tests.policies.world import POLICY, RETRIEVAL, decided
from tests.support import migrated, postgres
from tests.support.open_store import TENANT, Spool, action, opened
from tests.support.run_servers import SERVERS


@dataclass
class Prepared:
    """A database of a log that was signed at its end, and copies of it."""

    url: str
    notes: Path
    younger: Copy
    whole: Copy


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def prepared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prepared]:
    """One for all attacks: each begins with the tables as they were."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        yield asyncio.run(_prepare(f"sqlite:///{folder}/data/sluice.db", folder / "notes"))
        return
    with migrated.database(*request.config.stash[SERVERS]) as url:
        yield asyncio.run(_prepare(postgres.serving(url), folder / "notes"))


async def _prepare(url: str, notes: Path) -> Prepared:
    async with opened(url) as world:
        allowed = await world.log.append(TENANT, decided())
        await world.log.append(TENANT, decided(RETRIEVAL._replace(source_id="payroll"), seed=1))
        await world.log.append(TENANT, action(allowed.eid, allowed.leaf_hash, 1))
        spool = Spool()
        await ingest(world.store, TENANT, spool.source, spool.instance, spool.records(4))
        world.now.ahead = 2 * DAY
        erased = await world.log.append(TENANT, decided(seed=2))
        await world.log.append(TENANT, decided(seed=3))
        await maker(world, notes).make(TENANT)
        insider = Insider(url)
        younger = await insider.copy()
        await erase(world, erased.eid)
        await grow(world, 2)
        await maker(world, notes).make(TENANT)
        whole = await insider.copy()
        await insider.close()
        return Prepared(url, notes, younger, whole)


@pytest.fixture
async def attacked(prepared: Prepared, tmp_path: Path) -> AsyncIterator[Attacked]:
    insider = Insider(prepared.url)
    await insider.restore(prepared.whole)
    notes = tmp_path / "notes"
    for stored in reversed(list(FileStore(prepared.notes).notes(TENANT))):
        assert FileStore(notes).put(TENANT, stored.number, stored.note)
    async with opened(prepared.url) as world:
        world.now.ahead = 2 * DAY
        yield Attacked(world, insider, prepared.younger, notes, tmp_path / "mine")
    await insider.close()


async def test_the_log_is_in_order_before_an_attack(attacked: Attacked) -> None:
    assert [await attacked.reason(evidence) for evidence in Evidence] == [None, None, None]
    await attacked.insider.rewrite(lambda lines: None)
    assert await attacked.reason(Evidence.STORE) is None  # the insider's writing is the project's


@pytest.mark.parametrize("name", ROWS)
async def test_an_attack_is_found_by_its_check_and_not_by_a_weaker_one(
    attacked: Attacked, name: str
) -> None:
    attack, least, reason = ROWS[name]
    await attack(attacked)
    found = {evidence: await attacked.reason(evidence) for evidence in Evidence}
    assert found == {each: reason if each >= least else None for each in Evidence}


@pytest.mark.deep(stands_in="test_an_attack_is_found_by_its_check_and_not_by_a_weaker_one")
async def test_no_byte_of_an_entry_can_change(attacked: Attacked) -> None:
    [row] = await attacked.world.rows(f"SELECT entry FROM log_entries WHERE seq = {OPENED}")
    raw = bytes(row.entry)
    for at in range(0, len(raw), len(raw) // 24):
        changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        await attacked.insider.run(
            f"UPDATE log_entries SET entry = :changed WHERE seq = {OPENED}", changed=changed
        )
        assert await attacked.reason(Evidence.LOG) is not None, at


async def test_a_signature_by_another_key_leaves_the_log_unsigned(attacked: Attacked) -> None:
    """Without the store outside, it is the level that says so."""
    note = await attacked.insider.sign(SIGNER)
    assert level_of(note, LOG, (SIGNER.public,), (), 0) == (Level.signed, 0)
    await rewritten(responded(reason="another"))(attacked)
    note = await attacked.insider.sign(OTHER_KEY)
    assert level_of(note, LOG, (SIGNER.public,), (), 0) == (Level.unsigned, 0)


async def test_a_rewritten_verdict_does_not_follow_from_its_facts(attacked: Attacked) -> None:
    """The attacker has the key, and every store and witness: the facts still say otherwise."""
    assert await _recomputed(attacked) == []
    await rewritten(responded(decision="ALLOW"), key=SIGNER)(attacked)
    assert await attacked.reason(Evidence.PUBLISHED) is None
    [finding] = await _recomputed(attacked)
    assert (finding.seq, finding.reason) == (DENIED, Reason.DECISION_DIFFERS)


async def _recomputed(on: Attacked) -> list[Finding]:
    document = role_document([POLICY])
    assert document is not None
    rows = await on.world.rows(
        f"SELECT entry FROM log_entries WHERE seq IN ({VERDICT}, {DENIED}) ORDER BY seq"
    )
    recomputer = Recomputer({hashlib.sha256(document).hexdigest(): document}.get)
    found = [recomputer.feed(orjson.loads(bytes(row.entry))) for row in rows]
    return [each for each in found if each is not None]


FORKS = (
    (responded(reason="another"), 0, "inconsistent"),  # the same size, another root
    (responded(reason="another"), 2, "inconsistent"),
    (drop_the_newest, 0, "ahead"),
)


@pytest.mark.deep(
    stands_in="tests/control_api/log/checkpoints/test_witnesses.py::test_a_log_rewritten_with_its_key_is_refused_and_its_level_says_so"
)
async def test_a_witness_refuses_a_log_rewritten_with_every_key(
    attacked: Attacked, tmp_path: Path
) -> None:
    """The insider has the log's key and has emptied the checkpoint store too."""
    key = VerifierKey(LOG, ED25519, SIGNER.public).text()
    config = configure(tmp_path, name="watching", logs=[{"origin": LOG, "key": key}])
    with WitnessProcess(config) as process:
        watching = address(process)
        asking = Asking(attacked.world, attacked.notes, watching)
        async with asking.in_background():
            asking.cosigner.offer(TENANT, await asking.latest())
            await asking.until_counted(watching, "cosigned")
            assert await asking.level(1) == (Level.witnessed, 1)
            whole = await attacked.insider.copy()
            for number, (change, more, outcome) in enumerate(FORKS, 1):
                await attacked.insider.restore(whole)
                await rewritten(change, forget=True)(attacked)
                attacked.world.log = await Log.open(attacked.world.store)
                await grow(attacked.world, more)
                made = await maker(attacked.world, tmp_path / f"emptied-{number}").make(TENANT)
                assert made is not None
                times = int(asking.count(watching, outcome))
                asking.cosigner.offer(TENANT, made)
                await asking.until_counted(watching, outcome, times + 1)
                assert await asking.level(1) == (Level.signed, 0)
