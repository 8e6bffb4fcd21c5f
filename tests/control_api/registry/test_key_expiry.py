"""No key runs out unannounced: the metric, the warning, and sidecars' keys that do not expire."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until

DAY = 86_400


def seconds(api: ControlApi) -> float | None:
    """The metric's one sample, if there is one."""
    text = api.call("GET", "/metrics", key=None).raw.decode()
    assert "# TYPE sluice_key_expiry_seconds gauge" in text
    found = re.search(r"^sluice_key_expiry_seconds(\S*) (\S+)$", text, re.MULTILINE)
    assert found is None or not found[1]
    return None if found is None else float(found[2])


def made(api: ControlApi, **fields: Any) -> dict[str, Any]:
    body = {"name": "a key", "scope": "read", **fields}
    if body["scope"] == "sidecar":
        body["agent_ids"] = ["*"]
    answer: dict[str, Any] = api.admin("POST", "/v1/keys", body)
    return answer


def about(days: float) -> Any:
    return pytest.approx(days * DAY, abs=60)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "sluice.keys"]


def test_a_sidecar_s_key_has_no_expiry_unless_one_is_given(api: ControlApi) -> None:
    assert made(api, scope="sidecar")["expires_at"] is None
    assert made(api, scope="sidecar", expires_days=None)["expires_at"] is None
    limited = made(api, scope="sidecar", expires_days=30)
    assert limited["expires_at"] is not None
    rotated = api.admin("POST", f"/v1/keys/{limited['key_id']}/rotate")
    assert rotated["expires_at"] == limited["expires_at"]
    assert made(api, scope="evaluate")["expires_at"] is not None
    path = "/v1/admin/tenants/default/keys"
    asked = {"name": "provisioned", "scope": "sidecar", "agent_ids": ["*"]}
    provisioned = api.admin("POST", path, asked)
    assert provisioned["expires_at"] is None


@pytest.mark.deep(stands_in="test_the_log_warns_of_a_key_once_a_day_from_14_days_before")
def test_the_metric_is_the_next_expiry_of_any_tenant(fresh: ControlApi) -> None:
    assert seconds(fresh) is None
    made(fresh, expires_days=300)
    until("the metric shows the new expiry", lambda: seconds(fresh) == about(300))
    tenant = fresh.admin("POST", "/v1/admin/tenants", {"name": "acme"})
    path = f"/v1/admin/tenants/{tenant['tenant_id']}/keys"
    fresh.admin("POST", path, {"name": "soon", "scope": "read", "expires_days": 20})
    until("the metric shows the new expiry", lambda: seconds(fresh) == about(20))
    soonest = made(fresh, expires_days=10)
    until("the metric shows the new expiry", lambda: seconds(fresh) == about(10))
    fresh.admin("DELETE", f"/v1/keys/{soonest['key_id']}")
    until("the metric shows the new expiry", lambda: seconds(fresh) == about(20))
    # A key that has expired is not live: the next one counts.
    fresh.time.ahead = 21 * DAY
    assert seconds(fresh) == about(300 - 21)


def test_the_log_warns_of_a_key_once_a_day_from_14_days_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_control_api(tmp_path) as api:
        far = made(api, expires_days=15)
        near = made(
            api, name="loan agents", scope="evaluate", bound_agent_id="agt_loans", expires_days=13
        )
        until("it warns", lambda: warnings(caplog))
        (told,) = warnings(caplog)
        assert told == (
            f"key `{near['key_id']}` ('loan agents', scope evaluate, agent 'agt_loans') of tenant "
            "`default` expires in 13.0 days: create a new one in time"
        )
        assert near["key"] not in told
        assert seconds(api) == about(13)
        # Another look on the same day says nothing new.
        made(api, expires_days=200)
        api.time.ahead = 2 * DAY
        made(api, expires_days=201)
        until("it warns again", lambda: len(warnings(caplog)) == 2)
        assert far["key_id"] in warnings(caplog)[1]
        # One of another tenant may be the next of all.
        tenant = api.admin("POST", "/v1/admin/tenants", {"name": "acme"})
        body = {"name": "soon", "scope": "read", "expires_days": 3}
        api.admin("POST", f"/v1/admin/tenants/{tenant['tenant_id']}/keys", body)
        until("it warns of that one", lambda: len(warnings(caplog)) == 3)
        assert tenant["tenant_id"] in warnings(caplog)[2]
        assert seconds(api) == about(3)
        # Who is started anew knows of nothing that was told.
        caplog.clear()
        api.restart()
        until("it warns of all three", lambda: len(warnings(caplog)) == 3)
        assert seconds(api) == about(3)


@pytest.mark.deep(stands_in="test_the_log_warns_of_a_key_once_a_day_from_14_days_before")
def test_a_restart_warns_again_and_knows_the_expiry_at_once(
    either: ControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    near = made(either, expires_days=1)
    until("it warns", lambda: warnings(caplog))
    caplog.clear()
    either.restart()
    until("it warns", lambda: warnings(caplog))
    assert near["key_id"] in warnings(caplog)[0]
    assert seconds(either) == about(1)
