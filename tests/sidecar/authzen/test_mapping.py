"""What a question means: each row of the table in the README, and what can't be mapped."""

from typing import Any

import pytest

from policies.definitions.model import Agent, Key
from policies.retrieval import Retrieval
from policies.sets.policy_set import PolicySet, agent_document, agent_name
from sidecar.authzen.mapping import Mapper
from sidecar.authzen.question import read_question
from sidecar.settings.sections import ActionRule, AuthzenSettings, ResourceRule
from sidecar.unmapped import Unmapped
from tests.sidecar.authzen.questions import question

SETTINGS = AuthzenSettings(
    subject_types=("agent", "identity"),
    role_property="acting_as",
    resources=(
        ResourceRule("record", "hr-*", {"status": "archived"}, "archive-{id}", "critical"),
        ResourceRule("record", "hr-?", {}, "{type}/{id}/{type}", "high"),
        ResourceRule("record", "hr-*", {"n": 1}, "one"),
        ResourceRule("record", "hr-*", {"open": True}, "open"),
        ResourceRule("record", "hr-*", {"by": None}, "by-nobody"),
        ResourceRule("record", "x-*", {}, None, "low"),
        ResourceRule("source", "contracts", {}, None, "low"),
    ),
    actions=(
        ActionRule("read"),
        ActionRule("delete", {"soft": True}, "delete_soft"),
        ActionRule("delete", {"soft": "yes"}, "delete_softly"),
    ),
)
DEFAULTS = AuthzenSettings()
POLICY_SET = PolicySet(
    {
        agent_name("agt_loans"): agent_document(Agent("agt_loans", "approved", ("underwriter",))),
        agent_name("agt_many"): agent_document(Agent("agt_many", "approved", ("a", "b"))),
    }.get
)


def mapped(
    body: dict[str, Any],
    settings: AuthzenSettings = DEFAULTS,
    *,
    bound: str | None = None,
    roles: tuple[str, ...] = (),
) -> Retrieval:
    key = Key("key_1", "evaluate", bound, roles)
    return Mapper(settings).retrieval(read_question(body), key, POLICY_SET)


def unmapped(body: dict[str, Any], settings: AuthzenSettings = DEFAULTS, **key: Any) -> Unmapped:
    with pytest.raises(Unmapped) as caught:
        mapped(body, settings, **key)
    return caught.value


def user(**properties: Any) -> dict[str, Any]:
    """A subject that is no agent."""
    return {"type": "user", "id": "ann", "properties": properties}


def test_a_usual_question_is_mapped_to_a_retrieval() -> None:
    assert mapped(question()) == Retrieval(
        "underwriter", "ann@example.com", "contracts", "high", agent_id="agt_loans",
        source_type="authzen",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "context", "bound", "agent_id"),
    [
        ({"type": "agent", "id": "a1"}, {"agent_id": "a2", "agent": "a3"}, "a5", "a1"),
        ({"type": "identity", "id": "a1"}, {}, None, "a1"),
        (user(agent_id="a4"), {"agent_id": "a2", "agent": "a3"}, "a5", "a2"),
        (user(agent_id="a4"), {"agent": "a3"}, "a5", "a3"),
        (user(agent_id="a4"), {}, "a5", "a4"),
        (user(), {}, "a5", "a5"),
        (user(), {}, None, None),
    ],
)
def test_the_agent_is_mapped_from_subject_context_or_key(
    subject: dict[str, Any], context: dict[str, Any], bound: str | None, agent_id: str | None
) -> None:
    asked = question(subject=subject, context={"agent_role": "r", **context})
    assert mapped(asked, SETTINGS, bound=bound).agent_id == agent_id


@pytest.mark.parametrize(
    ("properties", "context", "agent", "roles", "role"),
    [
        ({"agent_role": "r1", "acting_as": "r2"}, {"agent_role": "r3"}, "agt_loans", ("r5",), "r1"),
        ({"acting_as": "r2", "role": "x"}, {"agent_role": "r3"}, "agt_loans", ("r5",), "r2"),
        ({"role": "x"}, {"agent_role": "r3"}, "agt_loans", ("r5",), "r3"),
        ({}, {}, "agt_loans", ("r5",), "underwriter"),
        ({}, {}, "agt_many", ("r5",), "a"),
        ({}, {}, "agt_strange", ("r5",), "r5"),
        ({}, {}, None, ("r5",), "r5"),
    ],
)
def test_the_role_is_mapped_from_subject_context_agent_or_key(
    properties: dict[str, Any],
    context: dict[str, Any],
    agent: str | None,
    roles: tuple[str, ...],
    role: str,
) -> None:
    asked = question(subject=user(**properties), context=context)
    assert mapped(asked, SETTINGS, bound=agent, roles=roles).agent_role == role


