"""Erasure and legal holds over the API: the value is in no byte of what the service stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from control_api.log import erasure
from control_api.log.scheduled import loop
from control_api.store.schema.tables import metadata
from tests.support.control_api import ControlApi
from tests.support.open_store import sql
from tests.support.waiting import until

SEED = "seeded-93c1-person"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "GATHER_SECONDS", 0.05)
    monkeypatch.setattr(erasure, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(loop, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(loop, "INTERVAL_SECONDS", 0.2)


def found_in(directory: Path) -> list[str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return [path.name for path in files if SEED.encode() in path.read_bytes()]


async def dumped(url: str) -> list[str]:
    """The tables whose rows, as a dump writes them, hold the value."""
    found = []
    for name in metadata.tables:
        rows = await sql(url, f"SELECT {name}::text AS row FROM {name}")
        values = (SEED, SEED.encode().hex())
        found += [name for row in rows if any(value in row.row for value in values)]
    return found


def used(api: ControlApi) -> dict[str, Any]:
    """An event, its lineage, and a session of the person."""
    event: dict[str, Any] = api.evaluate(user_id=SEED, query=f"of {SEED}", session_id="s-1")
    detail = {"event_id": event["event_id"], "action_type": "sent", "detail": {"to": SEED}}
    api.admin("POST", "/v1/audit/lineage", detail)
    return event


@pytest.mark.deep(
    stands_in="tests/stories/test_erasure.py::test_an_erased_value_is_in_no_byte_of_an_installation"
)
async def test_an_erased_value_is_in_no_byte_of_the_database(either: ControlApi) -> None:
    url = either.settings.database_url
    event = used(either)
    sqlite = url.startswith("sqlite")
    data = either.directory / "data"
    assert found_in(data) if sqlite else await dumped(url)
    body = {"user_id": SEED, "reason": "erasure request 1"}
    answer = either.admin("POST", "/v1/audit/redact", body)
    assert (answer["redacted"], answer["sessions"], answer["more"]) == (2, 1, False)
    if sqlite:
        until("the WAL is folded", lambda: found_in(data) == [])
    else:
        assert await dumped(url) == []
        assert found_in(data) == []
    either.verified()
    [listed] = either.admin("GET", "/v1/audit/redactions")
    assert (listed["seq"], listed["reason"]) == (answer["seq"], "erasure request 1")
    shown = either.admin("GET", f"/v1/audit/lineage/{event['event_id']}")
    assert (shown["event"]["user_id"], shown["event"]["query"]) == (None, None)
    assert shown["actions"][0]["detail"] is None
    again = either.admin("POST", "/v1/audit/redact", body)
    assert (again["redacted"], again["seq"]) == (0, None)


def test_held_values_are_not_erased_until_the_hold_is_released(api: ControlApi) -> None:
    api.evaluate(user_id="held-person", session_id="s-held")
    hold = api.admin(
        "POST",
        "/v1/audit/holds",
        {"object_type": "session", "object_id": "s-held", "reason": "litigation"},
    )
    assert api.admin("GET", "/v1/audit/retention")["held_from"] is not None
    assert len(api.admin("GET", "/v1/audit/holds?active=true")) == 1
    wanted = {"user_id": "held-person", "reason": "asked to"}
    refused = api.call("POST", "/v1/audit/redact", wanted)
    assert refused.status == 409
    assert hold["hold_id"] in refused.body["message"]
    assert "held-person" not in refused.body["message"]
    api.admin("POST", f"/v1/audit/holds/{hold['hold_id']}/release", {"reason": "settled"})
    assert api.admin("GET", "/v1/audit/retention")["held_from"] is None
    assert api.admin("GET", "/v1/audit/holds?active=true") == []
    assert api.admin("POST", "/v1/audit/redact", wanted)["redacted"] == 1


@pytest.mark.deep(stands_in="test_held_values_are_not_erased_until_the_hold_is_released")
def test_a_held_session_is_kept_until_its_release(fresh: ControlApi) -> None:
    used(fresh)
    asked = {"object_type": "session", "object_id": "s-1", "reason": "litigation"}
    hold = fresh.admin("POST", "/v1/audit/holds", asked)
    assert fresh.admin("GET", "/v1/audit/retention")["held_from"] is not None
    refused = fresh.call("POST", "/v1/audit/redact", {"user_id": SEED, "reason": "r"})
    assert refused.status == 409
    assert hold["hold_id"] in refused.body["message"]
    assert SEED not in refused.body["message"]
    released = fresh.admin(
        "POST", f"/v1/audit/holds/{hold['hold_id']}/release", {"reason": "settled"}
    )
    assert released["released_at"]
    assert fresh.admin("GET", "/v1/audit/holds?active=true") == []
    assert fresh.admin("GET", "/v1/audit/retention")["held_from"] is None
    assert fresh.admin("POST", "/v1/audit/redact", {"user_id": SEED, "reason": "r"})["redacted"]


@pytest.mark.deep(
    stands_in="tests/control_api/audit/test_changes.py::test_the_digests_of_a_hold_reveal_nothing_of_a_user"
)
def test_the_user_of_a_hold_is_not_in_the_log(fresh: ControlApi) -> None:
    asked = {"object_type": "user", "object_id": SEED, "reason": "litigation"}
    hold = fresh.admin("POST", "/v1/audit/holds", asked)
    fresh.admin("POST", f"/v1/audit/holds/{hold['hold_id']}/release", {"reason": "settled"})
    fresh.admin("POST", "/v1/audit/redact", {"user_id": SEED, "reason": "r"})
    data = fresh.directory / "data"
    until("the WAL is folded", lambda: found_in(data) == [])
    fresh.verified()


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "r"},
        {"reason": "r", "user_id": "u", "session_id": "s"},
        {"reason": "", "user_id": "u"},
        {"user_id": "u"},
        {"reason": "r", "event_ids": []},
    ],
)
def test_exactly_one_target_and_a_reason_are_required(api: ControlApi, body: Any) -> None:
    assert api.call("POST", "/v1/audit/redact", body).status == 422


async def test_readiness_shows_that_a_log_is_damaged(fresh: ControlApi) -> None:
    def state() -> Any:
        answer = fresh.call("GET", "/health/ready", key=None)
        assert answer.status == 200
        return answer.body["self_verification"]["state"]

    until("the first verification", lambda: state() == "valid")
    used(fresh)
    [row] = await sql(fresh.settings.database_url, "SELECT max(seq) AS seq FROM openings")
    values = {"seq": row.seq}
    [kept] = await sql(
        fresh.settings.database_url, "SELECT * FROM openings WHERE seq = :seq", **values
    )
    await sql(fresh.settings.database_url, "DELETE FROM openings WHERE seq = :seq", **values)
    fresh.time.ahead += 86_400  # a new round
    until("the loss is found", lambda: state() == "damaged")
    metrics = fresh.call("GET", "/metrics", key=None).raw.decode()
    assert "sluice_self_verification_findings 1.0" in metrics
    await sql(
        fresh.settings.database_url,
        "INSERT INTO openings (tenant_id, seq, user_id, openings) VALUES (:t, :seq, :u, :o)",
        t=kept.tenant_id,
        u=kept.user_id,
        o=bytes(kept.openings),
        **values,
    )
    until("the repair is noticed", lambda: state() == "valid")
