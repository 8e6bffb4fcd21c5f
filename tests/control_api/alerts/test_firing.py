"""Rules fire once per cooldown, on what is counted; what they fire arrives, signed, or says why."""

from __future__ import annotations

import json
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from control_api.alerts import channels, deliver, queries
from control_api.alerts.deliver import delete_old_deliveries
from control_api.alerts.queries import DeliveryStatus, StoredDelivery
from control_api.store.counters.counters import DAY
from control_api.store.transaction import Transaction
from tests.control_api.alerts.receiver import hook, mailbox
from tests.control_api.alerts.rounds import Rounds
from tests.control_api.audit.test_judged_records import Sidecar
from tests.support.control_api import ControlApi, running_control_api
from tests.support.open_store import TENANT, OpenStore
from tests.support.waiting import until

RULES, FIRED = "/v1/alerts/rules", "/v1/alerts/fired"
ALLOW = {"SLUICE_WEBHOOK_ALLOW": "127.0.0.0/8"}


REPORT = {"run_id": "r", "version": "1", "epoch": "e", "revision": 1, "spool_depth": 0}


def rule(api: ControlApi, rule_type: str, threshold: int, **fields: Any) -> Any:
    body = {"name": rule_type, "rule_type": rule_type, "threshold": threshold, **fields}
    return api.admin("POST", RULES, body)


def fired(api: ControlApi, rule_type: str) -> list[Any]:
    return [each for each in api.admin("GET", FIRED) if each["rule_type"] == rule_type]


def settled(api: ControlApi, rule_type: str, status: str) -> Any:
    def there() -> bool:
        return any(each["status"] == status for each in fired(api, rule_type))

    until(f"{rule_type} {status}", there)
    return next(each for each in fired(api, rule_type) if each["status"] == status)


def failing(api: ControlApi) -> Any:
    """The delivery whose first attempt failed."""

    def there() -> bool:
        return any(each["last_error"] for each in fired(api, "denial_spike"))

    until("an attempt that failed", there)
    (delivery,) = fired(api, "denial_spike")
    return delivery


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    return Rounds(monkeypatch)


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_each_type_fires_once_until_its_cooldown_is_over"
)
def test_each_type_fires_once(rounds: Rounds, either: ControlApi) -> None:
    either.approved("a1")
    either.approved("a2")
    either.evaluate(source_id="handbook")
    rounds.wait()
    rule(either, "denial_spike", 3)
    rule(either, "high_deny_rate", 50, min_events=6)
    rule(either, "isolation_violation", 1)
    rule(either, "new_source_access", 2)
    rounds.wait()  # it would fire now
    assert either.admin("GET", FIRED) == []
    either.evaluate(session_id="s", agent_id="a1", source_id="contracts")
    either.evaluate(session_id="s", agent_id="a2")
    for _ in range(4):
        either.evaluate(source_id="payroll")
    types = ("denial_spike", "high_deny_rate", "isolation_violation", "new_source_access")
    until("all four fire", lambda: all(fired(either, each) for each in types))
    for _ in range(4):
        either.evaluate(source_id="payroll")
    rounds.wait()
    for each in types:
        (only,) = fired(either, each)
        assert (only["channel"], only["status"]) == ("none", "no_destination")
        assert only["detail"]["threshold"] <= only["detail"]["measured"]
    (accesses,) = fired(either, "new_source_access")
    assert {each["source_id"] for each in accesses["detail"]["accesses"]} == {
        "handbook",
        "contracts",
    }
    either.time.ahead = 61 * 60
    for _ in range(4):
        either.evaluate(source_id="payroll")
    until("it fires again after the cooldown", lambda: len(fired(either, "denial_spike")) == 2)


@pytest.mark.deep(stands_in="test_an_isolation_rule_counts_what_a_sidecar_s_key_says_of_others")
def test_a_sidecar_key_that_names_a_foreign_agent_or_sidecar_fires_isolation_rules(
    rounds: Rounds, fresh: ControlApi
) -> None:
    fresh.approved("agt_a")
    fresh.approved("agt_b")
    thief, other = Sidecar(fresh, "agt_a"), Sidecar(fresh, "agt_b")
    assert (thief.sent([thief.decided()]), other.sent([other.decided()])) == ([], [])
    foreign = foreign_calls(thief, other)
    for count in range(1, len(foreign) + 2):
        rule(fresh, "isolation_violation", count)
    rounds.wait()
    assert fired(fresh, "isolation_violation") == []

    def all_fire(count: int) -> bool:
        return len(fired(fresh, "isolation_violation")) == count

    for count, (path, body) in enumerate(foreign, 1):
        assert fresh.call("POST", f"/v1/sidecars/{path}", body, key=thief.key).status == 403
        until(f"the {path} counts", partial(all_fire, count))
    assert thief.sent([thief.decided(agent_id="agt_b")]) == [(1, "foreign_agent")]
    until("the record counts", partial(all_fire, len(foreign) + 1))