@pytest.mark.parametrize(("agent", "roles"), [(None, ()), (None, ("a", "b")), ("agt_new", ())])
def test_without_a_role_nothing_is_mapped(agent: str | None, roles: tuple[str, ...]) -> None:
    fault = unmapped(question(subject=user(), context={}), SETTINGS, bound=agent, roles=roles)
    assert fault.reason == (
        "no role: put it into `subject.properties.acting_as`, or tie the key to an agent or to one "
        "role"
    )
    assert fault.retrieval("authzen") == Retrieval(
        "unknown", "ann", "authzen://unmapped", "critical", agent_id=agent or "unknown",
        source_type="authzen",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("context", "properties", "user_id"),
    [
        ({"user_id": "u1"}, {"user_id": "u2"}, "u1"),
        ({}, {"user_id": "u2"}, "u2"),
        ({}, {}, "ann"),
    ],
)
def test_the_user_is_mapped_from_subject_or_context(
    context: dict[str, Any], properties: dict[str, Any], user_id: str
) -> None:
    asked = question(subject=user(role="r", **properties), context=context)
    assert mapped(asked).user_id == user_id


@pytest.mark.parametrize(
    ("resource", "source_id", "level"),
    [
        (("record", "hr-1", {"status": "archived"}), "archive-hr-1", "critical"),
        (("record", "hr-1", {"status": "Archived"}), "record/hr-1/record", "high"),
        (("record", "hr-1", {"sensitivity": "critical"}), "record/hr-1/record", "critical"),
        (("record", "hr-1", {"sensitivity": "low"}), "record/hr-1/record", "high"),
        (("record", "hr-1", {"sensitivity_level": "low"}), "record/hr-1/record", "high"),
        (("record", "hr-12", {"n": 1}), "one", "critical"),
        (("record", "hr-12", {"n": 1.0}), "one", "critical"),
        (("record", "hr-12", {"n": 1, "sensitivity": "low"}), "one", "low"),
        (("record", "hr-12", {"n": True}), "record://hr-12", "critical"),
        (("record", "hr-12", {"n": "1"}), "record://hr-12", "critical"),
        (("record", "hr-12", {"n": [1]}), "record://hr-12", "critical"),
        (("record", "hr-12", {"open": True}), "open", "critical"),
        (("record", "hr-12", {"open": 1}), "record://hr-12", "critical"),
        (("record", "hr-12", {"by": None}), "by-nobody", "critical"),
        (("record", "hr-12", {}), "record://hr-12", "critical"),
        (("record", "hr-{type}", {"status": "archived"}), "archive-hr-{type}", "critical"),
        (("record", "x-1", {}), "record://x-1", "low"),
        (("source", "contracts", {}), "contracts", "low"),
        (("source", "chroma://kb", {"sensitivity": "medium"}), "chroma://kb", "medium"),
        (("tool", "search", {"sensitivity_level": "low"}), "tool://search", "low"),
        (("tool", "s", {"sensitivity_level": "low", "sensitivity": "high"}), "tool://s", "high"),
        (("tool", "s", {"sensitivity_level": "high", "sensitivity": "low"}), "tool://s", "high"),
    ],
)
def test_the_source_and_its_level_are_mapped_from_the_resource(
    resource: tuple[str, str, dict[str, Any]], source_id: str, level: str
) -> None:
    kind, id_, properties = resource
    asked = question(resource={"type": kind, "id": id_, "properties": properties})
    found = mapped(asked, SETTINGS, roles=("underwriter",))
    assert (found.source_id, found.sensitivity_level) == (source_id, level)


@pytest.mark.parametrize(
    ("action", "context", "task"),
    [
        ({"name": "read"}, {}, None),
        ({"name": "read", "properties": {"task_type": "t2"}}, {"task_type": "t1"}, "t1"),
        ({"name": "read", "properties": {"task_type": "t2"}}, {}, "t2"),
        ({"name": "delete", "properties": {"soft": True}}, {"task_type": "t1"}, "delete_soft"),
        ({"name": "delete", "properties": {"soft": "yes"}}, {}, "delete_softly"),
    ],
)
def test_the_task_is_mapped_from_the_action_or_the_context(
    action: dict[str, Any], context: dict[str, Any], task: str | None
) -> None:
    asked = question(action=action, context=context)
    assert mapped(asked, SETTINGS, roles=("underwriter",)).task_type == task


