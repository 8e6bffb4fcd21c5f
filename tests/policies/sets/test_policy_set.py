"""The policy set: documents in, compiled objects out, and no more cached than is used."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import policies as policies_package
from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.ground.canonical import check, encode
from policies.sets.policy_set import (
    PolicySet,
    agent_document,
    agent_name,
    document_digest,
    key_document,
    key_name,
    role_document,
    role_name,
    tenant_document,
)
from policies.sets.role import compile_role
from tests.policies.strategies import IDENTIFIERS, KEYS, policies
from tests.policies.world import POLICY, START

SETTINGS = TenantSettings("t", require_agent_id=True, session_ttl_minutes=5, pii_masking=True)


class Store:
    """Documents, and how often each was fetched."""

    def __init__(self, **documents: bytes) -> None:
        self.documents = documents
        self.fetched: Counter[str] = Counter()

    def __call__(self, name: str) -> bytes | None:
        self.fetched[name] += 1
        return self.documents.get(name)


@given(policies("analyst"))
def test_policies_are_unchanged_by_writing_and_reading(found: list[Policy]) -> None:
    document = role_document(found)
    if document is None:
        assert found == []
        return
    assert [Policy.from_wire(wire) for wire in orjson.loads(document)] == sorted(
        found, key=lambda policy: policy.name
    )
    check(orjson.loads(document))
    role = PolicySet({"role/analyst": document}.get).role("analyst")
    assert role is not None
    assert role.digest == document_digest(document) == compile_role("analyst", found).digest
    limits = [each.session_ttl_minutes for each in found if each.session_ttl_minutes is not None]
    assert role.session_ttl_minutes == min(limits, default=None)


@pytest.mark.deep(stands_in="test_policies_are_unchanged_by_writing_and_reading")
@given(policies("analyst"), st.randoms())
def test_a_roles_document_does_not_depend_on_order(found: list[Policy], random: object) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert role_document(shuffled) == role_document(found)


@given(KEYS, IDENTIFIERS, st.lists(IDENTIFIERS, min_size=1, max_size=3))
def test_agents_and_keys_are_unchanged_by_writing_and_reading(
    key: Key, name: str, roles: list[str]
) -> None:
    agent = Agent(name, "approved", tuple(roles), key.key_id)
    documents = {
        agent_name(name): agent_document(agent),
        key_name(bytes(32)): key_document(key),
        "tenant": tenant_document(SETTINGS),
    }
    known = PolicySet(documents.get)
    assert known.agent(name) == agent
    assert known.key(bytes(32)) == key
    assert known.settings() == SETTINGS
    assert agent.wire == encode(agent.to_wire())
    assert key.wire == encode(key.to_wire())


def test_a_document_is_compiled_once_until_it_changes() -> None:
    store = Store(tenant=tenant_document(SETTINGS))
    store.documents[role_name("analyst")] = role_document([POLICY]) or b""
    known = PolicySet(store)
    assert known.role("analyst") is known.role("analyst")
    assert store.fetched == {"role/analyst": 1}
    store.documents[role_name("analyst")] = (
        role_document([Policy("p", 1, "other", "analyst", (), (), "low")]) or b""
    )
    known.apply(["role/analyst", "agent/nobody"], 9)
    role = known.role("analyst")
    assert role is not None
    assert [clause.name for clause in role.clauses] == ["other"]
    assert (known.revision, store.fetched["role/analyst"]) == (9, 2)


def test_absence_is_cached_and_forgotten_like_a_document() -> None:
    store = Store()
    known = PolicySet(store)
    assert known.agent("agt_a") is None
    assert known.agent("agt_a") is None
    assert store.fetched == {"agent/agt_a": 1}
    agent = Agent("agt_a", "draft", ("analyst",))
    store.documents["agent/agt_a"] = agent_document(agent)
    known.apply(["agent/agt_a"], 2)
    assert known.agent("agt_a") == agent


def test_a_reset_forgets_everything() -> None:
    store = Store(tenant=tenant_document(SETTINGS))
    known = PolicySet(store)
    known.settings()
    known.reset(5)
    known.settings()
    assert (known.revision, store.fetched) == (5, {"tenant": 2})


def test_guessed_names_do_not_grow_memory() -> None:
    store = Store(tenant=tenant_document(SETTINGS))
    known = PolicySet(store, keep=8)
    before = known.agent("agt_first")
    for n in range(1000):
        known.agent(f"agt_{n}")
        known.key(n.to_bytes(32, "big"))
    # The newest eight are kept, and none that was asked for before them.
    for n in range(996, 1000):
        known.agent(f"agt_{n}")
    known.agent("agt_first")
    assert before is None
    assert store.fetched["agent/agt_first"] == 2
    assert all(store.fetched[f"agent/agt_{n}"] == 1 for n in range(996, 1000))
    assert known.settings() == SETTINGS


def test_no_decision_is_possible_without_a_tenant_document() -> None:
    with pytest.raises(LookupError, match="`tenant`"):
        PolicySet(lambda _name: None).settings()


def test_a_keys_document_is_named_by_its_digest_alone() -> None:
    assert key_name(bytes(range(32))) == "key/" + bytes(range(32)).hex()


def test_a_key_is_valid_until_its_moment_of_expiry() -> None:
    assert Key("k", "evaluate").live(2**62)
    key = Key("k", "evaluate", expires_at=100)
    assert (key.live(99), key.live(100), key.live(101)) == (True, False, False)


def test_a_freeze_is_unchanged_by_writing_and_reading() -> None:
    frozen = replace(SETTINGS, frozen_at=START)
    known = PolicySet({"tenant": tenant_document(frozen)}.get)
    assert known.settings() == frozen
    assert known.masks()


def test_a_document_without_a_freeze_is_unchanged() -> None:
    """An upgrade must not announce changes where nothing changed."""
    assert tenant_document(SETTINGS) == encode(
        {
            "tenant_id": "t",
            "require_agent_id": True,
            "session_ttl_minutes": 5,
            "pii_masking": True,
            "active": True,
        }
    )


@pytest.mark.parametrize("member", ["require_agent_id", "session_ttl_minutes", "pii_masking"])
def test_a_reader_that_knows_no_freeze_can_not_read_a_frozen_tenant(member: str) -> None:
    """The version before freezes read these members too: an error in one denies."""
    frozen = orjson.loads(tenant_document(replace(SETTINGS, frozen_at=START)))
    with pytest.raises(KeyError):
        frozen[member]


def test_the_example_of_a_frozen_tenant_is_one() -> None:
    readme = (Path(policies_package.__file__).parent / "INTERNALS.md").read_text()
    (example,) = re.findall(r"^\{.*\"frozen\".*\}$", readme, re.MULTILINE)
    assert encode(orjson.loads(example)) == tenant_document(TenantSettings("acme", frozen_at=START))


def test_a_freeze_without_its_time_can_not_be_read() -> None:
    wire = replace(SETTINGS, frozen_at=START).to_wire()
    del wire["frozen_at"]
    with pytest.raises(KeyError):
        TenantSettings.from_wire(wire)


@pytest.mark.parametrize(
    "document",
    [
        b'{"tenant_id":"t","active":true,"frozen_at":1,"frozen":{}}',
        b'{"tenant_id":"t","active":true,"settings":{"require_agent_id":false}}',
        b'{"settings":[]}',
        b"[]",
        b"{",
    ],
)
def test_a_tenant_whose_settings_can_not_be_read_counts_as_frozen(document: bytes) -> None:
    known = PolicySet(Store(tenant=document))
    assert known.frozen()
    assert known.masks()


def test_without_a_policy_set_no_tenant_is_frozen() -> None:
    assert not PolicySet(Store()).frozen()
    assert not PolicySet(Store(tenant=tenant_document(SETTINGS))).frozen()
    frozen = tenant_document(replace(SETTINGS, frozen_at=1))
    assert PolicySet(Store(tenant=frozen)).frozen()
