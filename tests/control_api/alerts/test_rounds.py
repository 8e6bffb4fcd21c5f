"""One round of the alert loops: which rules fire, which deliveries are attempted, and what becomes
of each. The loops are turned by hand; `test_firing.py` has the whole service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from control_api.alerts import deliver, queries
from control_api.alerts.queries import StoredDelivery
from control_api.store.counters.counters import DAY
from control_api.store.transaction import Transaction
from tests.control_api.alerts.loops import SECRET, Loops, rule
from tests.control_api.alerts.receiver import hook, mailbox
from tests.support.open_store import TENANT, OpenStore, decision, opened
from tests.support.waiting import turns, until_async

MINUTE = 60 * 1_000_000


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[OpenStore]:
    async with opened(f"sqlite:///{tmp_path}/sluice.db") as made:
        yield made


def delivery(world: OpenStore, delivery_id: str, address: str, **fields: Any) -> StoredDelivery:
    """One that is due."""
    given: dict[str, Any] = {
        "rule_id": "alr_1",
        "rule_name": "r",
        "rule_type": "denial_spike",
        "fired_at": world.now(),
        "detail": {"measured": 1, "threshold": 1},
        "channel": "webhook",
        "target": address.partition("?")[0],
        "secret": SECRET,
        "status": "pending",
        "attempts": 0,
        "last_error": None,
        "next_attempt_at": world.now(),
    }
    return StoredDelivery(delivery_id=delivery_id, address=address, **{**given, **fields})


async def test_each_type_fires_once_until_its_cooldown_is_over(world: OpenStore) -> None:
    loops = Loops(world)
    await world.log.append(TENANT, decision())
    await loops.rules(
        rule("denial_spike", 3),
        rule("high_deny_rate", 50, min_events=6),
        rule("isolation_violation"),
        rule("new_source_access", 2),
        rule("denial_spike", rule_id="alr_disabled", enabled=False),
    )
    await loops.evaluator.measure_grown()
    assert await loops.fired() == []
    await world.log.append(TENANT, decision(source_id="contracts"))
    await loops.denied(policy_name="session_agent_mismatch")
    await loops.denied(4)
    for _ in range(2):
        await loops.evaluator.measure_grown()
        found = {each.rule_id: each for each in await loops.fired()}
        types = ("denial_spike", "high_deny_rate", "isolation_violation", "new_source_access")
        assert sorted(each.rule_id for each in await loops.fired()) == [f"alr_{t}" for t in types]
        for each in found.values():
            assert (each.channel, each.status) == ("none", "no_destination")
            assert each.detail["threshold"] <= each.detail["measured"]
        accesses = found["alr_new_source_access"].detail["accesses"]
        assert {each["source_id"] for each in accesses} == {"handbook", "contracts"}
        await loops.denied(4)
    for minutes, times in ((58, 1), (3, 2)):
        world.now.ahead += minutes * MINUTE
        await loops.denied(4)
        await loops.evaluator.measure_grown()
        spikes = [each for each in await loops.fired() if each.rule_id == "alr_denial_spike"]
        assert len(spikes) == times


async def test_only_one_of_two_processes_fires_and_only_one_attempts(world: OpenStore) -> None:
    loops = Loops(world)
    one = rule("denial_spike")
    await loops.rules(one, rule("denial_spike", rule_id="alr_disabled", enabled=False))
    with hook() as receiver:
        due = delivery(world, "dlv_1", receiver.url)
        await loops.deliver(due)

        # Both have read the rule and the delivery as they were.
        async def work(tx: Transaction) -> list[bool]:
            fires = [await queries.fired(tx.connection, TENANT, one, tx.now) for _ in range(2)]
            until = tx.now + deliver.LEASE
            return [*fires, await queries.lease_delivery(tx.connection, TENANT, due, until)]

        await loops.settled("dlv_1", "delivered")
        assert await world.store.write(TENANT, work) == [True, False, False]
        assert len(receiver.seen) == 1
    # One that comes later finds that it has fired.
    await loops.rules(rule("high_deny_rate", min_events=1))
    await loops.denied()
    for each in (loops, Loops(world)):
        await each.evaluator.measure_grown()
    assert sorted(each.rule_id for each in await loops.fired()) == ["alr_1", "alr_high_deny_rate"]


async def test_a_failed_delivery_is_repeated_under_its_id_for_a_day_unless_it_is_final(
    world: OpenStore,
) -> None:
    loops = Loops(world)
    with hook() as receiver, hook() as gone, hook() as elsewhere:
        receiver.status, gone.status = 302, 410
        receiver.headers = {"Location": elsewhere.url}
        await loops.deliver(
            delivery(world, "dlv_1", receiver.url), delivery(world, "dlv_gone", gone.url)
        )
        final = await loops.settled("dlv_gone", "failed")
        assert (final.next_attempt_at, final.last_error is None) == (None, False)
        failed = await loops.settled("dlv_1", "pending")
        assert (failed.attempts, elsewhere.seen) == (1, [])
        assert str(failed.last_error).startswith("answered 302")
        assert failed.next_attempt_at is not None
        assert failed.next_attempt_at > failed.fired_at
        # As after a restart: another process knows what is stored, and nothing else.
        loops = Loops(world)
        world.now.ahead += 60 * MINUTE
        receiver.status = 204
        done = await loops.settled("dlv_1", "delivered")
        assert (done.attempts, done.last_error) == (2, None)
        assert {headers["webhook-id"] for headers, _ in receiver.seen} == {"dlv_1"}
        receiver.status = 500
        await loops.deliver(
            delivery(world, "dlv_old", receiver.url, fired_at=world.now() - DAY),
            delivery(
                world, "dlv_young", receiver.url, fired_at=world.now() - DAY + 2 * 60 * MINUTE
            ),
        )
        assert (await loops.settled("dlv_old", "failed")).next_attempt_at is None
        await loops.settled("dlv_young", "pending")


async def test_a_mail_that_is_refused_for_good_is_not_repeated(world: OpenStore) -> None:
    with mailbox() as box:
        loops = Loops(world, box.port)
        mail = {"channel": "email", "secret": None}
        for reply, status in (
            ("554 no", "failed"),
            ("250 ok", "delivered"),
            ("451 later", "pending"),  # last: it is due again soon, and may not be accepted then
        ):
            box.reply = reply
            await loops.deliver(delivery(world, f"dlv_{status}", "ops@example.com", **mail))
            done = await loops.settled(f"dlv_{status}", status)
            told = f"the mail server answered {reply[:3]}"
            assert done.last_error == (None if status == "delivered" else told)
        assert len(box.seen) == 1
        await Loops(world).deliver(delivery(world, "dlv_none", "ops@example.com", **mail))
        none = await loops.settled("dlv_none", "failed")
        assert "SLUICE_SMTP_URL" in str(none.last_error)


async def test_any_number_of_deliveries_to_a_hanging_receiver_delays_no_other(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "MAX_ATTEMPTS", 3)  # 12 are read at a time
    loops = Loops(world)
    with hook() as hanging, hook() as well:
        hanging.hang = True
        many = [delivery(world, f"dlv_{number}", hanging.url) for number in range(20)]
        await loops.deliver(*many)
        await until_async("two attempts that hang", lambda: len(hanging.seen) == 2)
        world.now.ahead += 1
        await loops.deliver(delivery(world, "dlv_well", well.url))
        await loops.settled("dlv_well", "delivered")
        await turns()
        assert len(hanging.seen) == 2


async def test_a_fired_alert_arrives_signed_and_names_no_user(world: OpenStore) -> None:
    loops = Loops(world)
    with hook() as receiver:
        fires = rule("denial_spike", webhook_url=receiver.url, webhook_secret=SECRET)
        await loops.rules(fires)
        await loops.denied(user_id="ann@example.com", query="my secret")
        await loops.evaluator.measure_grown()
        (made,) = await loops.fired()
        assert (made.channel, made.target) == ("webhook", f"http://127.0.0.1:{receiver.port}")
        done = await loops.settled(made.delivery_id, "delivered")
        assert (done.attempts, done.last_error) == (1, None)
        ((headers, body),) = receiver.seen
    told = Webhook(SECRET).verify(body, headers)
    assert told["type"] == "alert.fired"
    assert told["data"]["delivery_id"] == headers["webhook-id"] == done.delivery_id
    assert told["data"]["detail"]["measured"] == 1
    assert b"ann@example.com" not in body
    assert b"secret" not in body


async def test_a_fired_alert_arrives_by_mail_with_the_measured_value(world: OpenStore) -> None:
    with mailbox() as box:
        loops = Loops(world, box.port)
        await loops.rules(rule("denial_spike", email="ops@example.com", name="die Ausreißer"))
        await loops.denied()
        await loops.evaluator.measure_grown()
        (made,) = await loops.fired()
        assert (made.channel, made.target) == ("email", "ops@example.com")
        done = await loops.settled(made.delivery_id, "delivered")
        (message,) = box.seen
    assert (message["To"], message["From"]) == ("ops@example.com", "sluice@example.com")
    assert "die Ausreißer" in message["Subject"]
    assert done.delivery_id in message["Message-ID"]
    assert "threshold 1" in message.get_content()  # type: ignore[attr-defined]
