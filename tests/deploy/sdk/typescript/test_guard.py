"""Checks, wrappers and tools against a real sidecar, and what it records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.sdk.python.conftest import event_of
from tests.deploy.sdk.typescript.node import run
from tests.support.stack import Stack, running_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as started:
        yield started


def told(stack: Stack, script: str, **given: object) -> Any:
    """What a script returns that has a `guard`."""
    url = f"http://127.0.0.1:{stack.sidecar.port}"
    made = "const guard = new Guard(given.url, given.key, given.agent, given.role);\n"
    values = {"url": url, "key": stack.agent_key, "agent": stack.agent_id, "role": stack.role}
    whole = f"{made}const body = async () => {{\n{script}\n}};\n"
    return run(f"{whole}return await body().finally(() => guard.close());", **values, **given)


@pytest.mark.deep(stands_in="test_a_deny_rejects_with_what_was_recorded")
def test_an_allow_is_recorded(stack: Stack) -> None:
    script = 'return guard.check("contracts", "high", { query: "terms" });'
    decision = told(stack, script)
    assert decision["decision"] == "ALLOW"
    event = event_of(stack, decision["eventId"])
    assert event["source_type"] == "sdk"
    assert (event["source_id"], event["sensitivity_level"]) == ("contracts", "high")
    assert (event["agent_id"], event["user_id"]) == (stack.agent_id, stack.agent_id)
    assert (event["query"], event["policy_name"]) == ("terms", decision["policyName"])
    assert event["reason"] == decision["reason"]


def test_a_deny_rejects_with_what_was_recorded(stack: Stack) -> None:
    script = """
    const allowed = await guard.check("contracts", "high", { query: "terms" });
    const error = await guard.check("payroll", undefined, { query: "all" }).catch((error) => error);
    return [error instanceof Denied, error instanceof NotAllowed, error instanceof Error,
            error.name, error.eventId, error.policyName, error.reason, error.sourceId,
            error.message, error.decision.decision, allowed];
    """
    *kinds, name, event_id, policy, reason, source, message, decision, allowed = told(stack, script)
    assert kinds == [True, True, True]
    assert (name, source, decision) == ("Denied", "payroll", "DENY")
    event = event_of(stack, event_id)
    assert (event["policy_name"], event["reason"]) == (policy, reason)
    assert event["sensitivity_level"] == "critical"  # nothing else was said
    assert (event["source_type"], event["source_id"], event["query"]) == ("sdk", "payroll", "all")
    assert (event["agent_id"], event["user_id"]) == (stack.agent_id, stack.agent_id)
    assert reason in message
    assert event_id in message
    # So is what an ALLOW resolves with.
    assert allowed["decision"] == "ALLOW"
    event = event_of(stack, allowed["eventId"])
    assert (event["policy_name"], event["reason"]) == (allowed["policyName"], allowed["reason"])
    asked = (event["source_id"], event["sensitivity_level"], event["query"])
    assert asked == ("contracts", "high", "terms")


def test_a_bad_key_is_unavailable(stack: Stack) -> None:
    script = """
    const other = new Guard(given.url, "slc_wrong", given.agent, given.role);
    return outcome(other.check("contracts", "low")).finally(() => other.close());
    """
    error = told(stack, script)
    assert error["name"] == "Unavailable"
    assert "the sidecar answered 403: " in error["message"]


def test_a_guarded_function_runs_after_an_allow_only(stack: Stack) -> None:
    script = """
    const ran = [];
    class Store {
      name = "store";
      read = guard.source("contracts", "low")(async function (first, second = "b") {
        ran.push([this?.name, first, second]);
        return `${first}${second}`;
      });
    }
    const denied = guard.source("payroll", "low")(async () => ran.push("payroll"));
    const failing = guard.source("contracts", "low")(async () => { throw new RangeError("own"); });
    const store = new Store();
    return {
      value: await store.read("a"),
      promise: store.read("c") instanceof Promise,
      denied: (await outcome(denied())).name,
      thrown: (await outcome(failing())).name,
      sync: await guard.source("contracts", "low")(() => 7)(),
      ran,
    };
    """
    found = told(stack, script)
    assert found["value"] == "ab"
    assert found["promise"]
    assert (found["denied"], found["thrown"], found["sync"]) == ("Denied", "RangeError", 7)
    assert found["ran"][0] == ["store", "a", "b"]
    assert "payroll" not in found["ran"]


def test_a_source_is_made_of_the_arguments(stack: Stack) -> None:
    script = """
    const read = guard.source((id) => `rest://files/${id}`, "low")(async (id) => id);
    const other = guard.source((id) => id, "low")(async (id) => id);
    const failing = guard.source(() => { throw new RangeError("own"); }, "low")(async () => "ran");
    return [await read("7"), (await outcome(other("rest://others/7"))).name,
            (await outcome(failing())).name, (await outcome(other(undefined))).name];
    """
    assert told(stack, script) == ["7", "Denied", "RangeError", "TypeError"]


def test_an_async_generator_is_checked_before_its_first_item(stack: Stack) -> None:
    script = """
    const ran = [];
    const items = async function* (count) {
      ran.push("begun");
      try {
        for (let at = 0; at < count; at += 1) {
          const sent = yield at;
          if (sent !== undefined) ran.push(sent);
        }
        return "last";
      } finally {
        ran.push("ended");
      }
    };
    const allowed = guard.source("contracts", "low")(items)(3);
    const begun = ran.length;
    const first = await allowed.next();
    await allowed.next("sent");
    await allowed.return();
    const all = [];
    for await (const item of guard.source("contracts", "low")(items)(2)) all.push(item);
    const denied = await outcome(guard.source("payroll", "low")(items)(1).next());
    const answers = [];
    const tool = guard.tool(items, { source: "payroll", answer: true });
    for await (const item of tool(1)) answers.push(item);
    return { begun, first, all, denied: denied.name, answers, ran };
    """
    found = told(stack, script)
    assert (found["begun"], found["all"], found["denied"]) == (0, [0, 1], "Denied")
    assert found["first"] == {"value": 0, "done": False}
    assert found["ran"] == ["begun", "sent", "ended", "begun", "ended"]
    [answer] = found["answers"]
    assert answer.startswith("Access to `payroll` was denied: ")


def test_a_tool_can_answer_with_the_reason(stack: Stack) -> None:
    script = """
    const ran = [];
    async function payroll(who) { ran.push(who); return "secret"; }
    const named = await outcome(guard.tool(payroll)("ann"));
    const answered = await guard.tool(payroll, { source: "payroll", answer: true })("ann");
    const allowed = await guard.tool(payroll, { source: "contracts", sensitivity: "low" })("bob");
    const failing = guard.tool(async () => { throw new RangeError("own"); },
                               { source: "contracts", sensitivity: "low", answer: true });
    const away = new Guard("http://127.0.0.1:9", "k", "a", "r");
    return { named, answered, allowed, ran, name: guard.tool(payroll).name,
             length: guard.tool(payroll).length, failing: (await outcome(failing())).name,
             away: await away.tool(payroll, { answer: true })("ann") };
    """
    found = told(stack, script)
    assert "`tool://payroll` was denied" in found["named"]["message"]
    assert found["answered"].startswith("Access to `payroll` was denied: ")
    assert "could not be checked" in found["away"]
    assert (found["allowed"], found["ran"]) == ("secret", ["bob"])
    assert (found["name"], found["length"], found["failing"]) == ("payroll", 1, "RangeError")


@pytest.mark.parametrize(
    "body", ["class {}", "class A { constructor() {} }", "function* () {}", "{}", "'f'", "null"]
)
def test_an_object_that_can_t_be_guarded_is_refused(body: str) -> None:
    script = f"""
    const guard = new Guard("http://h", "k", "a", "r");
    try {{
      guard.source("s")({body});
    }} catch (error) {{
      return error.name;
    }}
    """
    assert run(script) == "TypeError"


@pytest.mark.deep(
    stands_in="tests/deploy/sdk/typescript/test_attribution.py::test_code_that_runs_beside_a_context_is_not_in_it"
)
def test_user_and_session_follow_the_context(stack: Stack) -> None:
    script = """
    const ids = async (who, times) => acting(who, async () => {
      await new Promise((resolve) => setTimeout(resolve, times));
      return (await guard.check("contracts", "low")).eventId;
    });
    const headers = { Baggage: "shop=eu,sluice.user=b%C3%B6b,sluice.session=of-bob" };
    return Promise.all([ids({ user: "ann", session: "of-ann", task: "audit" }, 20),
                        ids({ headers }, 10), ids({}, 0)]);
    """
    ann, bob, itself = (event_of(stack, each) for each in told(stack, script))
    assert (ann["user_id"], ann["session_id"], ann["task_type"]) == ("ann", "of-ann", "audit")
    assert (bob["user_id"], bob["session_id"]) == ("böb", "of-bob")
    assert (itself["user_id"], itself["session_id"]) == (stack.agent_id, None)


def test_many_concurrent_checks_get_the_right_answers(stack: Stack) -> None:
    script = """
    const wanted = Array.from({ length: 200 }, (_, at) => (at % 2 ? "contracts" : "payroll"));
    const found = await Promise.all(wanted.map((source) => outcome(guard.check(source, "low"))));
    return found.map(({ name = "ALLOW" }) => name);
    """
    assert told(stack, script) == ["Denied", "ALLOW"] * 100


@pytest.mark.deep(
    stands_in="tests/deploy/sdk/typescript/test_attribution.py::test_the_environment_gives_the_key_the_agent_and_the_service"
)
def test_a_guard_is_made_from_the_environment(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "agent.key"
    file.write_text(f"{stack.agent_key}\n")
    script = """
    const environ = { SLUICE_GUARD_URL: `${given.url}\\n`, SLUICE_GUARD_KEY: given.key,
                      SLUICE_GUARD_AGENT_ID: given.agent, SLUICE_GUARD_ROLE: given.role };
    const decisions = [];
    const read = async () => {
      const made = Guard.fromEnviron(environ);
      decisions.push((await made.check("contracts", "low")).decision);
      made.close();
    };
    await read();
    delete environ.SLUICE_GUARD_KEY;
    environ.SLUICE_GUARD_KEY_FILE = given.file;
    await read();
    delete environ.SLUICE_GUARD_KEY_FILE;
    try {
      Guard.fromEnviron(environ);
    } catch (error) {
      return [...decisions, error.message];
    }
    """
    assert told(stack, script, file=str(file)) == [
        "ALLOW",
        "ALLOW",
        "`SLUICE_GUARD_KEY` is not set",
    ]
