"""Candidates beside the active policies: what they decide otherwise is noted, and nothing else."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from policies.definitions.model import TenantSettings
from policies.sets.policy_set import candidate_name, role_document
from policies.trail.spool_chain import read_payload
from sidecar.enforce import EntryPoint
from sidecar.policy_cache.policy_view import MissingDocument
from tests.support import candidate_tenants, fake_control_api
from tests.support.candidate_tenants import Oracle, TenantWithCandidates
from tests.support.fake_control_api import ROLE, FakeControlApi, policy
from tests.support.properties import few
from tests.support.sidecar import RunningSidecar, retrieval, running_sidecar
from tests.support.waiting import until_async

SEED = 16
ITEMS = 100
BATCH = "/v1/context/evaluate/batch"
CLOSED = {ROLE: [policy(allowed_sources=())]}
OPEN = {ROLE: [policy(allowed_sources=("*",), denied_sources=())]}
SAME = {ROLE: [policy()]}
_PHASES = 5
_COUNTS = re.compile(
    r"^(sluice_(?:decisions|reported|requests|lineage_lost)_total.*|sluice_evaluate_seconds_count"
    r".*)$",
    re.MULTILINE,
)


async def publish(
    running: RunningSidecar, control: FakeControlApi, world: TenantWithCandidates
) -> None:
    """Publish, and return once no decision lacks a document of a candidate."""
    world.publish(control)
    await running.follows(control.revision)
    for role in (ROLE, "teller"):
        await holds(running, world, role)


async def holds(running: RunningSidecar, world: TenantWithCandidates, role: str) -> None:
    """Return once the sidecar has the candidates' documents of this role."""
    roles = running.parts.enforcer.candidate_roles

    def here() -> bool:
        try:
            for each in world.listed:
                roles.candidate_role(each.name, role)
        except MissingDocument:
            return False
        return True

    await until_async("the candidates' documents are here", here)


async def last_candidates(running: RunningSidecar) -> Any:
    return (await running.records())[-1]["pub"].get("candidates")


