"""Every answer is in the spool before it leaves, also while the disk is full, hangs or fails."""

import asyncio
import errno
import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64
from policies.trail.spool_chain import core_hash
from sidecar.settings.sections import AuthzenSettings
from sidecar.spool import SpoolSettings, SpoolUnwritable
from tests.sidecar.authzen.questions import EVALUATION, question
from tests.sidecar.spool import running_spool
from tests.support import waiting
from tests.support.fake_control_api import (
    EVALUATE_KEY,
    fake_control_api,
)
from tests.support.sidecar import (
    EVALUATE,
    FaultyDisk,
    RunningSidecar,
    ask,
    retrieval,
    running_sidecar,
)
from tests.support.waiting import until_async

SMALL = 1024 * 1024


async def fill(running: RunningSidecar) -> None:
    """Until no ALLOW finds room."""
    body = orjson.dumps(ask(query="x" * 60_000))
    for _ in range(400):
        answer = (await running.call("POST", EVALUATE, body)).json()
        if answer.get("decision") != "ALLOW":
            return
    raise AssertionError("the spool never filled")


async def authzen_answers(running: RunningSidecar, *, until: bool | None) -> Any:
    """Ask for a small record, for which there may be room longer, until the answer has this
    decision; None if it must be a failure."""
    for _ in range(4000):
        answer = await running.call("POST", EVALUATION, orjson.dumps(question()))
        if (told := answer.json()).get("decision") is until:
            assert answer.status == (503 if until is None else 200)
            return told
    raise AssertionError("it never came")


def small(tmp_path: Path) -> SpoolSettings:
    return SpoolSettings(tmp_path / "spool", segment_bytes=SMALL, max_bytes=3 * SMALL)


async def test_a_full_spool_denies_instead_of_allowing(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, spool=small(tmp_path)) as running:
            await fill(running)
            answer = await running.evaluate(query="x" * 60_000)
            assert (answer["decision"], answer["policy_name"]) == ("DENY", "audit_unavailable")
            response = (await running.responses())[-1]
            assert response["policy_name"] == "audit_unavailable"
            sample = 'sluice_decisions_total{check="audit_unavailable",decision="DENY"}'
            assert await running.metric(sample) == 2
            assert (await running.problems())["spool"] == (
                "the spool is full, and nothing can be allowed: `spool.max_bytes` is reached: "
                "records wait to be shipped; the log says why if that fails (`shipping`)"
            )
            # A denial in its own right keeps its own reason, as long as there is room for it.
            assert (await running.evaluate(source_id="payroll"))["policy_name"] == "underwriting"


@pytest.mark.deep(
    stands_in="tests/sidecar/spool/test_room.py::test_a_full_disk_is_known_before_the_last_room_is_taken"
)
async def test_a_full_disk_is_reported_as_full_and_as_the_disk_s_fault(tmp_path: Path) -> None:
    disk = running_spool.FaultyDisk()
    spool = SpoolSettings(tmp_path / "spool", segment_bytes=SMALL, max_bytes=64 * SMALL)
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, disk=disk, spool=spool) as running:
            disk.breaks("create_zeroed", code=errno.ENOSPC)
            for state in (1, 2):
                await (fill(running) if state == 1 else authzen_answers(running, until=None))
                # The large record of a denial may already have found no room.
                assert await running.metric("sluice_spool_state") >= state
                assert (await running.problems())["spool"] == (
                    "the spool is full, and nothing can be allowed: "
                    "ENOSPC (no space left on device) at `spool.dir`"
                )
            answer = await running.call("POST", EVALUATE, orjson.dumps(ask()))
            assert answer.status == 503
            assert "records wait" not in answer.json()["message"]
            disk.heals()
            await until_async("there is room", lambda: not running.parts.readiness.problems())
            assert (await running.evaluate())["decision"] == "ALLOW"


