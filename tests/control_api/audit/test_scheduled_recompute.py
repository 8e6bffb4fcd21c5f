"""The scheduled verification derives every decision again. It finds a verdict that an insider has
changed who has the log's key, and has made every hash, column, head and signature anew."""

from __future__ import annotations

import asyncio
import base64
import shutil
from typing import Any

import orjson
import pytest

from control_api.log.scheduled import loop, rederivation, self_check
from control_api.log.scheduled.self_check import IDLE, SelfChecker
from control_api.store.queries.leases import SelfCheck
from policies.ground.signing import Signer
from policies.trail.recompute.recomputer import RecomputeCounts
from tests.control_api.audit.test_recomputed import a_day
from tests.control_api.log.insider import Insider, Line
from tests.support.control_api import ControlApi
from tests.support.open_store import TENANT, OpenStore, opened, sql
from tests.support.waiting import until

DAY = 86_400_000_000


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PAUSE", 0.0), ("STRETCH", 3), ("ENTRIES", 9)):
        monkeypatch.setattr(self_check, name, value)
    monkeypatch.setattr(rederivation, "PAGE_ROWS", 4)
    monkeypatch.setattr(loop, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(loop, "INTERVAL_SECONDS", 0.2)


def allow_the_denied(lines: list[Line]) -> None:
    """The last denial by a policy becomes an ALLOW, in a way that no chain shows."""
    denied = next(line for line in reversed(lines) if _response(line).get("check"))
    response = _response(denied)
    response["decision"] = "ALLOW"
    del response["check"]


def _response(line: Line) -> dict[str, Any]:
    found: dict[str, Any] = line.entry["pub"].get("response", {})
    return found


class Rounds:
    """Scheduled verifications of a stopped service's log, each step by a process of its own."""

    def __init__(self, world: OpenStore) -> None:
        self.world = world
        self.counted = RecomputeCounts()

    def _count(self, counts: RecomputeCounts) -> None:
        for name in RecomputeCounts.__slots__:
            setattr(self.counted, name, getattr(self.counted, name) + getattr(counts, name))

    async def whole(self) -> SelfCheck:
        self.counted, more, state = RecomputeCounts(), True, None
        while more:
            state, more = await SelfChecker(self.world.store, self._count).step(TENANT, ())
        assert state is not None
        return state


@pytest.mark.deep(
    stands_in="tests/control_api/audit/test_recomputed.py::test_a_day_is_derived_again_by_one_process_or_by_two"
)
async def test_any_process_continues_a_derivation(either: ControlApi) -> None:
    await asyncio.to_thread(a_day, either)
    either.stop()
    url = either.settings.database_url
    insider = Insider(url)
    true = await insider.copy()
    await insider.run("DELETE FROM self_checks")
    async with opened(url) as world:
        rounds = Rounds(world)
        state = await rounds.whole()
        assert state.reason is None
        assert rounds.counted == RecomputeCounts(recomputed=10)
        assert (state.finished_size or 0) > 2 * self_check.ENTRIES

        await insider.rewrite(allow_the_denied)
        world.now.ahead += DAY
        state = await rounds.whole()
        assert (state.reason or "").startswith("decision_differs: seq ")
        assert rounds.counted == RecomputeCounts(recomputed=9, findings=1)
        # The log around it verifies, so the walk has come to the end, and it stays told.
        assert state.finished_size == state.size == len(true["log_entries"])
        [row] = await world.rows(
            "SELECT entry FROM log_entries WHERE eid = :eid", eid=state.broken_at
        )
        assert orjson.loads(bytes(row.entry))["pub"]["response"]["decision"] == "ALLOW"
        world.now.ahead += IDLE
        assert (await rounds.whole()).reason == state.reason

        await insider.restore(true)
        world.now.ahead += DAY
        state = await rounds.whole()
        assert (state.reason, rounds.counted) == (None, RecomputeCounts(recomputed=10))
    await insider.close()
    either.start()


def test_a_running_service_reports_a_verdict_changed_with_its_own_key(either: ControlApi) -> None:
    def state() -> Any:
        return either.call("GET", "/health/ready", key=None).body["self_verification"]["state"]

    assert either.evaluate()["decision"] == "ALLOW"
    assert either.evaluate(source_id="payroll")["decision"] == "DENY"
    until("the first verification", lambda: state() == "valid")
    until("a checkpoint", lambda: either.call("GET", "/v1/audit/checkpoint").status == 200)
    either.stop()
    asyncio.run(_attack(either))
    either.start()
    until("the changed verdict is found", lambda: state() == "damaged")
    assert either.verified()["level"] == "signed"  # the chain shows nothing
    metrics = either.call("GET", "/metrics", key=None).raw.decode()
    assert "sluice_self_verification_findings 1.0" in metrics
    assert 'sluice_self_verification_decisions_total{result="differs"} 1.0' in metrics
    assert 'sluice_self_verification_decisions_total{result="follows"} 1.0' in metrics


async def _attack(api: ControlApi) -> None:
    """With every secret of the service, its checkpoint store, and its notes about itself."""
    data = api.directory / "data"
    seed = (data / "log.key").read_text().splitlines()[0]
    insider = Insider(api.settings.database_url)
    await insider.rewrite(allow_the_denied)
    await insider.sign(Signer(base64.b64decode(seed)))
    await insider.close()
    shutil.rmtree(data / "checkpoints")
    await sql(api.settings.database_url, "DELETE FROM self_checks")
