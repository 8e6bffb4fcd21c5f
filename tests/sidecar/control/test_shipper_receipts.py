"""Which receipts let the spool forget a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.ground.signing import Signer
from tests.sidecar.control.running_shipper import check_log, shipping
from tests.sidecar.spool.fake_log import FakeLog, serving
from tests.sidecar.spool.running_spool import keep, running_spool
from tests.support.waiting import until_async


async def test_a_receipt_by_another_key_forgets_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        known, rotated = [log.signer.public], Signer.generate()
        unknown: str | None = "the control API is away"

        async def learn() -> str | None:
            if unknown is None:
                known.append(rotated.public)
            return unknown

        log.sign_with = Signer.generate()
        async with shipping(spool, log, log_keys=lambda: tuple(known), learn_key=learn) as shipper:
            await keep(spool, *range(5))
            await until_async("sending has failed", lambda: shipper.failures >= 2)
            assert "signature" in (shipper.problem or "")
            assert (shipper.problem or "").endswith(f"who signs is not known: {unknown}")
            # Nor if the control API is asked, and names another.
            unknown, before = None, shipper.failures
            await until_async("it fails again", lambda: shipper.failures >= before + 2)
            assert (shipper.problem or "").endswith("its signature is not by the log's key")
            assert spool.depth == 5
            assert shipper.shipped == 0
            log.sign_with = None
            await until_async("everything is shipped", lambda: spool.depth == 0)
            # One that the control API endorses counts at once, and is not worth a line.
            known[:], before = [log.signer.public], shipper.failures
            log.sign_with = rotated
            caplog.clear()
            await keep(spool, 5)
            await until_async("that is shipped too", lambda: spool.depth == 0)
            assert (shipper.failures, caplog.text) == (before, "")
        check_log(log, *range(6))


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 3},
        {"n": 5},
        {"n": True},
        {"n": "4"},
        {"hash": "AAAA"},
        {"hash": 7},
        {"signature": ""},
        {"signature": "*"},
        {"source": "sidecar-2"},
        {"instance": "f" * 32},
    ],
)
async def test_a_receipt_about_anything_else_forgets_nothing(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.tamper = lambda receipt: {**receipt, **wrong}
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(5))
            await until_async("sending has failed", lambda: shipper.failures >= 1)
            assert spool.depth == 5
            assert shipper.conflicts == 0


async def test_a_signed_receipt_for_less_than_was_sent_forgets_nothing(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log) as shipper:
            await keep(spool, 0)
            await until_async("everything is shipped", lambda: spool.depth == 0)
            old = log.receipt("sidecar-1", spool.instance)
            log.tamper = lambda _: old
            await keep(spool, 1)
            await until_async("sending has failed", lambda: shipper.failures >= 1)
            assert spool.depth == 1
            log.tamper = dict
            await until_async("everything is shipped", lambda: spool.depth == 0)
        check_log(log, 0, 1)


async def test_nothing_is_sent_before_the_logs_key_is_known(tmp_path: Path) -> None:
    known: list[bytes] = []
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log, log_keys=lambda: tuple(known)) as shipper:
            await keep(spool, 0)
            await until_async("the shipper has a problem", lambda: shipper.problem is not None)
            assert not log.bodies
            known.append(log.signer.public)
            await until_async("everything is shipped", lambda: spool.depth == 0)
        check_log(log, 0)


async def test_records_that_were_refused_are_logged_and_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = [{"n": 1, "reason": "foreign_agent"}, {"n": 3, "reason": "event_id"}]
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.tamper = lambda receipt: {**receipt, "rejected": refused}
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(5))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            assert (shipper.rejected, shipper.shipped, shipper.conflicts) == (2, 5, 0)
    assert "the first is record 1: foreign_agent" in caplog.text


@pytest.mark.parametrize("rejected", [None, 7, [7], [{}], {"n": 1}])
async def test_a_list_of_refused_records_in_any_form_holds_up_nothing(
    tmp_path: Path, rejected: object
) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.tamper = lambda receipt: {**receipt, "rejected": rejected}
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(5))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            assert shipper.failures == 0