def foreign_calls(thief: Sidecar, other: Sidecar) -> list[tuple[str, dict[str, Any]]]:
    """By the thief's key, about the other one."""
    claim = {"session_id": "s", "agent_role": "support", "agent_id": "agt_b", "user_id": "u"}
    return [
        ("report", {**REPORT, "sidecar_id": thief.name, "agent_id": "agt_b"}),
        ("sessions/claim", claim),
        ("events", {"source": other.name, "instance": "i1", "records": []}),
    ]


def test_an_isolation_rule_counts_what_a_sidecar_s_key_says_of_others(tenant: ControlApi) -> None:
    tenant.approved("agt_a")
    tenant.approved("agt_b")
    thief, other = Sidecar(tenant, "agt_a"), Sidecar(tenant, "agt_b")
    assert (thief.sent([thief.decided()]), other.sent([other.decided()])) == ([], [])
    for path, body in foreign_calls(thief, other):
        assert tenant.call("POST", f"/v1/sidecars/{path}", body, key=thief.key).status == 403
    assert thief.sent([thief.decided(agent_id="agt_b")]) == [(1, "foreign_agent")]
    rule(tenant, "isolation_violation", 4)
    until("the rule fires", lambda: fired(tenant, "isolation_violation"))
    (delivery,) = fired(tenant, "isolation_violation")
    assert delivery["detail"]["measured"] == 4


