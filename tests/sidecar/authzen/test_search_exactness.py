"""What search lists is what evaluation allows, in both directions: over random policies, agents,
keys, rules and actions, each through the HTTP routes."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import uvloop
from hypothesis import given
from hypothesis import strategies as st

from policies.definitions.model import SENSITIVITIES, Key
from policies.definitions.wildcard import is_pattern
from sidecar.authzen.mapping import Mapper
from sidecar.authzen.question import Entity
from sidecar.settings.sections import ActionRule, AuthzenSettings, ResourceRule
from tests.sidecar.authzen.searching import (
    ADMIN_KEY,
    Client,
    Documents,
    agent,
    keyed,
    policy,
    question,
    role,
)
from tests.support import properties
from tests.support.fake_control_api import fake_control_api
from tests.support.sidecar import running_sidecar

ROLES = ("clerk", "auditor", "admin")
AGENTS = ("agt_a", "agt_b", "agt_c", "agt_d")
TASKS = ("bulk", "purge")
TYPES = ("record", "file", "source", "wiki")
IDS = ("a", "ab", "b", "a/a", "wiki://a", "r://a", "x")
SOURCES = ("a", "ab", "b", "r://a", "r://ab", "f/a/a", "wiki://a", "record://b", "one")
ENTRIES = (*SOURCES, "*", "r://*", "wiki://?", "a*")
ACTIONS = ("read", "export", "delete", "write")
PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"status": "archived"},
    {"sensitivity": "high"},
    {"sensitivity": "low"},
)


def some(values: tuple[str, ...], most: int = 3) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=most, unique=True).map(tuple)


POLICIES: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    allowed=some(ENTRIES, 4).map(lambda found: found or ("r://a",)),
    denied_sources=some(ENTRIES[:-4], 1),
    max_sensitivity=st.sampled_from(SENSITIVITIES),
    allowed_tasks=some(TASKS, 1),
    denied_tasks=some(TASKS, 1),
    permitted_agent_ids=some((*AGENTS, "agt_*"), 2),
)
RESOURCE_RULES = st.builds(
    ResourceRule,
    type=st.sampled_from(("record", "file")),
    id=st.sampled_from(("*", "a*", "b", "?")),
    when=st.sampled_from(({}, {"status": "archived"})),
    source_id=st.sampled_from((None, "r://{id}", "f/{id}/{id}", "one", "{type}://{id}")),
    sensitivity=st.sampled_from((None, "low", "high", "critical")),
)
ACTION_RULES = st.builds(
    ActionRule,
    name=st.sampled_from(ACTIONS),
    when=st.sampled_from(({}, {}, {"soft": True})),
    task=st.sampled_from((None, *TASKS)),
)
SETTINGS = st.builds(
    AuthzenSettings,
    subject_types=st.just(("agent",)),
    resources=st.lists(RESOURCE_RULES, max_size=4).map(tuple),
    actions=st.lists(ACTION_RULES, min_size=1, max_size=5).map(tuple),
)
AGENT_ENTRIES = st.tuples(
    some(ROLES).map(lambda found: found or ("clerk",)),
    st.sampled_from(("approved", "approved", "approved", "suspended")),
    st.sampled_from((None, None, "key_a", "key_of_another")),
)
KEYS = st.builds(
    Key,
    st.just("key_a"),
    st.just("admin"),
    st.sampled_from((None, None, None, *AGENTS)),
    some(ROLES, 2),
)
# Who the question says is asking, besides its subject.
CLAIMS = st.sampled_from(
    (
        {},
        {},
        {"subject_properties": {"role": "auditor"}},
        {"context": {"agent_role": "clerk"}},
        {"context": {"agent_id": "agt_b"}},
        {"context": {"task_type": "bulk"}},
        {"context": {"session_id": 7}},
    )
)


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    held = {name: draw(st.lists(POLICIES, max_size=2)) for name in ROLES}
    agents = {
        name: draw(AGENT_ENTRIES)
        for name in draw(st.lists(st.sampled_from(AGENTS), min_size=1, max_size=4, unique=True))
    }
    key = draw(KEYS)
    documents: Documents = keyed(ADMIN_KEY, key)
    for name, entries in held.items():
        made = [
            policy(name, *entry["allowed"], name=f"{name}_{at}", **_without_allowed(entry))
            for at, entry in enumerate(entries)
        ]
        if made:
            documents |= role(name, *made)
    for name, (roles, status, bound) in agents.items():
        documents |= agent(name, *roles, status=status, key=bound)
    return {
        "settings": draw(SETTINGS),
        "documents": documents,
        "sources": {
            name: {e for entry in entries for e in entry["allowed"] if not is_pattern(e)}
            for name, entries in held.items()
        },
        "agents": agents,
        "key": key,
        "claim": draw(CLAIMS),
        "subject_type": draw(st.sampled_from(("agent", "agent", "user"))),
        "resource_type": draw(st.sampled_from(TYPES)),
        "properties": draw(st.sampled_from(PROPERTIES)),
        "asked": (
            draw(st.sampled_from((*AGENTS, "agt_unknown"))),
            draw(st.sampled_from(ACTIONS)),
            draw(st.sampled_from(IDS)),
        ),
    }


def _without_allowed(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "allowed"}


class Judge:
    """Asks for each candidate of one world whether an evaluation is allowed, in any role that the
    subject may claim."""

    def __init__(self, world: dict[str, Any], client: Client) -> None:
        self.world = world
        self._client = client

    def body(self, subject: str, action: str, resource: str) -> dict[str, Any]:
        world = self.world
        return question(
            subject,
            action,
            resource,
            subject_type=world["subject_type"],
            resource_type=world["resource_type"],
            resource_properties=world["properties"],
            **world["claim"],
        )

    async def allowed(self, subject: str, action: str, resource: str) -> bool:
        body = self.body(subject, action, resource)
        plain = await self._client.allowed(body)
        if self.names_role():
            return plain
        in_roles = [
            await self._client.allowed(
                body | {"subject": {**body["subject"], "properties": {"agent_role": name}}}
            )
            for name in self.roles(subject)
        ]
        # A question that names no role is asked in one that could be named.
        assert not plain or any(in_roles)
        return any(in_roles)

    def names_role(self) -> bool:
        claim = self.world["claim"]
        return "subject_properties" in claim or "agent_role" in claim.get("context", {})

    def roles(self, subject: str) -> tuple[str, ...]:
        """What may be claimed: by an agent what the registry permits; by a call without a known
        one what the key permits."""
        key: Key = self.world["key"]
        asks = subject
        if self.world["subject_type"] != "agent":
            asks = self.world["claim"].get("context", {}).get("agent_id", key.bound_agent_id)
        found = self.world["agents"].get(asks)
        return key.permitted_roles if found is None else found[0]

    def searched(self, subject: str, action: str, resource: str) -> dict[str, Any]:
        """The body of a search for what is empty."""
        body = self.body(subject or "x", action or "x", resource or "x")
        if not action:
            del body["action"]
        return body


@given(world=worlds())
@properties.examples(150)
def test_a_search_lists_exactly_what_evaluation_allows(world: dict[str, Any]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_compare(world, Path(folder)))


async def _compare(world: dict[str, Any], folder: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        control.publish(world["documents"])
        async with running_sidecar(folder, control, authzen=world["settings"]) as running:
            client = Client(running, ADMIN_KEY)
            judge = Judge(world, client)
            await _compare_subjects(judge, client)
            await _compare_resources(judge, client)
            await _compare_actions(judge, client)


async def _compare_subjects(judge: Judge, client: Client) -> None:
    _, action, resource = judge.world["asked"]
    found = await client.found("subject", judge.searched("", action, resource))
    allowed = [
        name
        for name in sorted((*judge.world["agents"], "agt_loans", "agt_unknown"))
        if judge.world["subject_type"] == "agent" and await judge.allowed(name, action, resource)
    ]
    assert found == allowed


async def _compare_resources(judge: Judge, client: Client) -> None:
    subject, action, _ = judge.world["asked"]
    found = await client.found("resource", judge.searched(subject, action, ""))
    allowed = [
        each
        for each in sorted({*IDS, *SOURCES, *found})
        if is_candidate(judge, subject, each) and await judge.allowed(subject, action, each)
    ]
    assert found == allowed


def is_candidate(judge: Judge, subject: str, resource: str) -> bool:
    """Whether a policy of a role that may be claimed names the source of this resource."""
    world = judge.world
    kind, settings = world["resource_type"], world["settings"]
    entity = Entity(kind, resource, world["properties"])
    source_id = Mapper(settings).target(entity).source_id
    claim = world["claim"]
    named = claim.get("subject_properties", {}).get("role") or claim.get("context", {}).get(
        "agent_role"
    )
    roles = (named,) if named else judge.roles(subject)
    if not any(source_id in world["sources"].get(name, ()) for name in roles):
        return False
    rule = next(
        (
            each
            for each in settings.resources
            if each.type == kind
            and (each.id in ("*", resource) or _matches(each.id, resource))
            and all(world["properties"].get(name) == value for name, value in each.when.items())
        ),
        None,
    )
    if rule is not None and rule.source_id is not None:
        # One source of any number of resources can't be mapped back.
        return "{id}" in rule.source_id or rule.id == resource
    return kind != "source" or "://" not in resource


def _matches(pattern: str, resource: str) -> bool:
    if pattern == "?":
        return len(resource) == 1
    return pattern.endswith("*") and resource.startswith(pattern[:-1])


async def _compare_actions(judge: Judge, client: Client) -> None:
    subject, _, resource = judge.world["asked"]
    found = await client.found("action", judge.searched(subject, "", resource))
    names = dict.fromkeys(rule.name for rule in judge.world["settings"].actions)
    assert found == [name for name in names if await judge.allowed(subject, name, resource)]
