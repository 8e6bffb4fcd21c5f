"""Whom a key stands for, where a request names no agent and no role."""

import pytest

from policies.definitions.model import Agent, Key
from policies.sets.policy_set import PolicySet, agent_document, agent_name
from sidecar.unmapped import UNKNOWN, agent_of, role_of


@pytest.mark.parametrize(
    ("agent_roles", "key_roles", "role"),
    [
        (("teller",), (), "teller"),
        (("teller",), ("clerk",), "teller"),
        (("teller", "clerk"), ("clerk",), "teller"),
        (None, ("clerk",), "clerk"),
        (None, ("clerk", "teller"), None),
        (None, (), None),
    ],
)
def test_the_role_is_the_registered_agent_s_else_the_key_s(
    agent_roles: tuple[str, ...] | None, key_roles: tuple[str, ...], role: str | None
) -> None:
    documents = {}
    if agent_roles is not None:
        documents[agent_name("agt")] = agent_document(Agent("agt", "approved", agent_roles))
    key = Key("key_1", "evaluate", "agt", key_roles)
    assert agent_of(key) == "agt"
    assert role_of(key, "agt", PolicySet(documents.get), lambda _: True) == role


@pytest.mark.parametrize(("key_roles", "role"), [(("clerk",), "clerk"), ((), UNKNOWN)])
def test_the_role_of_an_agent_of_others_is_not_looked_up(
    key_roles: tuple[str, ...], role: str
) -> None:
    documents = {agent_name("agt"): agent_document(Agent("agt", "approved", ("teller",)))}
    key = Key("key_1", "evaluate", None, key_roles)
    for agent_id in ("agt", None):
        assert role_of(key, agent_id, PolicySet(documents.get), lambda _: False) == role