def test_old_events_are_not_in_the_window(fresh: ControlApi) -> None:
    for _ in range(5):
        fresh.evaluate(source_id="payroll")
    fresh.time.ahead = 3 * 60
    rule(fresh, "denial_spike", 5, window_minutes=2)
    rule(fresh, "high_deny_rate", 1, min_events=1)
    fresh.evaluate(source_id="payroll")
    until("the rules are looked at", lambda: fired(fresh, "high_deny_rate"))
    assert fired(fresh, "denial_spike") == []


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_each_type_fires_once_until_its_cooldown_is_over"
)
def test_a_disabled_rule_does_not_fire(fresh: ControlApi) -> None:
    made = rule(fresh, "denial_spike", 1, enabled=False)
    rule(fresh, "high_deny_rate", 1, min_events=1)
    fresh.evaluate(source_id="payroll")
    until("the rules are looked at", lambda: fired(fresh, "high_deny_rate"))
    assert fired(fresh, "denial_spike") == []
    body = {"rule_type": "denial_spike", "enabled": True}
    fresh.admin("PUT", f"{RULES}/{made['rule_id']}", body)
    fresh.evaluate(source_id="payroll")
    until("it fires once it is enabled", lambda: fired(fresh, "denial_spike"))


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_a_fired_alert_arrives_signed_and_names_no_user"
)
def test_a_webhook_is_signed_and_names_no_user(tmp_path: Path) -> None:
    with hook() as receiver, running_control_api(tmp_path, **ALLOW) as api:
        made = rule(api, "denial_spike", 1, webhook_url=receiver.url)
        api.evaluate(source_id="payroll", user_id="ann@example.com", query="my secret")
        done = settled(api, "denial_spike", "delivered")
        assert (done["attempts"], done["last_error"]) == (1, None)
        assert done["target"] == f"http://127.0.0.1:{receiver.port}"
        ((headers, body),) = receiver.seen
        told = Webhook(made["webhook_secret"]).verify(body, headers)
        assert told["type"] == "alert.fired"
        assert told["data"]["delivery_id"] == headers["webhook-id"] == done["delivery_id"]
        assert told["data"]["detail"]["measured"] == 1
        assert b"ann@example.com" not in body
        assert b"secret" not in body
        assert "secret-token" not in json.dumps(api.admin("GET", FIRED))


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_a_failed_delivery_is_repeated_under_its_id_for_a_day_unless_it_is_final"
)
def test_a_failed_attempt_is_repeated_under_the_same_id_across_a_restart(tmp_path: Path) -> None:
    with hook() as receiver, running_control_api(tmp_path, **ALLOW) as api:
        receiver.status = 503
        rule(api, "denial_spike", 1, webhook_url=receiver.url)
        api.evaluate(source_id="payroll")
        until("a first attempt", lambda: receiver.seen)
        pending = failing(api)
        assert pending["status"] == "pending"
        assert pending["last_error"] == "answered 503"
        assert pending["next_attempt_at"] > pending["fired_at"]
        api.restart()
        receiver.status = 204
        api.time.ahead = 3600
        done = settled(api, "denial_spike", "delivered")
        assert done["attempts"] >= 2
        assert len({headers["webhook-id"] for headers, _ in receiver.seen}) == 1


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_a_failed_delivery_is_repeated_under_its_id_for_a_day_unless_it_is_final"
)
def test_attempts_end_after_a_day(tmp_path: Path) -> None:
    with hook() as receiver, running_control_api(tmp_path, **ALLOW) as api:
        receiver.status = 500
        rule(api, "denial_spike", 1, webhook_url=receiver.url)
        api.evaluate(source_id="payroll")
        until("a first attempt", lambda: receiver.seen)
        api.time.ahead = 25 * 3600
        failed = settled(api, "denial_spike", "failed")
        assert failed["next_attempt_at"] is None


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_a_failed_delivery_is_repeated_under_its_id_for_a_day_unless_it_is_final"
)
@pytest.mark.parametrize(("status", "ends"), [(410, "failed"), (302, "pending")])
def test_status_gone_is_final_and_a_redirect_is_never_followed(
    tmp_path: Path, status: int, ends: str
) -> None:
    with hook() as receiver, hook() as elsewhere, running_control_api(tmp_path, **ALLOW) as api:
        receiver.status = status
        receiver.headers = {"Location": elsewhere.url}
        rule(api, "denial_spike", 1, webhook_url=receiver.url)
        api.evaluate(source_id="payroll")
        delivery = failing(api)
        assert delivery["status"] == ends
        assert str(status) in delivery["last_error"]
        assert elsewhere.seen == []


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_any_number_of_deliveries_to_a_hanging_receiver_delays_no_other"
)
def test_a_receiver_that_hangs_delays_nothing_else(tmp_path: Path) -> None:
    with hook() as hanging, hook() as well, running_control_api(tmp_path, **ALLOW) as api:
        hanging.hang = True
        for number in range(8):
            rule(api, "denial_spike", 1, name=f"h{number}", webhook_url=hanging.url)
        rule(api, "high_deny_rate", 1, min_events=1, webhook_url=well.url)
        api.evaluate(source_id="payroll")
        settled(api, "high_deny_rate", "delivered")
        assert len(hanging.seen) <= 2
        assert api.evaluate()["decision"] == "ALLOW"
        assert len(hanging.seen) <= 2, "it waited until the first attempts were given up"


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_any_number_of_deliveries_to_a_hanging_receiver_delays_no_other"
)
def test_any_number_of_deliveries_to_a_receiver_that_hangs_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "MAX_ATTEMPTS", 3)  # 12 are read at a time
    with hook() as hanging, hook() as well, running_control_api(tmp_path, **ALLOW) as api:
        hanging.hang = True
        for number in range(20):
            rule(api, "denial_spike", 1, name=f"h{number}", webhook_url=hanging.url)
        api.evaluate(source_id="payroll")
        until("two attempts that hang", lambda: len(hanging.seen) == 2)
        rule(api, "high_deny_rate", 1, min_events=1, webhook_url=well.url)
        api.evaluate(source_id="payroll")
        settled(api, "high_deny_rate", "delivered")
        assert len(hanging.seen) == 2


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_one_attempt.py::test_an_address_that_is_not_public_is_not_called"
)
def test_a_private_address_is_refused_when_it_is_called(tmp_path: Path) -> None:
    with hook() as receiver, running_control_api(tmp_path) as api:
        url = f"http://localhost:{receiver.port}/"
        rule(api, "denial_spike", 1, webhook_url=url)
        api.evaluate(source_id="payroll")
        assert "not public" in failing(api)["last_error"]
        assert receiver.seen == []


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_one_attempt.py::test_a_name_is_resolved_once_an_attempt"
)
def test_a_name_that_resolves_differently_after_the_check_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the second answer leads inside."""
    asked: list[str] = []

    async def rebinding(host: str, port: int, family: Any) -> Any:
        asked.append(host)
        inside = len(asked) > 1
        return [(socket.AF_INET, 6, "127.0.0.1" if inside else "192.0.2.7")]

    monkeypatch.setattr(channels, "lookup", rebinding)
    monkeypatch.setattr(channels, "CONNECT_SECONDS", 0.5)
    allow = {"SLUICE_WEBHOOK_ALLOW": "192.0.2.0/24"}
    with hook() as receiver, running_control_api(tmp_path, **allow) as api:
        url = f"http://rebinding.example:{receiver.port}/"
        rule(api, "denial_spike", 1, webhook_url=url)
        api.evaluate(source_id="payroll")
        failing(api)
        assert asked == ["rebinding.example"], "resolved once for each attempt"
        assert receiver.seen == []


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_a_fired_alert_arrives_by_mail_with_the_measured_value"
)
def test_mail_arrives_and_says_what_was_measured(tmp_path: Path) -> None:
    with mailbox() as box:
        mail = {
            "SLUICE_SMTP_URL": f"smtp://127.0.0.1:{box.port}",
            "SLUICE_SMTP_FROM": "sluice@example.com",
        }
        with running_control_api(tmp_path, **mail) as api:
            rule(api, "denial_spike", 1, email="ops@example.com", name="die Ausreißer")
            api.evaluate(source_id="payroll")
            done = settled(api, "denial_spike", "delivered")
            assert (done["channel"], done["target"]) == ("email", "ops@example.com")
            (message,) = box.seen
            assert message["To"] == "ops@example.com"
            assert message["From"] == "sluice@example.com"
            assert "die Ausreißer" in message["Subject"]
            assert done["delivery_id"] in message["Message-ID"]
            assert "threshold 1" in message.get_content()  # type: ignore[attr-defined]


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_a_mail_that_is_refused_for_good_is_not_repeated"
)
@pytest.mark.parametrize(("reply", "status"), [("554 no", "failed"), ("451 later", "pending")])
def test_a_permanent_refusal_by_the_mail_server_is_final(
    tmp_path: Path, reply: str, status: str
) -> None:
    with mailbox() as box:
        box.reply = reply
        mail = {
            "SLUICE_SMTP_URL": f"smtp://127.0.0.1:{box.port}",
            "SLUICE_SMTP_FROM": "sluice@example.com",
        }
        with running_control_api(tmp_path, **mail) as api:
            rule(api, "denial_spike", 1, email="ops@example.com")
            api.evaluate(source_id="payroll")
            delivery = failing(api)
            assert (delivery["status"], delivery["last_error"]) == (
                status,
                f"the mail server answered {reply[:3]}",
            )


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_a_mail_that_is_refused_for_good_is_not_repeated"
)
def test_a_delivery_without_a_mail_server_fails_and_names_the_setting(fresh: ControlApi) -> None:
    rule(fresh, "denial_spike", 1, email="ops@example.com")
    fresh.evaluate(source_id="payroll")
    failed = settled(fresh, "denial_spike", "failed")
    assert "SLUICE_SMTP_URL" in failed["last_error"]


@pytest.mark.deep(
    stands_in="tests/control_api/alerts/test_rounds.py::test_only_one_of_two_processes_fires_and_only_one_attempts"
)
def test_two_processes_fire_once(rounds: Rounds, tmp_path: Path, migrated_url: str) -> None:
    with (
        hook() as receiver,
        running_control_api(tmp_path, database_url=migrated_url, **ALLOW) as one,
    ):
        other = ControlApi(tmp_path, policies=None, database_url=migrated_url, **ALLOW).start()
        try:
            for number in range(10):
                rule(one, "denial_spike", 1, name=str(number), webhook_url=receiver.url)
            one.evaluate(source_id="payroll")
            until("all arrive", lambda: len(receiver.seen) >= 10)
            rounds.wait(apis=2)  # a second delivery would come now
            deliveries = fired(one, "denial_spike")
            assert len(deliveries) == 10
            assert len({headers["webhook-id"] for headers, _ in receiver.seen}) == 10
            assert len(receiver.seen) == 10
        finally:
            other.stop()


async def test_only_deliveries_settled_ninety_days_ago_are_deleted(world: OpenStore) -> None:
    now = world.now()
    ages: list[tuple[int, DeliveryStatus]] = [(91, "delivered")] * 600
    rows = [
        StoredDelivery(
            delivery_id=f"dlv_{number}",
            rule_id="alr_1",
            rule_name="r",
            rule_type="denial_spike",
            fired_at=now - age * DAY,
            detail={},
            channel="none",
            target=None,
            address=None,
            secret=None,
            status=status,
            attempts=0,
            last_error=None,
            next_attempt_at=now if status == "pending" else None,
        )
        for number, (age, status) in enumerate([*ages, (91, "pending"), (89, "failed")])
    ]

    async def fill(tx: Transaction) -> None:
        await queries.add_deliveries(tx.connection, TENANT, rows)

    await world.store.write(TENANT, fill)
    assert await delete_old_deliveries(world.store, TENANT) == 600
    async with world.store.reading(TENANT) as connection:
        left = await queries.page_of_deliveries(connection, TENANT, None, 10)
    assert sorted(each.delivery_id for each in left) == ["dlv_600", "dlv_601"]
