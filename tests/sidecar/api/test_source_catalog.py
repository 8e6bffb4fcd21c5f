"""The list of what an agent may read: as decided, for its own role, without a record."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.definitions.model import Agent, Key, Policy
from policies.definitions.wildcard import matcher, may_begin
from policies.ground.addresses import ListenAddress
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    key_document,
    key_name,
    role_document,
    role_name,
)
from sidecar.settings.model import Defaults, NamedSource, RestRule, Source
from tests.support.fake_control_api import (
    AGENT,
    EVALUATE_KEY,
    READ_KEY,
    FakeControlApi,
    fake_control_api,
    policy,
)
from tests.support.sidecar import RunningSidecar, running_sidecar

SOURCES = "/v1/sources"


OTHER_KEY = make_key(b"o" * 32)


ADMIN_KEY = make_key(b"a" * 32)


KB = Source(
    alias="kb",
    kind="chroma",
    upstream="http://127.0.0.1:9",
    listen=ListenAddress("127.0.0.1", 0),
    sensitivity="medium",
    names={
        "chroma://kb/t/d/contracts": NamedSource("contracts", "high"),
        "chroma://kb/t/d/payroll": NamedSource("payroll", "medium"),
        "chroma://kb/t/d/board": NamedSource("contracts-board", "critical"),
    },
)


CRM = Source(
    alias="crm",
    kind="rest",
    upstream="http://127.0.0.1:9",
    listen=ListenAddress("127.0.0.1", 0),
    sensitivity="low",
    routes=(
        RestRule("GET", "/rates", "retrieve", "rates", "high"),
        RestRule("GET", "/customers/{id}", "retrieve", "customers-{id}"),
        RestRule("GET", "/keys", "deny", "keys"),
    ),
)


def reading(**changes: Any) -> Policy:
    return policy(
        allowed_sources=("contracts*", "rates", "rest://crm/open/*", "wiki"),
        denied_sources=("payroll", "customers-9*", "*/private"),
        **changes,
    )


def give_key(control: FakeControlApi, key: str, document: Key) -> None:
    control.publish({key_name(key_digest(key)): key_document(document)})


async def told(running: RunningSidecar, key: str = EVALUATE_KEY, query: str = "") -> dict[str, Any]:
    answer = await running.call("GET", SOURCES + query, key=key)
    assert answer.status == 200, answer.text()
    return dict(answer.json())


def judged(item: dict[str, Any]) -> dict[str, bool]:
    return {each["source_id"]: each["allowed"] for each in item["sources"]}


async def test_the_agent_sees_its_sources_and_their_highest_level(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading())
        async with running_sidecar(tmp_path, control, sources=(KB, CRM)) as running:
            answer = await told(running)
            assert (answer["agent_id"], answer["agent_role"]) == (AGENT, "underwriter")
            kb, crm = answer["items"]
            assert (kb["alias"], kb["kind"], kb["sensitivity"]) == ("kb", "chroma", "medium")
            assert kb["mode"] == "enforce"
            assert (kb["listen"], kb["grpc_listen"]) == ("127.0.0.1:0", None)
            assert judged(kb) == {
                "chroma://kb": False,
                "contracts": True,
                "payroll": False,
                "contracts-board": False,  # the name is allowed, its level is not
            }
            assert kb["patterns"] == {"allowed": ["contracts*"], "denied": ["*/private", "payroll"]}
            assert kb["max_sensitivity"] == "high"
            # A denied route, or a template, is not listed.
            assert judged(crm) == {"rest://crm": False, "rates": True}
            assert crm["patterns"] == {
                "allowed": ["rates", "rest://crm/open/*"],
                "denied": ["*/private", "customers-9*"],
            }


async def test_the_list_agrees_with_decisions(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading())
        async with running_sidecar(tmp_path, control, sources=(KB, CRM)) as running:
            for item in (await told(running))["items"]:
                for each in item["sources"]:
                    answer = await running.evaluate(
                        source_id=each["source_id"], sensitivity_level=each["sensitivity"]
                    )
                    assert (answer["decision"] == "ALLOW") == each["allowed"]


async def test_listing_sources_records_nothing(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading())
        async with running_sidecar(tmp_path, control, sources=(KB,)) as running:
            await told(running)
            assert await running.records() == []
            sample = 'sluice_requests_total{operation="list_sources",status="200"}'
            assert await running.metric(sample) == 1


async def test_policies_of_other_roles_and_agents_are_not_listed(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        foreign = policy(
            policy_id="pol_2",
            name="auditing",
            allowed_sources=("contracts-secret",),
            denied_sources=("contracts-shut",),
            max_sensitivity="critical",
            permitted_agent_ids=("agt_audit",),
        )
        control.create_tenant(reading(), foreign)
        teller = policy(agent_role="teller", name="t", allowed_sources=("contracts-till",))
        control.publish({role_name("teller"): role_document((teller,))})
        give_key(control, OTHER_KEY, Key("key_o", "evaluate"))
        async with running_sidecar(tmp_path, control, sources=(KB,)) as running:
            [kb] = (await told(running))["items"]
            assert kb["patterns"]["allowed"] == ["contracts*"]
            assert kb["max_sensitivity"] == "high"
            for key, query in (
                (EVALUATE_KEY, "?agent_role=teller"),
                (ADMIN_KEY, ""),  # an unknown key
                (READ_KEY, ""),
                (OTHER_KEY, ""),  # bound to no role
                (OTHER_KEY, "?agent_role=teller"),
            ):
                answer = await running.call("GET", SOURCES + query, key=key)
                assert answer.status == 403, query
                assert "contracts" not in answer.text()
            assert (await running.call("GET", SOURCES, key=None)).status == 401
            assert (await running.call("POST", SOURCES, b"{}")).status == 405


async def test_another_key_sees_the_role_that_it_is_bound_to(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading())
        teller = policy(agent_role="teller", allowed_sources=("payroll",), denied_sources=())
        control.publish({role_name("teller"): role_document((teller,))})
        give_key(control, OTHER_KEY, Key("key_o", "evaluate", permitted_roles=("teller",)))
        async with running_sidecar(tmp_path, control, sources=(KB,)) as running:
            answer = await told(running, OTHER_KEY)
            assert (answer["agent_id"], answer["agent_role"]) == (None, "teller")
            [kb] = answer["items"]
            assert [name for name, allowed in judged(kb).items() if allowed] == ["payroll"]
            assert kb["patterns"] == {"allowed": ["payroll"], "denied": []}


async def test_a_key_with_several_roles_must_name_one(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading())
        roles = ("teller", "underwriter")
        control.publish(
            {agent_name("agt_two"): agent_document(Agent("agt_two", "approved", roles))}
        )
        give_key(control, OTHER_KEY, Key("key_o", "evaluate", bound_agent_id="agt_two"))
        async with running_sidecar(tmp_path, control, sources=(KB,)) as running:
            assert (await running.call("GET", SOURCES, key=OTHER_KEY)).status == 422
            answer = await told(running, OTHER_KEY, "?agent_role=underwriter")
            assert judged(answer["items"][0])["contracts"]
            answer = await told(running, OTHER_KEY, "?agent_role=teller")
            assert not any(judged(answer["items"][0]).values())
            for query in ("?agent_role=root", "?agent_role=teller&agent_role=underwriter"):
                answer_of = await running.call("GET", SOURCES + query, key=OTHER_KEY)
                assert answer_of.status in (403, 422)


async def test_an_administrator_sees_what_the_agent_would_see(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading())
        give_key(control, ADMIN_KEY, Key("key_a", "admin"))
        async with running_sidecar(tmp_path, control, sources=(KB, CRM)) as running:
            assert await told(running, ADMIN_KEY) == await told(running)
            # Without the agent's key, nothing may be read through the sources.
            control.publish({key_name(key_digest(EVALUATE_KEY)): None})
            await running.follows(control.revision)
            items = (await told(running, ADMIN_KEY))["items"]
            assert not any(allowed for item in items for allowed in judged(item).values())
            assert all(item["patterns"] == {"allowed": [], "denied": []} for item in items)


async def test_an_agent_that_is_no_longer_approved_sees_nothing(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading())
        async with running_sidecar(tmp_path, control, sources=(KB,)) as running:
            entry = Agent(AGENT, "deprecated", ("underwriter",))
            control.publish({agent_name(AGENT): agent_document(entry)})
            await running.follows(control.revision)
            [kb] = (await told(running))["items"]
            assert not any(judged(kb).values())
            assert kb["patterns"] == {"allowed": [], "denied": []}
            assert kb["max_sensitivity"] is None


async def test_the_default_task_of_a_source_counts(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading(allowed_tasks=("review",)))
        source = replace(KB, defaults=Defaults(task="chat"))
        async with running_sidecar(tmp_path, control, sources=(source,)) as running:
            assert not any(judged((await told(running))["items"][0]).values())


async def test_a_stale_policy_set_lists_nothing(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading())
        async with running_sidecar(tmp_path, control, sources=(KB,)) as running:
            await control.stop()
            running.clock.ahead = 31
            answer = await running.call("GET", SOURCES)
            assert answer.status == 503
            assert "the limit is 30 s" in answer.json()["message"]


async def test_a_sidecar_without_sources_lists_none(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(reading())
        async with running_sidecar(tmp_path, control) as running:
            assert (await told(running))["items"] == []


@pytest.mark.parametrize(
    ("pattern", "prefix", "begins"),
    [
        ("a", "a", True),
        ("abc", "a", True),
        ("a", "ab", False),
        ("b", "a", False),
        ("*", "a", True),
        ("a*", "abc", True),
        ("a*z", "abc", True),
        ("b*", "abc", False),
        ("?bc", "abc", True),
        ("??", "abc", False),
        ("a?c*", "abcd", True),
        ("a?c*", "abxd", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_a_pattern_may_match_names_with_a_prefix(pattern: str, prefix: str, begins: bool) -> None:
    assert may_begin(pattern, prefix) is begins


def test_every_match_may_begin_with_its_prefix() -> None:
    letters = ["", "a", "b", "ab", "ba", "aab", "abb", "bab"]
    patterns = ["a", "a*", "*b", "?b", "a?b", "*a*", "b*b", "??*", "*"]
    for pattern in patterns:
        for name in filter(matcher([pattern]), letters):
            assert all(may_begin(pattern, name[:end]) for end in range(len(name) + 1))
