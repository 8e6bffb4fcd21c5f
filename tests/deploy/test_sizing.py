"""The table of what a fleet needs (`deploy/INTERNALS.md`) is what the computation prints."""

from __future__ import annotations

from dataclasses import replace

from tests.architecture.tree import ROOT
from tests.benchmarks.sizing import MEASURED, Fleet, Site, needs, table

TENANT_OF_1000 = Fleet(1000, 10, 1)


def test_the_table_is_computed_from_the_stored_costs() -> None:
    assert table(MEASURED, Site()) in (ROOT / "deploy" / "INTERNALS.md").read_text("utf-8")


def test_more_sidecars_need_more_of_everything() -> None:
    few, many = (needs(MEASURED, Site(), replace(TENANT_OF_1000, sidecars=n)) for n in (500, 1000))
    assert few.processes <= many.processes
    assert few.postgresql_cores < many.postgresql_cores
    assert few.redis_out < many.redis_out
    assert all(few.used[name] <= many.used[name] for name in few.used)


def test_a_limit_that_is_lifted_is_used_less() -> None:
    before = needs(MEASURED, Site(), TENANT_OF_1000)
    faster = replace(MEASURED, lane_batch_us=MEASURED.lane_batch_us / 4, lane_record_us=4)
    after = needs(faster, Site(), TENANT_OF_1000)
    assert after.used["one tenant's log"] < before.used["one tenant's log"]