async def test_a_candidate_s_different_decision_is_in_the_entry(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    world = TenantWithCandidates(SAME, {"closed": CLOSED, "open": OPEN, "same": SAME})
    await publish(sidecar, control, world)
    closed, opened, _ = world.listed
    assert (await sidecar.evaluate())["decision"] == "ALLOW"
    denied = {"name": "closed", "revision": closed.revision, "decision": "DENY"}
    assert await last_candidates(sidecar) == [
        {**denied, "policy_name": "underwriting", "check": "source"}
    ]
    assert (await sidecar.evaluate(source_id="payroll"))["decision"] == "DENY"
    allowed = {"name": "open", "revision": opened.revision, "decision": "ALLOW"}
    assert await last_candidates(sidecar) == [{**allowed, "policy_name": "underwriting"}]
    # Checks 1 to 5 look at no policy.
    assert (await sidecar.evaluate(agent_id="agt_unknown"))["decision"] == "DENY"
    assert await last_candidates(sidecar) is None


async def test_a_replaced_candidate_is_evaluated_anew_and_a_dropped_one_no_longer(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    world = TenantWithCandidates(SAME, {"next": CLOSED})
    await publish(sidecar, control, world)
    await sidecar.evaluate()
    assert [each["decision"] for each in await last_candidates(sidecar)] == ["DENY"]
    world.candidates = {"next": OPEN}
    await publish(sidecar, control, world)
    await sidecar.evaluate()
    assert await last_candidates(sidecar) is None
    await sidecar.evaluate(source_id="payroll")
    [found] = await last_candidates(sidecar)
    assert (found["decision"], found["revision"]) == ("ALLOW", control.revision)
    world.candidates = {}
    await publish(sidecar, control, world)
    await sidecar.evaluate(source_id="payroll")
    assert await last_candidates(sidecar) is None


async def test_a_promoted_candidate_is_active_with_its_revision(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    world = TenantWithCandidates(SAME, {"next": CLOSED})
    await publish(sidecar, control, world)
    await publish(sidecar, control, replace(world, active=CLOSED, candidates={}))
    assert (await sidecar.evaluate())["decision"] == "DENY"
    [record] = await sidecar.records()
    assert record["pub"]["facts"]["revision"] == control.revision
    assert "candidates" not in record["pub"]


@pytest.mark.parametrize("document", [b"", b"[]", b"{", b'[{"a":1}]', b'"x"', b"\xff"])
async def test_a_candidate_that_cant_be_read_counts_as_an_error_and_decides_nothing(
    sidecar: RunningSidecar,
    control: FakeControlApi,
    document: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if document == b"\xff":
        document = role_document([policy()]).replace(b'"high"', b'"higher"')  # type: ignore[union-attr]
    world = TenantWithCandidates(SAME, {"broken": SAME, "closed": CLOSED})
    await publish(sidecar, control, world)
    control.publish({candidate_name("broken", ROLE): document})
    await sidecar.follows(control.revision)
    for _ in range(3):
        assert (await sidecar.evaluate())["decision"] == "ALLOW"
        failed, differing = await last_candidates(sidecar)
        assert (failed["name"], failed["decision"]) == ("broken", "ERROR")
        assert (differing["name"], differing["decision"]) == ("closed", "DENY")
    # Logged once: the next decisions don't read it again.
    assert caplog.text.count(f"`{candidate_name('broken', ROLE)}` can't be read") == 1
    control.publish({candidate_name("broken", ROLE): role_document([policy()])})
    await sidecar.follows(control.revision)
    assert (await sidecar.evaluate())["decision"] == "ALLOW"
    assert [each["name"] for each in await last_candidates(sidecar)] == ["closed"]


async def test_a_stale_policy_set_is_no_difference(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    await publish(sidecar, control, TenantWithCandidates(SAME, {"open": OPEN}))
    await control.stop()
    sidecar.clock.ahead = 31
    assert (await sidecar.evaluate())["policy_name"] == "policy_set_stale"
    assert await last_candidates(sidecar) is None


async def test_each_source_of_one_request_has_its_own(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    await publish(sidecar, control, TenantWithCandidates(SAME, {"closed": CLOSED, "open": OPEN}))
    asked = [retrieval(), retrieval(source_id="rates")]
    enforcer, key = sidecar.parts.enforcer, sidecar.agent_key()
    for recorded in await enforcer.decide(asked, key):
        await recorded.durable
    found = [record["pub"]["candidates"] for record in await sidecar.records()]
    assert [[each["name"] for each in of_one] for of_one in found] == [["closed"], ["closed"]]
    asked.append(retrieval(source_id="payroll"))
    # The denial alone is recorded, with what differs from it.
    [recorded] = await enforcer.decide(asked, key)
    await recorded.durable
    assert [each["name"] for each in await last_candidates(sidecar)] == ["open"]
    # In mode `report` the same denial is forwarded, and recorded with the same difference.
    [recorded] = await enforcer.decide(asked[2:], key, EntryPoint(report_mode=True))
    await recorded.durable
    assert recorded.passes
    assert [each["name"] for each in await last_candidates(sidecar)] == ["open"]


@pytest.mark.deep(stands_in="test_a_few_answers_and_all_counts_are_those_without_candidates")
async def test_under_load_each_decision_is_by_the_sets_of_its_recorded_revision(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    """Candidates are published, replaced, promoted and dropped while requests run."""
    draw = Random(SEED)
    oracles: dict[int, Oracle] = {}
    busy, answered = True, 0

    async def ask_on() -> None:
        nonlocal answered
        while busy:
            await sidecar.evaluate(**candidate_tenants.body(draw))
            answered += 1

    async def publish_next(world: TenantWithCandidates) -> None:
        revision = world.publish(control)
        oracles[revision] = Oracle(control, world)
        await sidecar.follows(revision)
        goal = answered + 20
        await until_async("some are decided by it", lambda: not askers or answered >= goal)

    askers: list[asyncio.Task[None]] = []
    world = TenantWithCandidates(candidate_tenants.policies(draw), {})
    await publish_next(world)
    askers += [asyncio.create_task(ask_on()) for _ in range(8)]
    try:
        for step in range(20):
            candidates = {"a": candidate_tenants.changed(draw, world.active)}
            if step % 2:
                candidates["b"] = candidate_tenants.policies(draw)
            world = TenantWithCandidates(world.active, candidates)
            await publish_next(world)
            # The promoted one is active, and no candidate any more, in one change.
            world = TenantWithCandidates(
                candidates["a"], {k: v for k, v in candidates.items() if k != "a"}
            )
            await publish_next(world)
    finally:
        busy = False
        await asyncio.gather(*askers)
    records = await sidecar.records()
    for record in records:
        oracle = oracles[record["pub"]["facts"]["revision"]]
        failed = _compare_one(record, oracle)
        # A full replica has every document that its set lists.
        assert not failed or control.redis_url is not None
    assert len({each["pub"]["facts"]["revision"] for each in records}) > 20


def _compare_one(record: dict[str, Any], oracle: Oracle) -> set[str]:
    """Holds an entry against what the core says. Returns the candidates that failed: a document was
    not here yet."""
    assert record["pub"]["response"] == oracle.response(record)
    found = record["pub"].get("candidates", [])
    here = [each for each in found if each["decision"] != "ERROR"]
    failed = {each["name"] for each in found if each not in here}
    assert here == [each for each in oracle.differing(record) if each["name"] not in failed]
    return failed


@asynccontextmanager
async def _at(folder: Path, control: FakeControlApi, tenant: str) -> AsyncIterator[RunningSidecar]:
    """A sidecar of its own tenant, since all tenants may share one Redis."""
    folder.mkdir()
    control.tenant_id = tenant
    control.create_tenant()
    async with running_sidecar(folder, control) as started:
        yield started


def _phase(draw: Random, phase: int) -> TenantWithCandidates:
    """Candidates appear, are replaced, and are dropped; at the end the tenant is frozen."""
    active = candidate_tenants.policies(draw)
    candidates = {
        name: make(draw, active)
        for name, make in (
            ("a", candidate_tenants.changed),
            ("b", lambda draw, _: candidate_tenants.policies(draw)),
            ("c", lambda _, active: active),
        )[: (3, 1, 2, 0, 3)[phase]]
    }
    frozen = 1_767_225_600_000_000 if phase == _PHASES - 1 else None
    return TenantWithCandidates(active, candidates, TenantSettings("default", frozen_at=frozen))


async def _asked(running: RunningSidecar, bodies: list[dict[str, Any]]) -> Any:
    """The answer to a batch, without the ids of its events."""
    answer = await running.call("POST", BATCH, orjson.dumps({"items": bodies}))
    results = answer.json()["results"]
    assert all(each.pop("event_id") for each in results)
    assert len(results) == len(bodies)
    return answer.status, results


async def _take(running: RunningSidecar) -> list[dict[str, Any]]:
    """The records since the last call."""
    await until_async("everything is on disk", lambda: not running.spool.bytes_waiting)
    batch = await running.spool.batch(1 << 30, 1 << 20)
    assert batch is not None
    await running.spool.acknowledge(batch.instance, batch.last_n)
    return [read_payload(orjson.loads(payload)).core for payload in batch.payloads]


def _compare(plain: list[dict[str, Any]], listing: list[dict[str, Any]], oracle: Oracle) -> int:
    """Entries are equal but for `pub.candidates`. Returns how many have it."""
    assert len(plain) == len(listing)
    differing = 0
    for one, other in zip(plain, listing, strict=True):
        assert other["pub"].get("candidates", []) == oracle.differing(other)
        differing += other["pub"].pop("candidates", None) is not None
        assert (one["kind"], one["masked"], one["pub"]) == (
            other["kind"], other["masked"], other["pub"],
        )  # fmt: skip
    return differing


async def _counts(running: RunningSidecar) -> list[str]:
    text = (await running.call("GET", "/metrics", key=None)).text()
    return sorted(_COUNTS.findall(text))


async def test_a_few_answers_and_all_counts_are_those_without_candidates(tmp_path: Path) -> None:
    await _are_alike(tmp_path, _PHASES, 20)


@pytest.mark.deep(stands_in="test_a_few_answers_and_all_counts_are_those_without_candidates")
async def test_answers_counts_and_entries_are_those_without_candidates(tmp_path: Path) -> None:
    # A fifth of a fifth in a usual run: each request is sent to both.
    await _are_alike(tmp_path, few(few(100_000)) // ITEMS, ITEMS)


async def _are_alike(tmp_path: Path, count: int, items: int) -> None:
    """Two sidecars get the same requests; the tenant of one lists candidates."""
    draw = Random(SEED)
    async with (
        fake_control_api.fake_control_api() as plain,
        fake_control_api.fake_control_api() as listing,
        _at(tmp_path / "plain", plain, "plain") as without,
        _at(tmp_path / "listing", listing, "listing") as beside,
    ):
        sides = ((without, plain, False), (beside, listing, True))
        differing = 0
        for phase in range(_PHASES):
            world = _phase(draw, phase)
            for running, control, names in sides:
                world.publish(control, listing=names)
                await running.follows(control.revision)
            for role in candidate_tenants.ROLES:
                await holds(beside, world, role)
            oracle = Oracle(listing, world)
            for _ in range(count // _PHASES):
                bodies = [candidate_tenants.body(draw) for _ in range(items)]
                answers = [await _asked(running, bodies) for running, _, _ in sides]
                assert answers[0] == answers[1]
                plain_records, listing_records = [await _take(each) for each, _, _ in sides]
                differing += _compare(plain_records, listing_records, oracle)
                used = {each["pub"]["facts"]["revision"] for each in listing_records}
                assert used == {listing.revision}
        # A comparison without differences would prove nothing.
        assert differing > count * items / 50
        counts = [await _counts(running) for running, _, _ in sides]
        assert counts[0] == counts[1]
