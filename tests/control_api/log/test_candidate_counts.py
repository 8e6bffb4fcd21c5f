"""What entries say of candidates is counted with the append: exactly once, whatever is sent again
and by how many replicas, and for exactly the candidates that there are."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import Any, Literal

import orjson
import pytest

from control_api.log.ingest import ingest
from control_api.store.queries import policy_rows
from control_api.store.queries.policy_rows import CandidateTotals
from control_api.store.transaction import Transaction
from policies.candidates import CandidateDecision
from policies.definitions.model import Candidate
from policies.evaluate import refuse
from policies.trail.change import change_record
from policies.trail.record import Record, decision_record
from tests.control_api.log.lost_answers import lose_first_answer
from tests.policies.world import FACTS, RETRIEVAL
from tests.support.open_store import TENANT, OpenStore, Spool, event_id, opened

NEXT, LATER = Candidate("next", 10), Candidate("later", 20)
OUTCOMES = {
    ("ALLOW", "DENY"): "newly_denied",
    ("DENY", "ALLOW"): "newly_allowed",
    ("ALLOW", "ERROR"): "error",
    ("DENY", "ERROR"): "error",
}
Payload = dict[str, Any]
Verdict = Literal["ALLOW", "DENY"]
VERDICTS: tuple[Verdict, ...] = ("ALLOW", "DENY")


async def listed(world: OpenStore, *named: Candidate) -> None:
    """The tenant's candidates are these from now on."""

    async def work(tx: Transaction) -> None:
        await tx.list_candidates(named)
        for each in (NEXT, LATER):
            if each not in named:
                await policy_rows.forget(tx.connection, tx.tenant_id, each.name)
        await tx.append(
            change_record("candidate.published", "x", "key_1", {}, record_id=event_id())
        )

    await world.store.write(TENANT, work)


def made(revision: int, verdict: Verdict, *says: tuple[Candidate, str]) -> Record:
    """A decision at this revision, which these candidates decide so."""
    answer = refuse("reads", "for a test")._replace(decision=verdict)
    differing = [CandidateDecision(*each, what, "p", None) for each, what in says]  # type: ignore[arg-type]
    return decision_record(
        RETRIEVAL._replace(source_id=f"source-{revision % 3}"),
        answer,
        FACTS._replace(revision=revision),
        event_id=event_id(),
        salt=os.urandom(32),
        candidates=differing,
    )


def some(seed: int, count: int) -> list[Record]:
    rng, records = random.Random(seed), []
    for _ in range(count):
        says = [
            (each, rng.choice(["ALLOW", "DENY", "ERROR"]))
            for each in (NEXT, LATER, NEXT._replace(revision=9), Candidate("unknown", 1))
            if rng.random() < 0.3
        ][:3]
        records.append(made(rng.randrange(5, 25), rng.choice(VERDICTS), *says))
    return records


def expected(records: list[Record], candidate: Candidate) -> CandidateTotals:
    """By hand, from the records themselves."""
    found: Counter[str] = Counter()
    for record in records:
        pub = orjson.loads(record.pub)
        if pub["facts"]["revision"] < candidate.revision:
            continue
        found["decided"] += 1
        for each in pub.get("candidates", []):
            if (each["name"], each["revision"]) == candidate:
                pair = (pub["response"]["decision"], each["decision"])
                found[OUTCOMES.get(pair, "")] += 1
    del found[""]
    return CandidateTotals(**found)


async def totals(world: OpenStore, candidate: Candidate) -> CandidateTotals:
    async with world.store.reading(TENANT) as connection:
        counted = await policy_rows.totals(connection, TENANT, candidate)
        groups = await policy_rows.groups(connection, TENANT, candidate)
    by_outcome: Counter[str] = Counter()
    for group in groups:
        by_outcome[group.outcome] += group.counted
        assert 0 < len(group.examples) <= min(5, group.counted)
        assert group.first_ts <= group.last_ts
    assert by_outcome == Counter(
        {name: n for name, n in counted._asdict().items() if n and name != "decided"}
    )
    return counted


async def take(world: OpenStore, spool: Spool, payloads: list[Payload]) -> None:
    await ingest(world.store, TENANT, spool.source, spool.instance, payloads, heads=world.log.heads)


