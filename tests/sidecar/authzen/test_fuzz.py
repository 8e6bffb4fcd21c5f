"""Requests at random, most of them malformed: none gets a 5xx, an ALLOW without its record, or a
200 that is not a decision."""

from random import Random
from typing import Any

import orjson

from tests.sidecar.authzen.questions import EVALUATION, EVALUATIONS, question
from tests.sidecar.error_bodies import is_error
from tests.sidecar.own_loop import sidecar_with_runner
from tests.support.fake_control_api import EVALUATE_KEY, READ_KEY
from tests.support.mutation import mutated
from tests.support.properties import few
from tests.support.sidecar import RunningSidecar

REQUESTS = 10_000
SEED = 17
WORDS = (
    "subject", "action", "resource", "context", "properties", "type", "id", "name", "evaluations",
    "options", "evaluations_semantic", "agent_id", "agent", "role", "agent_role", "user_id",
    "session_id", "query", "context_hash", "task_type", "sensitivity", "sensitivity_level",
)  # fmt: skip
STATUSES = {200, 400, 401, 403, 405, 413}
PIECES = (b'"', b"{", b"}", b"[", b":", b",", b"\\", b"\0", b"\xff", b"\\ud800", b"1e999", b"null")
HEADERS: tuple[dict[str, str], ...] = (
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/json;charset=utf-16"},
    {"X-API-Key": READ_KEY},
    {"X-API-Key": "slc_nothing"},
    {"Authorization": f"Bearer {READ_KEY}"},
    {"X-Request-ID": "r" * 200},
    {"X-Sluice-User": "root", "X-Forwarded-For": "127.0.0.1"},
    {"Content-Encoding": "gzip"},
)


def body_of(random: Random) -> bytes:
    """A question or several, with up to four members changed, and now and then some bytes."""
    body: Any = question()
    if random.random() < 0.5:
        items = [{}, question(), {"action": {"name": "delete"}}, {"subject": None}]
        body["evaluations"] = random.choices(items, k=random.randint(0, 4))
        semantics = ["execute_all", "deny_on_first_deny", "permit_on_first_permit"]
        body["options"] = {"evaluations_semantic": random.choice(semantics)}
    raw = orjson.dumps(mutated(body, random, random.randint(0, 4), WORDS))
    if random.random() < 0.3:
        at = random.randrange(len(raw))
        raw = raw[:at] + random.choice(PIECES) + raw[at + random.randint(0, 3) :]
    if random.random() < 0.05:
        raw = raw[: random.randrange(len(raw))]
    return raw


async def fuzz(running: RunningSidecar, random: Random, count: int) -> dict[int, int]:
    """How many answers had each status."""
    seen: dict[int, int] = {}
    allowed: set[str] = set()
    decided: set[str] = set()
    for _ in range(count):
        path = random.choice([EVALUATION, EVALUATIONS])
        method = "POST" if random.random() < 0.97 else random.choice(["GET", "PUT", "PATCH"])
        headers = random.choice(HEADERS) if random.random() < 0.15 else {}
        body = body_of(random)
        answer = await running.call(method, path, body, key=EVALUATE_KEY, headers=headers)
        assert answer.status in STATUSES, (answer, method, path, headers, body)
        seen[answer.status] = seen.get(answer.status, 0) + 1
        if answer.status != 200:
            is_error(answer.status, answer.body)
            continue
        for each in answers(answer.json()):
            context = each["context"]
            if "error" in context:
                assert each["decision"] is False
                assert context["error"]["status"] == 400
                continue
            decided.add(context["event_id"])
            if each["decision"] is True:
                allowed.add(context["event_id"])
            else:
                assert each["decision"] is False
                assert context["reason_admin"] == {"403": context["reason"]}
    records = [each for each in await running.records() if each["kind"] == "decision"]
    assert {each["eid"] for each in records} == decided
    assert allowed == {
        each["eid"] for each in records if each["pub"]["response"]["decision"] == "ALLOW"
    }
    return seen


def answers(told: dict[str, Any]) -> list[dict[str, Any]]:
    if told.keys() == {"evaluations"}:
        found: list[dict[str, Any]] = told["evaluations"]
        return found
    assert told.keys() == {"decision", "context"}
    return [told]


def test_any_request_is_decided_and_recorded_or_refused() -> None:
    with sidecar_with_runner() as (runner, running):
        seen = runner.run(fuzz(running, Random(SEED), few(REQUESTS)))
    # Both sides of the line are crossed often.
    assert min(seen[200], seen[400]) > few(REQUESTS) / 10
    assert {401, 403, 405} <= seen.keys()
