"""`POST /v1/context/simulate`: the same answer as an evaluation, and no trace of it."""

from __future__ import annotations

from tests.support.control_api import ControlApi, asked


def test_a_simulation_leaves_nothing(either: ControlApi) -> None:
    reader = either.new_key("read")
    before = either.verified()["total"]
    body = asked(session_id="never", source_id="payroll")
    answer = either.call("POST", "/v1/context/simulate", body, key=reader).body
    assert list(answer) == ["decision", "policy_name", "reason", "event_id"]
    assert (answer["decision"], answer["event_id"]) == ("DENY", None)
    explained = either.call("POST", "/v1/context/simulate?explain=true", body, key=reader).body
    assert explained["explain"]["nearest_miss"]["check"] == "source"
    assert explained["event_id"] is None
    assert either.verified()["total"] == before
    assert either.call("GET", "/v1/sessions/never").status == 404
    either.evaluate(session_id="s")
    either.admin("DELETE", "/v1/sessions/s")
    answer = either.call("POST", "/v1/context/simulate", asked(session_id="s"), key=reader).body
    assert answer["policy_name"] == "session_revoked"
