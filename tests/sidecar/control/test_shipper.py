"""Records get from the spool into the log exactly once, whatever fails in between."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

import sidecar.control.shipper
from policies.ground.signing import Signer
from sidecar.control.client import ControlClient
from sidecar.control.shipper import Shipper
from sidecar.spool import Spool
from tests.sidecar.spool.ledger import MAX_BODY, TENANT, Ledger, refusal, serving
from tests.sidecar.spool.parts import (
    CLOCK,
    FaultyDisk,
    check_chain,
    instances,
    keep,
    record,
    running,
    until,
)

KEY = "slc_key-of-the-sidecar"


@asynccontextmanager
async def shipping(
    spool: Spool,
    ledger: Ledger,
    *,
    address: str | None = None,
    log_keys: Callable[[], tuple[bytes, ...]] | None = None,
    compress: bool = False,
) -> AsyncIterator[Shipper]:
    async with ControlClient(address or ledger.address, KEY) as control:
        shipper = Shipper(
            spool,
            control,
            CLOCK,
            tenant_id=lambda: TENANT,
            log_keys=log_keys or (lambda: (ledger.signer.public,)),
            compress=compress,
        )
        loop = asyncio.create_task(shipper.run())
        try:
            yield shipper
            assert not loop.done(), loop.exception()
        finally:
            loop.cancel()


def check(ledger: Ledger, *eids: object) -> None:
    """These events, each once, in this order, in chains that hold."""
    assert ledger.events() == [str(eid) for eid in eids]
    check_chain(ledger.entries)


async def test_records_ship_once_in_order_and_leave_the_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger) as shipper:
            for n in range(1500):
                spool.put(record(n), denial=False)
                if n % 100 == 0:
                    await asyncio.sleep(0.01)
            await until(lambda: len(ledger.events()) == 1500)
            await until(lambda: spool.depth == 0)
            assert shipper.shipped == 1500
            assert shipper.problem is None
        check(ledger, *range(1500))
        assert set(ledger.keys) == {KEY}


async def test_a_body_is_at_most_a_mebibyte(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        for n in range(60):
            await spool.put(record(n, query="ü" * 32_000), denial=False).durable
        async with shipping(spool, ledger):
            await until(lambda: spool.depth == 0)
        check(ledger, *range(60))
        assert MAX_BODY * 0.9 < max(ledger.bodies) <= MAX_BODY


async def test_records_that_leave_the_host_are_compressed(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        for n in range(300):
            spool.put(record(n, query="what is the covenant?"), denial=False)
        async with shipping(spool, ledger, compress=True):
            await until(lambda: len(ledger.events()) == 300)
        check(ledger, *range(300))
        assert set(ledger.encodings) == {"gzip"}
        assert sum(ledger.lengths) < 0.7 * sum(ledger.bodies)


async def test_retry_after_is_honoured(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.orders = [lambda: web.json_response({}, status=503, headers={"Retry-After": "1"})]
        await keep(spool, 0)
        started = asyncio.get_running_loop().time()
        async with shipping(spool, ledger) as shipper:
            await until(lambda: spool.depth == 0)
            assert shipper.failures == 1
        assert 1.0 < asyncio.get_running_loop().time() - started < 5.0
        check(ledger, 0)


async def test_records_linger_so_that_a_batch_forms(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger):
            for n in range(30):
                await keep(spool, n)
                await asyncio.sleep(0.001)
            await until(lambda: spool.depth == 0)
        assert len(ledger.bodies) < 10
        check(ledger, *range(30))


async def test_an_answer_lost_after_the_append_leaves_each_record_once(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.lost = 3
        async with shipping(spool, ledger) as shipper:
            await keep(spool, *range(20))
            await until(lambda: spool.depth == 0)
            assert shipper.failures == 3
        assert len(ledger.bodies) == 4
        check(ledger, *range(20))


async def test_more_records_join_while_an_answer_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger):
            for n in range(200):
                ledger.lost = n % 2
                await keep(spool, n)
            ledger.lost = 0
            await until(lambda: spool.depth == 0)
        check(ledger, *range(200))


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
async def test_a_passing_failure_is_retried(tmp_path: Path, status: int) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.orders = [refusal(status)] * 3
        async with shipping(spool, ledger) as shipper:
            await keep(spool, *range(5))
            await until(lambda: spool.depth == 0)
            assert shipper.failures == 3
            assert shipper.problem is None
        check(ledger, *range(5))


async def test_a_control_api_that_is_away_loses_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    async with running(tmp_path) as spool:
        async with serving(ledger):
            address = ledger.address
        async with shipping(spool, ledger, address=address) as shipper:
            await keep(spool, *range(50))
            await until(lambda: shipper.failures >= 2)
            assert shipper.problem is not None
            assert spool.depth == 50
            assert spool.oldest_age() > 0.05
            async with serving(ledger, int(address.rsplit(":", 1)[1])):
                await until(lambda: spool.depth == 0)
            assert spool.oldest_age() == 0
        check(ledger, *range(50))


async def test_a_lasting_outage_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.always = refusal(503)
        with caplog.at_level(logging.INFO, "sidecar.control.shipper"):
            async with shipping(spool, ledger) as shipper:
                await keep(spool, 0)
                await until(lambda: shipper.failures >= 4)
                ledger.always = None
                await until(lambda: spool.depth == 0)
        assert [entry.levelname for entry in caplog.records] == ["ERROR", "WARNING"]


@pytest.mark.parametrize("status", [401, 403, 404, 413, 302])
async def test_a_refusal_of_the_sidecar_keeps_the_records_and_asks_seldom(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar.control.shipper, "REFUSED_PAUSE", 0.5)
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.always = refusal(status)
        async with shipping(spool, ledger) as shipper:
            await keep(spool, *range(5))
            await until(lambda: shipper.failures >= 1)
            await asyncio.sleep(0.2)
            if status != 302:
                assert shipper.failures == 1
            assert spool.depth == 5
            assert str(status) in (shipper.problem or "")
            ledger.always = None
            await until(lambda: spool.depth == 0)
        check(ledger, *range(5))


@pytest.mark.parametrize("status", [409, 422])
async def test_an_instance_that_is_refused_is_set_aside_and_another_goes_on(
    tmp_path: Path, status: int
) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger) as shipper:
            await keep(spool, *range(5))
            await until(lambda: spool.depth == 0)
            former = spool.instance
            ledger.orders = [refusal(status)]
            await keep(spool, "refused")
            await until(lambda: shipper.conflicts == 1)
            await keep(spool, "later")
            await until(lambda: "later" in ledger.events())
            await until(lambda: list(tmp_path.glob("conflict-*")))
        check(ledger, *range(5), "later")
        (gap,) = ledger.gaps()
        assert (gap["instance"], gap["first"], gap["lost"]) == (former, 5, 1)


@pytest.mark.parametrize("status", [409, 422])
async def test_a_control_api_that_takes_nothing_at_all_costs_one_instance_not_the_disk(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar.control.shipper, "REFUSED_PAUSE", 0.1)
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.always = refusal(status)
        async with shipping(spool, ledger) as shipper:
            await keep(spool, "refused")
            await until(lambda: shipper.conflicts == 1)
            await keep(spool, *range(5))
            await until(lambda: shipper.failures >= 5)
            assert shipper.conflicts == 1
            assert len(list(tmp_path.glob("conflict-*"))) == 1
            assert spool.depth == 6
            ledger.always = None
            await until(lambda: spool.depth == 0)
        check(ledger, *range(5))


async def test_a_409_from_a_proxy_on_the_way_sets_nothing_aside(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.always = lambda: web.Response(status=409, text="a gateway's own page")
        async with shipping(spool, ledger) as shipper:
            await keep(spool, 0)
            await until(lambda: shipper.failures >= 1)
            assert shipper.conflicts == 0
            assert spool.depth == 1


async def test_a_log_that_lost_what_it_had_is_sent_it_again(tmp_path: Path) -> None:
    """A database restored to an older copy, which has part of the log or none of it."""
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger) as shipper:
            await keep(spool, *range(5))
            await until(lambda: spool.depth == 0)
            older = dict(ledger.held), list(ledger.entries)
            await keep(spool, *range(5, 9))
            await until(lambda: spool.depth == 0)
            ledger.held, ledger.entries = older
            await keep(spool, 9)
            await until(lambda: ledger.events() == [str(n) for n in range(10)])
            assert (shipper.rewinds, shipper.conflicts) == (1, 0)
            ledger.held, ledger.entries = {}, []
            await keep(spool, 10)
            await until(lambda: spool.depth == 0)
        check(ledger, *range(11))


def forged(ledger: Ledger) -> web.Response:
    ((source, instance),) = ledger.held
    ledger.sign_with = Signer.generate()
    receipt = ledger.receipt(source, instance)
    ledger.sign_with = None
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
async def test_what_the_control_api_holds_is_asked_until_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Ledger], web.Response | None]
) -> None:
    """A batch was refused, and whether what it follows was lost could not be learnt: to take that
    for a conflict would set the instance aside for good."""
    monkeypatch.setattr(sidecar.control.shipper, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(sidecar.control.shipper, "REFUSED_PAUSE", 0.1)
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger) as shipper:
            await keep(spool, *range(5))
            await until(lambda: spool.depth == 0)
            older = dict(ledger.held), list(ledger.entries)
            await keep(spool, *range(5, 9))
            await until(lambda: spool.depth == 0)
            ledger.held, ledger.entries = older
            ledger.orders = [refusal(409), lambda: answer(ledger)] * 2
            await keep(spool, 9)
            await until(lambda: spool.depth == 0)
            assert (shipper.failures, shipper.conflicts, shipper.rewinds) == (2, 0, 1)
        check(ledger, *range(10))


async def test_a_disk_that_can_not_say_what_we_had_sets_nothing_aside(tmp_path: Path) -> None:
    disk = FaultyDisk()

    def refused() -> web.Response | None:
        disk.breaks("read")
        return refusal(409)()

    async with running(tmp_path, disk) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger) as shipper:
            await keep(spool, *range(5))
            await until(lambda: spool.depth == 0)
            ledger.orders = [refused]
            await keep(spool, 5)
            await until(lambda: shipper.failures >= 1)
            disk.heals()
            await until(lambda: spool.depth == 0)
            assert shipper.conflicts == 0
        check(ledger, *range(6))


async def test_a_loss_is_noticed_though_there_is_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar.control.shipper, "CHECK_SECONDS", 0.1)
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger):
            await keep(spool, *range(5))
            await until(lambda: spool.depth == 0)
            ledger.held, ledger.entries = {}, []
            await until(lambda: len(ledger.events()) == 5)
        check(ledger, *range(5))


async def test_what_was_lost_and_is_not_kept_any_more_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.spool.reading.retention.RETAIN_SECONDS", 0.0)
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger) as shipper:
            for n in range(60):
                await spool.put(record(n, query="q" * 50_000), denial=False).durable
            await until(lambda: spool.depth == 0)
            ledger.held, ledger.entries = {}, []
            await keep(spool, "next")
            await until(lambda: shipper.conflicts == 1)
            await keep(spool, "later")
            await until(lambda: spool.depth == 0 and ledger.events() == ["later"])
        assert (ledger.gaps()[0]["first"], ledger.gaps()[0]["lost"]) == (60, 1)


async def test_two_spools_of_one_instance_are_told_apart(tmp_path: Path) -> None:
    """A copied directory: the numbers are the same and the records are not."""
    one, two = tmp_path / "one", tmp_path / "two"
    async with serving(Ledger()) as ledger:
        async with running(one) as spool, shipping(spool, ledger):
            await keep(spool, 0, 1)
            await until(lambda: spool.depth == 0)
        shutil.copytree(one, two)
        async with running(one) as spool, shipping(spool, ledger):
            await keep(spool, 2, 3, 4)
            await until(lambda: spool.depth == 0)
        for name in ("a", "b", "c", "d"):
            # Fewer than the other has, as many, and more.
            async with running(two) as spool, shipping(spool, ledger):
                await keep(spool, name)
                await until(lambda: spool.depth == 0)
        events = ledger.events()
    check_chain(ledger.entries)
    assert events[:5] == ["0", "1", "2", "3", "4"]
    lost = sum(gap["lost"] for gap in ledger.gaps())
    assert lost + len(events) == 9
    assert lost >= 1


async def test_a_receipt_by_another_key_forgets_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.sign_with = Signer.generate()
        async with shipping(spool, ledger) as shipper:
            await keep(spool, *range(5))
            await until(lambda: shipper.failures >= 2)
            assert "signature" in (shipper.problem or "")
            assert spool.depth == 5
            assert shipper.shipped == 0
            ledger.sign_with = None
            await until(lambda: spool.depth == 0)
        check(ledger, *range(5))


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
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.spoil = lambda receipt: {**receipt, **wrong}
        async with shipping(spool, ledger) as shipper:
            await keep(spool, *range(5))
            await until(lambda: shipper.failures >= 1)
            assert spool.depth == 5
            assert shipper.conflicts == 0


async def test_a_signed_receipt_for_less_than_was_sent_forgets_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger) as shipper:
            await keep(spool, 0)
            await until(lambda: spool.depth == 0)
            old = ledger.receipt("sidecar-1", spool.instance)
            ledger.spoil = lambda _: old
            await keep(spool, 1)
            await until(lambda: shipper.failures >= 1)
            assert spool.depth == 1
            ledger.spoil = dict
            await until(lambda: spool.depth == 0)
        check(ledger, 0, 1)


async def test_nothing_is_sent_before_the_logs_key_is_known(tmp_path: Path) -> None:
    known: list[bytes] = []
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        async with shipping(spool, ledger, log_keys=lambda: tuple(known)) as shipper:
            await keep(spool, 0)
            await until(lambda: shipper.problem is not None)
            assert not ledger.bodies
            known.append(ledger.signer.public)
            await until(lambda: spool.depth == 0)
        check(ledger, 0)


async def test_after_a_restart_without_its_note_resent_records_are_skipped(tmp_path: Path) -> None:
    async with serving(Ledger()) as ledger:
        async with running(tmp_path) as spool, shipping(spool, ledger):
            await keep(spool, *range(900))
            await until(lambda: spool.depth == 0)
        (instances(tmp_path)[0] / "acked").unlink()
        async with running(tmp_path) as spool:
            assert spool.depth == 900
            await keep(spool, "later")
            sent = len(ledger.bodies)
            async with shipping(spool, ledger) as shipper:
                await until(lambda: spool.depth == 0)
                assert shipper.conflicts == 0
        check(ledger, *range(900), "later")
        # The first receipt already told how far the log is: not everything was sent again.
        assert len(ledger.bodies) - sent == 2


async def test_a_failed_instance_ships_before_the_next(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running(tmp_path, disk) as spool, serving(Ledger()) as ledger:
        await keep(spool, 0, 1)
        disk.breaks("sync")
        spool.put(record("lost"), denial=False)
        await until(lambda: spool.refusal is not None)
        disk.heals()
        await until(lambda: spool.refusal is None)
        await keep(spool, "later")
        async with shipping(spool, ledger):
            await until(lambda: spool.depth == 0)
        check(ledger, 0, 1, "later")
        assert [core["kind"] for core in ledger.entries][2] == "gap"


async def test_a_spool_that_can_not_be_read_is_retried(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running(tmp_path, disk) as spool, serving(Ledger()) as ledger:
        await keep(spool, *range(5))
        disk.breaks("read")
        async with shipping(spool, ledger) as shipper:
            await until(lambda: shipper.failures >= 2)
            disk.heals()
            await until(lambda: spool.depth == 0)
        check(ledger, *range(5))


async def test_draining_ships_all_there_is(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        await keep(spool, *range(2000))
        ledger.orders = [refusal(503)]
        async with ControlClient(ledger.address, KEY) as control:
            public = ledger.signer.public
            shipper = Shipper(
                spool, control, CLOCK, tenant_id=lambda: TENANT, log_keys=lambda: (public,)
            )
            assert await shipper.drain(CLOCK.monotonic() + 10)
        check(ledger, *range(2000))


async def test_draining_waits_for_what_is_on_its_way_to_the_disk(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running(tmp_path, disk) as spool, serving(Ledger()) as ledger:
        disk.hold()
        spool.put(record("last"), denial=False)
        asyncio.get_running_loop().call_later(0.1, disk.release)
        async with ControlClient(ledger.address, KEY) as control:
            public = ledger.signer.public
            shipper = Shipper(
                spool, control, CLOCK, tenant_id=lambda: TENANT, log_keys=lambda: (public,)
            )
            assert await shipper.drain(CLOCK.monotonic() + 10)
        check(ledger, "last")


async def test_draining_ends_at_its_deadline_and_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        await keep(spool, *range(5))
        ledger.always = refusal(503)
        async with ControlClient(ledger.address, KEY) as control:
            public = ledger.signer.public
            shipper = Shipper(
                spool, control, CLOCK, tenant_id=lambda: TENANT, log_keys=lambda: (public,)
            )
            started = CLOCK.monotonic()
            assert not await shipper.drain(started + 0.3)
            assert CLOCK.monotonic() - started < 2
            assert spool.depth == 5


async def test_no_key_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path) as spool, serving(Ledger()) as ledger:
        ledger.always = refusal(403)
        async with shipping(spool, ledger) as shipper:
            await keep(spool, 0)
            await until(lambda: shipper.failures >= 1)
            assert KEY not in (shipper.problem or "")
    assert KEY not in caplog.text
