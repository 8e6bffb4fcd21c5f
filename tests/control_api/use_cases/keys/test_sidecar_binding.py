"""A sidecar's key says only what its agents and its sidecars may say."""

from __future__ import annotations

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
def test_a_key_speaks_for_its_agents(
    agent_ids: list[str] | None, spoken_for: list[str | None], foreign: list[str | None]
) -> None:
    key = Key("k", "sidecar", agent_ids=None if agent_ids is None else tuple(agent_ids))
    assert all(key.may_speak_for_agent(each) for each in spoken_for)
    assert not any(key.may_speak_for_agent(each) for each in foreign)


def test_a_document_of_before_binds_nothing_and_keeps_its_bytes() -> None:
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
