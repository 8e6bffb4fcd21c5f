"""A retrieval asked by AuthZEN and by `/v1/context/evaluate` gets the same: decision, policy name,
reason, metrics, and record but for the source type. Requests are drawn at random, with many ways
to say the same in AuthZEN."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.authzen.questions import EVALUATION, EVALUATIONS
from tests.sidecar.own_loop import RunnerAndSidecar, sidecar_with_runner
from tests.support.fake_control_api import AGENT, ROLE
from tests.support.properties import examples
from tests.support.sidecar import EVALUATE, RunningSidecar

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
ROLES = st.sampled_from([ROLE, "teller"]) | NAMES
AGENTS = st.sampled_from([AGENT, "agt_draft", "agt_new", None]) | NAMES
SOURCES = st.sampled_from(["contracts", "rates", "payroll", "tool://search", "a://b://c"]) | NAMES
LEVELS = st.sampled_from(["low", "medium", "high", "critical"])
GIVEN_HASH = "ab" * 32
OPTIONAL = st.none() | NAMES


@st.composite
def retrievals(draw: st.DrawFn) -> dict[str, Any]:
    """The body of an evaluation."""
    body = {
        "agent_role": draw(ROLES),
        "agent_id": draw(AGENTS),
        "user_id": draw(NAMES),
        "source_id": draw(SOURCES),
        "sensitivity_level": draw(LEVELS),
        "task_type": draw(OPTIONAL),
        "session_id": draw(st.none() | st.sampled_from(["s-1", "s-2", "s-3"])),
        "query": draw(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)),
        "context_hash": draw(st.none() | st.just(GIVEN_HASH)),
    }
    return {name: value for name, value in body.items() if value is not None}


@st.composite
def questions(draw: st.DrawFn, asked: dict[str, Any]) -> dict[str, Any]:
    """One of the ways to ask for it by AuthZEN."""
    subject: dict[str, Any] = {}
    resource: dict[str, Any] = {}
    action: dict[str, Any] = {}
    context: dict[str, Any] = {
        name: asked[name] for name in ("session_id", "query", "context_hash") if name in asked
    }
    agent, user = asked.get("agent_id"), asked["user_id"]
    if agent is not None and draw(st.booleans()):
        kind, id_ = "agent", agent
    else:
        kind, id_ = "user", user if draw(st.booleans()) else "somebody else"
        if agent is not None:
            holder, member = draw(
                st.sampled_from([(context, "agent_id"), (context, "agent"), (subject, "agent_id")])
            )
            holder[member] = agent
    if id_ != user or draw(st.booleans()):
        draw(st.sampled_from([context, subject]))["user_id"] = user
    holder, member = draw(
        st.sampled_from([(subject, "agent_role"), (subject, "role"), (context, "agent_role")])
    )
    holder[member] = asked["agent_role"]
    if "task_type" in asked:
        draw(st.sampled_from([context, action]))["task_type"] = asked["task_type"]
    level = asked["sensitivity_level"]
    if level != "critical" or draw(st.booleans()):
        resource[draw(st.sampled_from(["sensitivity_level", "sensitivity"]))] = level
    source = asked["source_id"]
    ways = [("source", source)]
    before, _, after = source.partition("://")
    if before and after and "://" in source and before != "source":
        ways.append((before, after))
    source_type, source_id = draw(st.sampled_from(ways))
    body: dict[str, Any] = {
        "subject": {"type": kind, "id": id_, "properties": subject},
        "action": {"name": draw(st.sampled_from(["read", "GET"])), "properties": action},
        "resource": {"type": source_type, "id": source_id, "properties": resource},
        "context": context,
    }
    shuffled = draw(st.permutations(list(body.items())))
    return dict(shuffled)


@pytest.fixture(scope="module")
def asking() -> Iterator[RunnerAndSidecar]:
    with sidecar_with_runner() as (runner, running):
        yield runner, running


async def outcome(
    running: RunningSidecar, path: str, body: dict[str, Any]
) -> tuple[Any, dict[str, float]]:
    """The answer to a request, and what it added to the metrics of decisions."""
    before = counted(running)
    answer = await running.call("POST", path, orjson.dumps(body))
    assert answer.status == 200, (answer.body, body)
    after = counted(running)
    added = {name: each - before.get(name, 0.0) for name, each in after.items()}
    return answer.json(), {name: each for name, each in added.items() if each}


def counted(running: RunningSidecar) -> dict[str, float]:
    """The samples of decisions, without the time they took."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in running.parts.metrics.registry.collect()
        if family.name in ("sluice_decisions", "sluice_reported", "sluice_evaluate_seconds")
        for sample in family.samples
        if sample.name.endswith(("_total", "_count"))
    }


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """What one door's record of a decision must have in common with another's."""
    public = orjson.loads(orjson.dumps(record["pub"]))
    del public["request"]["source_type"]
    # Where the request brings none, it is the hash of what is asked, the source type included.
    if public["context_hash"] != GIVEN_HASH:
        del public["context_hash"]
    return {
        "pub": public,
        "kind": record["kind"],
        "masked": record["masked"],
        "commits to": sorted(record["cm"]),
        "v": record["v"],
    }


@examples(150)
@given(data=st.data())
def test_both_doors_decide_and_record_alike(asking: RunnerAndSidecar, data: st.DataObject) -> None:
    runner, running = asking
    asked = data.draw(retrievals())
    question = data.draw(questions(asked))
    path = data.draw(st.sampled_from([EVALUATION, EVALUATIONS]))

    async def compare() -> None:
        # Whatever was asked before is out of the way: the spool is read as a whole.
        doors = {EVALUATE: asked, path: question}
        order = list(doors) if data.draw(st.booleans()) else list(reversed(doors))
        told = {door: await outcome(running, door, doors[door]) for door in order}
        (evaluated, ours), (answered, theirs) = told[EVALUATE], told[path]
        context = answered["context"]
        assert answered["decision"] is (evaluated["decision"] == "ALLOW")
        assert context["policy_name"] == evaluated["policy_name"]
        assert context["reason"] == evaluated["reason"]
        assert ours == theirs
        recorded = {each["eid"]: each for each in await running.records()}
        one, other = recorded[evaluated["event_id"]], recorded[context["event_id"]]
        assert comparable(one) == comparable(other)
        assert one["pub"]["request"]["source_type"] == "api"
        assert other["pub"]["request"]["source_type"] == "authzen"
        batch = await running.spool.batch(1 << 30, 1 << 20)
        assert batch is not None
        await running.spool.acknowledge(batch.instance, batch.last_n)

    runner.run(compare())