@pytest.mark.parametrize(
    "name",
    [
        "read", "retrieve", "get", "list", "search", "query", "fetch", "view", "can_read",
        "can_view", "GET", "HEAD", "tools/call", "resources/read", "prompts/get",
    ],
)  # fmt: skip
def test_reading_needs_no_rule(name: str) -> None:
    assert mapped(question(action={"name": name})).task_type is None


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        ({"name": "delete"}, "`delete`"),
        ({"name": "delete", "properties": {"soft": 1}}, "`delete`"),
        ({"name": "write"}, "`write`"),
        ({"name": "Read"}, "`Read`"),
        ({"name": ""}, "of this name"),
        ({"name": "a\0b"}, "of this name"),
        ({"name": "x" * 65}, "of this name"),
    ],
)
def test_an_action_without_a_rule_is_not_mapped(action: dict[str, Any], shown: str) -> None:
    fault = unmapped(question(action=action), SETTINGS, roles=("underwriter",))
    assert fault.reason == (
        f"no rule of `authzen.actions` covers the action {shown}: add one if it reads"
    )
    assert fault.retrieval("authzen")[:3] == (
        "underwriter", "ann@example.com", "authzen://unmapped",
    )  # fmt: skip


def test_context_names_session_query_and_hash() -> None:
    found = mapped(question(context={"session_id": "s", "query": "why?", "context_hash": "a" * 64}))
    assert (found.session_id, found.query, found.context_hash) == ("s", "why?", "a" * 64)


LONG, BAD = "x" * 257, "a\0b"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"subject": {"type": "agent", "id": ""}}, "agent_id: must have 1 to 256"),
        ({"subject": {"type": "agent", "id": LONG}}, "agent_id: must have 1 to 256"),
        ({"subject": {"type": "agent", "id": BAD}}, "agent_id: must not contain control"),
        ({"subject": user(role="")}, "agent_role: must have 1 to 256"),
        ({"subject": user(role=["a"])}, "agent_role: must be a string"),
        ({"subject": user(role=None)}, "`role` is null"),
        ({"subject": user(role="r", agent_id=1)}, "agent_id: must be a string"),
        ({"subject": user(role="r"), "context": {"agent": None}}, "`agent` is null"),
        ({"subject": user(role="r"), "context": {"agent": {}}}, "agent_id: must be a string"),
        (
            {"subject": {"type": "user", "id": "", "properties": {"role": "r"}}, "context": {}},
            "user_id: must have 1 to 256",
        ),
        ({"context": {"user_id": LONG}}, "user_id: must have 1 to 256"),
        ({"context": {"user_id": None}}, "`user_id` is null"),
        ({"resource": {"type": "source", "id": ""}}, "`resource.type` and `resource.id` name"),
        ({"resource": {"type": "", "id": "a"}}, "`resource.type` and `resource.id` name"),
        ({"resource": {"type": "a" * 200, "id": "b" * 200}}, "source_id: must have 1 to 256"),
        ({"resource": {"type": "tool", "id": BAD}}, "source_id: must not contain control"),
        ({"resource": {"type": "constant", "id": LONG}}, "`resource.id` must have 1 to 256"),
        (
            {"resource": {"type": "source", "id": "a", "properties": {"sensitivity": "top"}}},
            "`resource.properties.sensitivity` must be one of `low`, `medium`, `high`, `critical`",
        ),
        (
            {"resource": {"type": "source", "id": "a", "properties": {"sensitivity_level": 3}}},
            "`resource.properties.sensitivity_level` must be one of",
        ),
        ({"context": {"session_id": 1}}, "session_id: must be a string"),
        ({"context": {"session_id": None}}, "`session_id` is null"),
        ({"context": {"query": ["q"]}}, "query: must be a string of at most"),
        ({"context": {"query": "é" * 32769}}, "query: must be a string of at most"),
        ({"context": {"context_hash": "A" * 64}}, "context_hash: must be 64"),
        ({"context": {"task_type": ""}}, "task_type: must have 1 to 256"),
        ({"context": {"task_type": None}}, "`task_type` is null"),
    ],
)
def test_an_unusable_value_is_not_mapped(changed: dict[str, Any], reason: str) -> None:
    constant = AuthzenSettings(resources=(ResourceRule("constant", source_id="always"),))
    fault = unmapped(question(**changed), constant)
    assert fault.reason.startswith(reason)
    # What can be read is recorded, and what can't is `unknown`.
    made = fault.retrieval("authzen")
    assert None not in (made.agent_role, made.user_id, made.agent_id)
    assert not {"", LONG, BAD} & set(made)
