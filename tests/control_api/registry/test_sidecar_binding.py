"""A sidecar's key says only what its agents and its sidecars may say."""

from __future__ import annotations

from typing import Any

import pytest

from policies.definitions.model import Key
from tests.support.control_api import ControlApi

SIDECAR = {"name": "a sidecar", "scope": "sidecar"}


@pytest.mark.parametrize(
    ("agent_ids", "spoken_for", "foreign"),
    [
        (None, ["agt_a", "absent", None], []),
        (["*"], ["agt_a", None], []),
        (["agt_a"], ["agt_a"], ["agt_b", "absent", None]),
        (["agt_*", "bot-?"], ["agt_", "agt_b", "bot-1"], ["bot-12", "Agt_a", None]),
        (["agt_a", "absent"], ["agt_a", None], ["absent", "agt_b"]),
    ],
)
def test_a_key_may_act_for_exactly_its_agents(
    agent_ids: list[str] | None, spoken_for: list[str | None], foreign: list[str | None]
) -> None:
    key = Key("k", "sidecar", agent_ids=None if agent_ids is None else tuple(agent_ids))
    assert all(key.may_speak_for_agent(each) for each in spoken_for)
    assert not any(key.may_speak_for_agent(each) for each in foreign)


def test_a_key_document_without_agents_binds_nothing_and_keeps_its_bytes() -> None:
    key = Key("k", "sidecar")
    assert set(key.to_wire()) == {
        *("key_id", "scope", "bound_agent_id", "permitted_roles", "expires_at")
    }
    assert Key.from_wire(key.to_wire()) == key
    bound = Key("k", "sidecar", agent_ids=("agt_a",), sidecar_ids=("east-*",))
    assert Key.from_wire(bound.to_wire()) == bound
    assert bound.may_speak_as_sidecar("east-1")
    assert not bound.may_speak_as_sidecar("west-1")


def test_a_sidecar_s_key_needs_agents_and_other_keys_have_none(api: ControlApi) -> None:
    refused = api.call("POST", "/v1/keys", SIDECAR)
    assert refused.status == 422
    assert "agent_ids: is required" in refused.raw.decode()
    for field in ("agent_ids", "sidecar_ids"):
        body = {"name": "reader", "scope": "read", field: ["*"]}
        assert api.call("POST", "/v1/keys", body).status == 422
    for fields, agent_ids, sidecar_ids in (
        ({"agent_ids": ["agt_*"]}, ["agt_*"], None),
        ({"bound_agent_id": "agt_a"}, ["agt_a"], None),
        ({"agent_ids": ["*"], "sidecar_ids": ["east-*"]}, ["*"], ["east-*"]),
    ):
        made = api.admin("POST", "/v1/keys", {**SIDECAR, **fields})
        shown = api.admin("GET", f"/v1/keys/{made['key_id']}")
        assert (shown["agent_ids"], shown["sidecar_ids"]) == (agent_ids, sidecar_ids)


def test_the_binding_of_a_sidecar_s_key_is_changed_and_survives_a_rotation(
    api: ControlApi,
) -> None:
    made = api.admin("POST", "/v1/keys", {**SIDECAR, "agent_ids": ["agt_a"]})
    path = f"/v1/keys/{made['key_id']}"
    api.admin("PATCH", f"{path}/binding", {"agent_ids": ["agt_b"], "sidecar_ids": ["b-1"]})
    assert api.call("PATCH", f"{path}/binding", {"agent_ids": None}).status == 422
    assert api.call("PATCH", f"{path}/binding", {"agent_ids": []}).status == 422
    renewed = api.admin("POST", f"{path}/rotate")
    shown = api.admin("GET", f"/v1/keys/{renewed['key_id']}")
    assert (shown["agent_ids"], shown["sidecar_ids"]) == (["agt_b"], ["b-1"])
    api.admin("PATCH", f"/v1/keys/{renewed['key_id']}/binding", {"sidecar_ids": None})
    assert api.admin("GET", f"/v1/keys/{renewed['key_id']}")["sidecar_ids"] is None


REPORT: dict[str, Any] = {
    "run_id": "run-1",
    "version": "1.0.0",
    "epoch": "e",
    "revision": 1,
    "spool_depth": 0,
}


def report(api: ControlApi, key: str, sidecar_id: str, **fields: Any) -> int:
    body = {**REPORT, "sidecar_id": sidecar_id, **fields}
    return api.call("POST", "/v1/sidecars/report", body, key=key).status


def claim(api: ControlApi, key: str, **fields: Any) -> int:
    body = {"agent_role": "support", "user_id": "u", **fields}
    return api.call("POST", "/v1/sidecars/sessions/claim", body, key=key).status


def violations(api: ControlApi) -> list[dict[str, Any]]:
    changes = api.admin("GET", "/v1/audit/changes?object_type=key&limit=1000")
    return [each for each in changes if each["action"] == "isolation_violation"]


def test_reports_and_claims_of_another_agent_are_refused_and_seen(api: ControlApi) -> None:
    key = api.new_key("sidecar", agent_ids=["agt_a"], sidecar_ids=["a-*"])
    assert report(api, key, "a-1", agent_id="agt_a") == 200
    assert report(api, key, "a-1") == 200
    assert claim(api, key, session_id="s-own", agent_id="agt_a") == 200
    before = len(violations(api))
    assert report(api, key, "a-1", agent_id="agt_b") == 403
    assert report(api, key, "b-1", agent_id="agt_a") == 403
    assert claim(api, key, session_id="s-foreign", agent_id="agt_b") == 403
    assert claim(api, key, session_id="s-none") == 403
    assert len(violations(api)) == before + 4
    listed = {each["sidecar_id"]: each for each in api.admin("GET", "/v1/sidecars")}
    assert listed["a-1"]["agent_id"] is None
    assert "b-1" not in listed
    assert api.call("GET", "/v1/sessions/s-foreign").status == 404
    metrics = api.call("GET", "/metrics").raw.decode()
    assert 'sluice_isolation_violations_total{what="agent"}' in metrics
    assert 'sluice_isolation_violations_total{what="sidecar"}' in metrics


def test_no_key_gets_a_sidecar_that_another_agent_s_live_key_uses(api: ControlApi) -> None:
    first = api.admin("POST", "/v1/keys", {**SIDECAR, "agent_ids": ["agt_a"]})
    second = api.admin("POST", "/v1/keys", {**SIDECAR, "agent_ids": ["agt_b"]})
    assert report(api, first["key"], "pod-1") == 200
    assert report(api, first["key"], "pod-2") == 200
    assert report(api, second["key"], "pod-1") == 403
    # A key that was rotated goes on.
    renewed = api.admin("POST", f"/v1/keys/{first['key_id']}/rotate")
    assert report(api, renewed["key"], "pod-1") == 200
    # One for the same agents replaces another, also while both are live.
    third = api.admin("POST", "/v1/keys", {**SIDECAR, "agent_ids": ["agt_a"]})
    assert report(api, third["key"], "pod-1") == 200
    shown = api.admin("GET", f"/v1/keys/{third['key_id']}")
    assert shown["sidecars"] == ["pod-1"]
    assert report(api, second["key"], "pod-1") == 403
    api.admin("DELETE", f"/v1/keys/{third['key_id']}")
    assert report(api, second["key"], "pod-1") == 200
    # A key whose own patterns name a sidecar can't be locked out of it.
    named = api.new_key("sidecar", agent_ids=["agt_c"], sidecar_ids=["pod-1"])
    assert report(api, named, "pod-1") == 200
