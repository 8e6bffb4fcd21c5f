"""A guard before a real sidecar: what is asked, answered, raised and recorded."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sluice_guard import Decision, Denied, Guard, Misconfigured, NotAllowed, Unavailable, acting
from tests.deploy.sdk.python.conftest import event_of
from tests.support.stack import Stack
from tests.support.waiting import until


def test_an_allow_is_true_and_a_deny_is_false(guard: Guard) -> None:
    allowed = guard.check("contracts", "high")
    denied = guard.check("payroll", "high")
    assert allowed
    assert (allowed.decision, allowed.policy_name) == ("ALLOW", "support-reads")
    assert not denied
    assert denied.decision == "DENY"
    assert "payroll" in denied.reason
    assert allowed.event_id != denied.event_id


async def test_a_coroutine_gets_the_same(guard: Guard) -> None:
    assert await guard.acheck("contracts", "high")
    assert not await guard.acheck("payroll", "low")
    # At once, too, each task gets its own answer.
    asked = ["contracts", "payroll"] * 4
    found = await asyncio.gather(*(guard.acheck(each, "low") for each in asked))
    assert [bool(each) for each in found] == [True, False] * 4
    await guard.aclose()


def test_a_missing_level_counts_as_critical(guard: Guard) -> None:
    assert "critical" in guard.check("contracts").reason


def test_the_tenant_s_level_is_the_lowest_for_a_guard(guard: Guard, stack: Stack) -> None:
    assert guard.check("rest://files/lease", "low")
    level = "/v1/sources/rest:%2F%2Ffiles%2Flease"
    stack.admin("PUT", level, {"sensitivity_level": "critical"})
    until("the sidecar knows the level", lambda: not guard.check("rest://files/lease", "low"))
    assert "`critical` is above `high`" in guard.check("rest://files/lease", "low").reason
    assert guard.check("rest://files/lease-2", "low")
    stack.admin("DELETE", level)


def test_the_record_names_the_user_the_session_and_the_door(guard: Guard, stack: Stack) -> None:
    with acting(user="ann", session="s-1", task="summarize"):
        decision = guard.check("contracts", "high", query="the lease of 2019")
    event = event_of(stack, decision.event_id)
    assert event["decision"] == "ALLOW"
    expected: dict[str, Any] = {
        "agent_id": stack.agent_id,
        "agent_role": stack.role,
        "user_id": "ann",
        "session_id": "s-1",
        "task_type": "summarize",
        "source_id": "contracts",
        "sensitivity_level": "high",
        "source_type": "sdk",
        "query": "the lease of 2019",
    }
    assert {name: event[name] for name in expected} == expected


def test_the_agent_is_recorded_as_the_user_if_none_is_given(guard: Guard, stack: Stack) -> None:
    event = event_of(stack, guard.check("contracts", "high").event_id)
    assert (event["user_id"], event["session_id"]) == (stack.agent_id, None)


def test_a_decorated_function_runs_after_an_allow_only(guard: Guard) -> None:
    ran: list[str] = []

    @guard.source("contracts", sensitivity="high")
    def read(name: str) -> str:
        ran.append(name)
        return name.upper()

    @guard.source("payroll", sensitivity="high")
    def pay(name: str) -> str:
        ran.append(name)
        return name

    assert read("lease") == "LEASE"
    with pytest.raises(Denied) as caught:
        pay("ann")
    assert ran == ["lease"]
    assert caught.value.event_id in str(caught.value)
    assert caught.value.reason in str(caught.value)
    assert caught.value.policy_name
    assert caught.value.source_id == "payroll"


def test_a_denial_is_recorded(guard: Guard, stack: Stack) -> None:
    with pytest.raises(Denied) as caught:
        guard.source("payroll")(len)([])
    assert event_of(stack, caught.value.event_id)["decision"] == "DENY"


def test_a_source_can_depend_on_the_arguments(guard: Guard) -> None:
    @guard.source(lambda collection, **_: collection, "low")
    def search(collection: str, *, words: str) -> str:
        return f"{words} in {collection}"

    assert search("handbook", words="leave") == "leave in handbook"
    with pytest.raises(Denied):
        search("payroll", words="leave")
    with pytest.raises(TypeError, match="text"):
        search(17, words="leave")  # type: ignore[arg-type]


def test_a_tool_can_answer_with_the_reason(guard: Guard) -> None:
    def salaries(name: str) -> str:
        """What a person earns."""
        raise AssertionError(name)

    tool = guard.tool(salaries, source="payroll", answer=True)
    said = tool("ann")
    assert "was denied" in said
    assert "event id" in said
    assert (tool.__name__, tool.__doc__) == ("salaries", "What a person earns.")
    with pytest.raises(Denied):
        guard.tool(salaries, source="payroll")("ann")
    with pytest.raises(Denied, match="tool://salaries"):
        guard.tool(salaries)("ann")


def test_an_expired_key_is_no_decision(stack: Stack) -> None:
    key = stack.admin("POST", "/v1/keys", {"name": "gone", "scope": "evaluate"})
    url = f"http://127.0.0.1:{stack.sidecar.port}"
    wrong = stack.agent_key[:-1] + ("A" if stack.agent_key[-1] != "A" else "B")
    assert key["key"] != wrong
    with (
        Guard(url, wrong, stack.agent_id, stack.role) as guard,
        pytest.raises(Misconfigured, match=r"answered 40[13]") as caught,
    ):
        guard.check("contracts", "high")
    assert wrong not in str(caught.value)
    assert "calling again changes nothing" in str(caught.value)
    assert "try again" not in str(caught.value)


def test_a_source_that_the_api_refuses_is_no_decision(guard: Guard) -> None:
    with pytest.raises(Unavailable, match=r"422: .*source_id: "):
        guard.check("", "high")
    with pytest.raises(Unavailable, match="422"):
        guard.check("contracts", "extreme")  # type: ignore[arg-type]


async def test_session_and_user_follow_the_context(guard: Guard, stack: Stack) -> None:
    """Concurrent tasks, a worker thread and a copied context each have their own."""

    async def ask(user: str) -> Decision:
        with acting(user=user):
            await asyncio.sleep(0)
            first = await guard.acheck("contracts", "high")
            with acting(session="s-9"):
                second = await asyncio.to_thread(guard.check, "contracts", "high")
            assert second
            return first

    users = [f"user-{number}" for number in range(8)]
    decided = await asyncio.gather(*(ask(user) for user in users))
    for user, decision in zip(users, decided, strict=True):
        event = await asyncio.to_thread(event_of, stack, decision.event_id)
        assert (event["user_id"], event["session_id"]) == (user, None)
    await guard.aclose()


def test_a_thread_started_by_hand_has_no_user_of_the_context(guard: Guard, stack: Stack) -> None:
    found: list[Decision] = []

    def ask() -> None:
        found.append(guard.check("contracts", "high"))

    with acting(user="ann"):
        copied = contextvars.copy_context()
        for target in (ask, lambda: copied.run(ask)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    users = {event_of(stack, each.event_id)["user_id"] for each in found}
    assert users == ({"ann", stack.agent_id} if len(found) == 2 else set())


def test_many_threads_get_their_own_answers(guard: Guard) -> None:
    def ask(number: int) -> bool:
        open_to_all = number % 2 == 0
        return bool(guard.check("contracts" if open_to_all else "payroll", "low")) == open_to_all

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))


@pytest.mark.deep(stands_in="test_a_coroutine_gets_the_same")
async def test_many_tasks_get_their_own_answers(guard: Guard) -> None:
    async def ask(number: int) -> bool:
        open_to_all = number % 2 == 0
        decision = await guard.acheck("contracts" if open_to_all else "payroll", "low")
        return bool(decision) == open_to_all

    assert all(await asyncio.gather(*(ask(number) for number in range(64))))
    await guard.aclose()


def test_both_errors_have_a_common_base() -> None:
    assert issubclass(Denied, NotAllowed)
    assert issubclass(Unavailable, NotAllowed)
    assert issubclass(Misconfigured, Unavailable)
