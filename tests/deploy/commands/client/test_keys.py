"""`sluice keys create --agent --role`: a key that is bound from its first moment on."""

from __future__ import annotations

from tests.deploy.commands.client.conftest import Operator


def test_a_key_is_bound_to_its_agent_and_roles_when_it_is_created(operator: Operator) -> None:
    words = ("keys", "create", "--name", "bound", "--scope", "evaluate", "--json")
    made = operator.done(*words, "--agent", "agt_a", "--role", "support", "--role", "claims").json
    [entry] = operator.done("changes", "--json", "--limit", "1").json
    listed = operator.done("keys", "list", "--json").json
    key = next(each for each in listed if each["key_id"] == made["key_id"])
    assert (key["bound_agent_id"], key["permitted_roles"]) == ("agt_a", ["support", "claims"])
    # One entry of the log: there is no moment at which the key was not bound.
    assert (entry["action"], entry["object_id"]) == ("created", made["key_id"])
    free = operator.done(*words).json
    listed = operator.done("keys", "list", "--json").json
    key = next(each for each in listed if each["key_id"] == free["key_id"])
    assert (key["bound_agent_id"], key["permitted_roles"]) == (None, [])


def test_the_list_shows_the_agents_that_a_sidecar_s_key_speaks_for(operator: Operator) -> None:
    words = ("keys", "create", "--name", "beside", "--scope", "sidecar")
    operator.done(*words, "--for-agent", "agt_a", "--for-agent", "agt_b_*")
    heading, *rows = operator.done("keys", "list").out.splitlines()
    (row,) = (each for each in rows if each.endswith("  beside"))
    assert row[heading.index("FOR-AGENT") :].startswith("agt_a, agt_b_*  ")