async def test_if_not_even_a_denial_can_be_recorded_nothing_is_decided(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        spool, authzen = small(tmp_path), AuthzenSettings()
        async with running_sidecar(tmp_path, control, spool=spool, authzen=authzen) as running:
            await fill(running)
            body = orjson.dumps(ask(query="x" * 60_000))
            answer = await running.call("POST", EVALUATE, body)
            assert answer.json()["policy_name"] == "audit_unavailable"
            told = await authzen_answers(running, until=False)
            assert told["context"]["policy_name"] == "audit_unavailable"
            for _ in range(400):
                answer = await running.call("POST", EVALUATE, body)
                if answer.status != 200:
                    break
            assert answer.status == 503
            assert answer.json()["message"].startswith("the spool is full")
            await authzen_answers(running, until=None)
            allowed, denied = 0, 0
            for response in await running.responses():
                allowed += response["decision"] == "ALLOW"
                denied += response["decision"] == "DENY"
            answers = [
                await running.metric(f'sluice_requests_total{{operation="{each}",status="200"}}')
                for each in ("evaluate_context", "authzen")
            ]
            assert allowed + denied == sum(answers)
            # Shipped records make room again.
            batch = await running.spool.batch(1 << 30, 1 << 20)
            assert batch is not None
            await running.spool.acknowledge(batch.instance, batch.last_n)

            async def allows() -> bool:
                answer = (await running.call("POST", EVALUATE, orjson.dumps(ask()))).json()
                return bool(answer.get("decision") == "ALLOW")

            await waiting.until_async("it is allowed", allows)


async def test_a_disk_that_fails_answers_503_and_no_decision(
    sidecar: RunningSidecar, disk: FaultyDisk, tmp_path: Path
) -> None:
    assert (await sidecar.evaluate())["decision"] == "ALLOW"
    disk.fails = True
    for source in ("contracts", "payroll"):
        body = orjson.dumps(ask(source_id=source))
        answer = await sidecar.call("POST", EVALUATE, body)
        assert answer.status == 503
        assert "decision" not in answer.json()
        assert str(tmp_path) not in answer.text()
    assert "spool" in await sidecar.problems()
    disk.fails = False
    await until_async("the disk is tried again", lambda: sidecar.spool.refusal is None)
    assert (await sidecar.evaluate())["decision"] == "ALLOW"
    assert await sidecar.problems() == {}


async def test_no_answer_leaves_before_its_record_is_on_disk(
    sidecar: RunningSidecar, disk: FaultyDisk
) -> None:
    disk.hangs.clear()
    calls = [asyncio.create_task(sidecar.evaluate()) for _ in range(5)]
    # expires on purpose
    done, _ = await asyncio.wait(calls, timeout=0.3)
    assert not done
    disk.hangs.set()
    answers = await asyncio.gather(*calls)
    recorded = {record["eid"] for record in await sidecar.records()}
    assert recorded == {answer["event_id"] for answer in answers}


async def test_a_strict_spool_answers_with_503_in_time(tmp_path: Path) -> None:
    disk = FaultyDisk()
    strict = SpoolSettings(tmp_path / "spool", mode="strict", timeout_ms=100, segment_bytes=SMALL)
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, disk=disk, spool=strict) as running:
            disk.hangs.clear()
            try:
                async with asyncio.timeout(20):
                    answer = await running.call("POST", EVALUATE, orjson.dumps(ask()))
            finally:
                disk.hangs.set()
            assert answer.status == 503


async def test_best_effort_answers_while_the_disk_hangs(tmp_path: Path) -> None:
    disk = FaultyDisk()
    best_effort = SpoolSettings(tmp_path / "spool", mode="best_effort", segment_bytes=SMALL)
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, disk=disk, spool=best_effort) as running:
            disk.hangs.clear()
            try:
                async with asyncio.timeout(20):
                    answer = await running.evaluate()
            finally:
                disk.hangs.set()
            [record] = await running.records()
            assert record["eid"] == answer["event_id"]


async def test_a_client_that_hangs_up_undoes_nothing(
    sidecar: RunningSidecar, disk: FaultyDisk
) -> None:
    disk.hangs.clear()
    call = asyncio.create_task(sidecar.evaluate(source_id="rates"))
    await until_async("it is in the spool's hands", lambda: sidecar.spool.bytes_waiting)
    call.cancel()
    await asyncio.wait([call])
    await waiting.turns()
    disk.hangs.set()
    [record] = await sidecar.records()
    assert record["pub"]["request"]["source_id"] == "rates"
    assert (await sidecar.evaluate())["decision"] == "ALLOW"


async def test_records_reach_the_log_in_order_and_once(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, ships=True) as running:
            answers = await asyncio.gather(*(running.evaluate() for _ in range(64)))
            await until_async("they ship", lambda: len(control.records) == 64)
            logged = [record["eid"] for record in control.records]
            assert sorted(logged) == sorted(answer["event_id"] for answer in answers)
            assert [record["src"]["n"] for record in control.records] == list(range(64))
            await until_async("the receipt is here", lambda: running.parts.shipper.shipped == 64)
            assert await running.metric("sluice_shipped_records_total") == 64


async def test_lineage_of_a_retrieval_cites_its_decision(sidecar: RunningSidecar) -> None:
    key = sidecar.agent_key()
    pending = await sidecar.decide(retrieval(), key)
    detail: dict[str, int | str] = {
        "status": 200,
        "bytes": 12,
        "sha256": hashlib.sha256(b"").hexdigest(),
    }
    sidecar.parts.enforcer.note_retrieval(pending, dict(detail), "completed")
    decision, lineage = await sidecar.records()
    assert lineage["kind"] == "lineage"
    assert lineage["pub"]["event"] == {
        "id": decision["eid"],
        "core": b64(core_hash(orjson.dumps(decision, option=orjson.OPT_SORT_KEYS))),
    }
    assert lineage["pub"]["detail"] == detail


async def test_lineage_that_does_not_fit_is_counted_and_harms_nothing(
    sidecar: RunningSidecar, disk: FaultyDisk
) -> None:
    key = sidecar.agent_key()
    pending = await sidecar.decide(retrieval(), key)
    disk.fails = True
    with pytest.raises(SpoolUnwritable):
        await sidecar.decide(retrieval(), key)
    sidecar.parts.enforcer.note_retrieval(pending, {"status": 200}, "completed")
    sidecar.parts.enforcer.note_retrieval(pending._replace(stored=False), {}, "completed")
    assert await sidecar.metric("sluice_lineage_lost_total") == 2


async def test_a_decision_is_one_line_in_the_debug_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="sidecar.recorder")
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            answer = await running.evaluate(user_id="ann@example.com", query="secret text")
            lines = [r.message for r in caplog.records if r.name == "sidecar.recorder"]
            assert lines == [f"{answer['event_id']} ALLOW by underwriting: {answer['reason']}"]
            assert "ann@" not in caplog.text
            assert "secret" not in caplog.text
            assert EVALUATE_KEY not in caplog.text
