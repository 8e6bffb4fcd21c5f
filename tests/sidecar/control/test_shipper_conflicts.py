"""What the shipper does if the control API refuses the records, or has lost some."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

import sidecar.control.log_client
import sidecar.control.shipper
from policies.ground.canonical import b64
from policies.ground.signing import Signer
from tests.sidecar.control.running_shipper import check_log, shipping
from tests.sidecar.spool.fake_log import FakeLog, refusal, serving
from tests.sidecar.spool.running_spool import FaultyDisk, check_chain, keep, record, running_spool
from tests.support.waiting import until_async


@pytest.mark.parametrize("status", [409, 422])
async def test_a_refused_instance_is_set_aside_and_another_continues(
    tmp_path: Path, status: int
) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(5))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            former = spool.instance
            log.faults = [refusal(status)]
            await keep(spool, "refused")
            await until_async("a conflict is counted", lambda: shipper.conflicts == 1)
            await keep(spool, "later")
            await until_async("the records are in the log", lambda: "later" in log.events())
            await until_async("the conflict is kept", lambda: list(tmp_path.glob("conflict-*")))
        check_log(log, *range(5), "later")
        (gap,) = log.gaps()
        assert (gap["instance"], gap["first"], gap["lost"]) == (former, 5, 1)


@pytest.mark.parametrize("status", [409, 422])
async def test_a_control_api_that_refuses_everything_costs_one_instance(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar.control.shipper, "REFUSED_PAUSE", 0.1)
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.always = refusal(status)
        async with shipping(spool, log) as shipper:
            await keep(spool, "refused")
            await until_async("a conflict is counted", lambda: shipper.conflicts == 1)
            await keep(spool, *range(5))
            await until_async("sending has failed", lambda: shipper.failures >= 5)
            assert shipper.conflicts == 1
            assert len(list(tmp_path.glob("conflict-*"))) == 1
            assert spool.depth == 6
            log.always = None
            await until_async("everything is shipped", lambda: spool.depth == 0)
        check_log(log, *range(5))


async def test_a_409_from_a_proxy_on_the_way_sets_nothing_aside(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.always = lambda: web.Response(status=409, text="a gateway's own page")
        async with shipping(spool, log) as shipper:
            await keep(spool, 0)
            await until_async("sending has failed", lambda: shipper.failures >= 1)
            assert shipper.conflicts == 0
            assert spool.depth == 1


async def test_records_that_the_log_lost_are_sent_again(tmp_path: Path) -> None:
    """A database restored to an older copy, which has part of the log or none of it."""
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(5))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            older = dict(log.held), list(log.entries)
            await keep(spool, *range(5, 9))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            log.held, log.entries = older
            await keep(spool, 9)
            await until_async(
                "the records are in the log", lambda: log.events() == [str(n) for n in range(10)]
            )
            assert (shipper.rewinds, shipper.conflicts) == (1, 0)
            log.held, log.entries = {}, []
            await keep(spool, 10)
            await until_async("everything is shipped", lambda: spool.depth == 0)
        check_log(log, *range(11))


def forged(log: FakeLog) -> web.Response:
    ((source, instance),) = log.held
    log.sign_with = Signer.generate()
    receipt = log.receipt(source, instance)
    log.sign_with = None
    return web.json_response(receipt)


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: refusal(503)(),
        lambda _: refusal(403)(),
        lambda _: None,
        lambda _: web.Response(status=409, text="a gateway's own page"),
        forged,
    ],
    ids=["away", "refuses us", "hangs", "a gateway", "forged"],
)
async def test_the_state_of_the_control_api_is_asked_until_it_is_known(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[FakeLog], web.Response | None],
) -> None:
    """A batch was refused, and whether what it follows was lost could not be learnt: to take that
    for a conflict would set the instance aside for good."""
    monkeypatch.setattr(sidecar.control.log_client, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(sidecar.control.shipper, "REFUSED_PAUSE", 0.1)
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(5))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            older = dict(log.held), list(log.entries)
            await keep(spool, *range(5, 9))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            log.held, log.entries = older
            log.faults = [refusal(409), lambda: answer(log)] * 2
            await keep(spool, 9)
            await until_async("everything is shipped", lambda: spool.depth == 0)
            assert (shipper.failures, shipper.conflicts, shipper.rewinds) == (2, 0, 1)
        check_log(log, *range(10))


async def test_an_unreadable_disk_sets_nothing_aside(tmp_path: Path) -> None:
    disk = FaultyDisk()

    def refused() -> web.Response | None:
        disk.breaks("read")
        return refusal(409)()

    async with running_spool(tmp_path, disk) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(5))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            log.faults = [refused]
            await keep(spool, 5)
            await until_async("sending has failed", lambda: shipper.failures >= 1)
            disk.heals()
            await until_async("everything is shipped", lambda: spool.depth == 0)
            assert shipper.conflicts == 0
        check_log(log, *range(6))


async def test_a_loss_is_noticed_though_there_is_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar.control.shipper, "CHECK_SECONDS", 0.1)
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log):
            await keep(spool, *range(5))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            log.held, log.entries = {}, []
            await until_async("the records are in the log", lambda: len(log.events()) == 5)
        check_log(log, *range(5))


async def test_lost_records_that_are_no_longer_kept_are_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.spool.reading.retention.RETAIN_SECONDS", 0.0)
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log) as shipper:
            for n in range(24):  # more than a segment holds
                await spool.put(record(n, query="q" * 50_000), denial=False).durable
            await until_async("everything is shipped", lambda: spool.depth == 0)
            log.held, log.entries = {}, []
            await keep(spool, "next")
            await until_async("a conflict is counted", lambda: shipper.conflicts == 1)
            await keep(spool, "later")
            await until_async(
                "the later record is shipped",
                lambda: spool.depth == 0 and log.events() == ["later"],
            )
        assert (log.gaps()[0]["first"], log.gaps()[0]["lost"]) == (24, 1)


async def test_another_record_of_the_same_number_sets_the_instance_aside(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log) as shipper:
            await keep(spool, 0)
            await until_async("everything is shipped", lambda: spool.depth == 0)
            # A copy of the directory has shipped a record of its own meanwhile.
            ((copied, (n, _)),) = log.held.items()
            log.held[copied] = (n + 1, b64(b"another record".ljust(32)))
            await keep(spool, "lost")
            await until_async("a conflict is counted", lambda: shipper.conflicts == 1)
            await until_async("the gap is declared", log.gaps)
        (gap,) = log.gaps()
        assert (gap["instance"], gap["first"], gap["lost"]) == (copied[1], 1, 1)


@pytest.mark.deep(stands_in="test_another_record_of_the_same_number_sets_the_instance_aside")
async def test_two_spools_of_one_instance_are_distinguished(tmp_path: Path) -> None:
    """A copied directory: the numbers are the same and the records are not."""
    one, two = tmp_path / "one", tmp_path / "two"
    async with serving(FakeLog()) as log:
        async with running_spool(one) as spool, shipping(spool, log):
            await keep(spool, 0, 1)
            await until_async("everything is shipped", lambda: spool.depth == 0)
        shutil.copytree(one, two)
        async with running_spool(one) as spool, shipping(spool, log):
            await keep(spool, 2, 3, 4)
            await until_async("everything is shipped", lambda: spool.depth == 0)
        for name in ("a", "b", "c", "d"):
            # Fewer than the other has, as many, and more.
            async with running_spool(two) as spool, shipping(spool, log):
                await keep(spool, name)
                await until_async("everything is shipped", lambda: spool.depth == 0)
        events = log.events()
    check_chain(log.entries)
    assert events[:5] == ["0", "1", "2", "3", "4"]
    lost = sum(gap["lost"] for gap in log.gaps())
    assert lost + len(events) == 9
    assert lost >= 1