async def test_decisions_of_sidecars_and_of_the_service_are_counted_by_their_candidate(
    world: OpenStore,
) -> None:
    await listed(world, NEXT, LATER)
    shipped, own, spool = some(1, 300), some(2, 60), Spool()
    payloads = [spool.record(each) for each in shipped]
    for first in range(0, 300, 50):  # the first reads the ends, the others take one statement
        await take(world, spool, payloads[first : first + 50])
    await asyncio.gather(*(world.log.append(TENANT, each) for each in own))
    for candidate in (NEXT, LATER):
        assert await totals(world, candidate) == expected([*shipped, *own], candidate)
    assert await totals(world, Candidate("unknown", 1)) == CandidateTotals()


async def test_a_batch_that_is_sent_again_is_counted_once(world: OpenStore) -> None:
    await listed(world, NEXT)
    records, spool = some(3, 120), Spool()
    payloads = [spool.record(each) for each in records]
    await take(world, spool, payloads[:40])
    await take(world, spool, payloads[:40])
    await take(world, spool, payloads[20:80])
    await take(world, spool, payloads)
    assert await totals(world, NEXT) == expected(records, NEXT)
    # Nor is one whose answer was lost counted twice.
    own = some(4, 30)
    await listed(world, NEXT)  # so that the next batch has to read the log's end
    with pytest.MonkeyPatch.context() as patch:
        lose_first_answer(world, patch)
        await asyncio.gather(*(world.log.append(TENANT, each) for each in own))
    assert await totals(world, NEXT) == expected([*records, *own], NEXT)
    # Without a candidate, nothing is counted.
    await listed(world)
    await asyncio.gather(*(world.log.append(TENANT, each) for each in some(10, 30)))
    assert await world.rows("SELECT * FROM candidate_counts") == []


@pytest.mark.deep(stands_in="test_a_batch_that_is_sent_again_is_counted_once")
async def test_a_batch_whose_answer_was_lost_is_counted_once(world: OpenStore) -> None:
    await listed(world, NEXT)
    records = some(4, 30)
    await world.log.append(TENANT, records[0])
    with pytest.MonkeyPatch.context() as patch:
        lose_first_answer(world, patch)
        await asyncio.gather(*(world.log.append(TENANT, each) for each in records[1:]))
    assert await totals(world, NEXT) == expected(records, NEXT)


@pytest.mark.deep(
    stands_in="test_decisions_of_sidecars_and_of_the_service_are_counted_by_their_candidate"
)
async def test_a_candidate_counts_from_its_change_on_in_every_replica(either_url: str) -> None:
    async with opened(either_url) as one, opened(either_url) as other:
        before, during, after = some(5, 40), some(6, 80), some(7, 40)
        spools = (Spool("sidecar-1"), Spool("sidecar-2"))
        for world, spool in zip((one, other), spools, strict=True):
            await take(world, spool, [spool.record(each) for each in before])
            before = some(8, 40)
        await listed(one, NEXT)

        async def send(world: OpenStore, spool: Spool, records: list[Record]) -> None:
            payloads = [spool.record(each) for each in records]
            for first in range(0, len(payloads), 10):
                await take(world, spool, payloads[first : first + 10])

        await asyncio.gather(send(one, spools[0], during[:40]), send(other, spools[1], during[40:]))
        assert await totals(one, NEXT) == expected(during, NEXT)
        # The other replica still holds the ends of before: it must notice all the same.
        await listed(one, LATER)
        await asyncio.gather(send(one, spools[0], after[:20]), send(other, spools[1], after[20:]))
        assert await totals(other, LATER) == expected(after, LATER)
        assert await totals(other, NEXT) == CandidateTotals()


@pytest.mark.deep(stands_in="test_a_batch_that_is_sent_again_is_counted_once")
async def test_without_candidates_nothing_is_counted(world: OpenStore) -> None:
    records, spool = some(9, 30), Spool()
    await take(world, spool, [spool.record(each) for each in records])
    await listed(world, NEXT)
    await listed(world)
    await asyncio.gather(*(world.log.append(TENANT, each) for each in some(10, 30)))
    assert await world.rows("SELECT * FROM candidate_counts") == []
