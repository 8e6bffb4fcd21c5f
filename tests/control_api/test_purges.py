"""What is too old goes, in a whole service, which does it by itself, and by the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from control_api import purge
from tests.support.command import Command, command
from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until

__all__ = ["command"]  # a fixture
DAY = 86_400.0
SETTINGS = "/v1/settings/retention"


def test_the_service_purges_old_sessions_and_old_events_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by its own setting; and what has ended does not begin anew."""
    monkeypatch.setattr(purge, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(purge, "INTERVAL_SECONDS", 0.1)
    with running_control_api(tmp_path) as api:
        for name in ("s-expired", "s-revoked"):
            assert api.evaluate(session_id=name)["decision"] == "ALLOW"
        api.admin("DELETE", "/v1/sessions/s-revoked?reason=left")
        api.admin("PUT", SETTINGS, {"session_retention_days": 2})
        api.time.ahead += 4 * DAY
        young = [api.evaluate(session_id="s-young")["event_id"]]

        def listed() -> list[str]:
            return [each["session_id"] for each in api.admin("GET", "/v1/sessions")]

        until("the old sessions are purged", lambda: listed() == ["s-young"])
        assert len(api.events()) == 3
        for name, why in (("s-expired", "session_expired"), ("s-revoked", "session_revoked")):
            assert api.call("GET", f"/v1/sessions/{name}").status == 404
            answer = api.evaluate(session_id=name, user_id="bob")
            assert answer["policy_name"] == why
            young.append(answer["event_id"])
        api.admin("PUT", SETTINGS, {"retention_days": 1})
        until(
            "the old events are purged",
            lambda: [each["event_id"] for each in api.events()] == young[::-1],
        )
        assert listed() == ["s-young"]
        assert api.verified()["anchor"] == api.admin("GET", "/v1/audit/retention")["anchor"]


def test_the_command_purges_old_data_and_exits_by_its_result(
    command: Command, tmp_path: Path
) -> None:
    """Beside a service that was first started ten days ago: the command has the real clock."""
    api = ControlApi(tmp_path)
    api.time.ahead = -10 * DAY
    api.start()
    try:
        for _ in range(5):
            api.evaluate()
        assert "default: 0 entries and 0 sessions removed; nothing was" in command("purge")[1]
        api.admin("PUT", SETTINGS, {"retention_days": 1})
        api.time.ahead = 0
        young = api.evaluate()["event_id"]
        code, said = command("purge", "--tenant", "default")
        assert code == 0
        anchor = api.admin("GET", "/v1/audit/retention")["anchor"]
        assert f"default: {anchor['purged_count']} entries and 0 sessions removed" in said
        assert anchor["root_hash"] in said
        assert [each["event_id"] for each in api.events()] == [young]
        api.evaluate()
        api.verified()
    finally:
        api.stop()
    code, said = command("purge", "--tenant", "nobody")
    assert (code, "no such tenant: `nobody`" in said) == (2, True), said
    (tmp_path / "data" / "log.key").unlink()
    code, said = command("purge")
    assert (code, "log.key" in said) == (1, True), said
