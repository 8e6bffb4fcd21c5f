"""`POST /access/v1/evaluations`: defaults, items, semantics, and what is recorded."""

from typing import Any

import orjson
import pytest

from policies.ground.errors import Malformed
from sidecar.authzen.question import read_evaluations
from tests.sidecar.authzen.questions import EVALUATIONS, question
from tests.sidecar.error_bodies import is_error
from tests.support.fake_control_api import AGENT, ROLE
from tests.support.sidecar import FaultyDisk, RunningSidecar

ALLOWED: dict[str, Any] = {}
DENIED = {"resource": {"type": "source", "id": "payroll"}}
UNMAPPED = {"action": {"name": "delete"}}
BROKEN = {"subject": None}

SEMANTICS = (
    "`options.evaluations_semantic` must be one of execute_all, deny_on_first_deny, "
    "permit_on_first_permit"
)


async def ask(running: RunningSidecar, *items: Any, **changed: Any) -> Any:
    body = question(evaluations=list(items), **changed)
    answer = await running.call("POST", EVALUATIONS, orjson.dumps(body))
    assert answer.status == 200, answer.body
    assert "X-Sluice-Event-Id" not in answer.headers
    told = answer.json()
    assert told.keys() == {"evaluations"}
    return told["evaluations"]


async def sources(running: RunningSidecar) -> list[tuple[str, str]]:
    return [(each["eid"], each["pub"]["request"]["source_id"]) for each in await running.records()]


async def test_each_item_has_its_answer_and_its_event_in_order(sidecar: RunningSidecar) -> None:
    answers = await ask(sidecar, ALLOWED, DENIED, BROKEN, UNMAPPED, ALLOWED)
    assert [each["decision"] for each in answers] == [True, False, False, False, True]
    assert answers[2] == {
        "decision": False,
        "context": {"error": {"status": 400, "message": "`subject` must be an object"}},
    }
    assert answers[3]["context"]["policy_name"] == "unmapped_request"
    recorded = [each["context"]["event_id"] for each in answers if each is not answers[2]]
    assert await sources(sidecar) == list(
        zip(recorded, ["contracts", "payroll", "authzen://unmapped", "contracts"], strict=True)
    )


async def test_an_item_replaces_a_default_whole(sidecar: RunningSidecar) -> None:
    answers = await ask(
        sidecar,
        {"subject": {"type": "agent", "id": AGENT}},
        {"resource": {"type": "source", "id": "contracts"}},
        {"context": {}},
    )
    # Without the default's properties, the level is `critical`.
    assert [each["decision"] for each in answers] == [True, False, True]
    records = await sidecar.records()
    assert [each["pub"]["request"]["sensitivity_level"] for each in records] == [
        "high", "critical", "high",
    ]  # fmt: skip


async def test_an_item_may_contain_every_part_of_the_question(sidecar: RunningSidecar) -> None:
    body = orjson.dumps({"evaluations": [question(), {"action": {"name": "read"}}]})
    answers = (await sidecar.call("POST", EVALUATIONS, body)).json()["evaluations"]
    assert answers[0]["decision"] is True
    assert answers[1]["context"]["error"]["message"] == "`subject` is required"


@pytest.mark.parametrize(
    ("semantic", "items", "decisions", "recorded"),
    [
        ("execute_all", [DENIED, ALLOWED, DENIED], [False, True, False], 3),
        ("deny_on_first_deny", [ALLOWED, DENIED, ALLOWED], [True, False], 2),
        ("deny_on_first_deny", [ALLOWED, BROKEN, ALLOWED], [True, False], 1),
        ("deny_on_first_deny", [ALLOWED, UNMAPPED, ALLOWED], [True, False], 2),
        ("deny_on_first_deny", [ALLOWED, ALLOWED], [True, True], 2),
        ("permit_on_first_permit", [DENIED, ALLOWED, DENIED], [False, True], 2),
        ("permit_on_first_permit", [BROKEN, UNMAPPED, DENIED], [False, False, False], 2),
    ],
)
async def test_the_semantic_determines_the_last_answer(
    sidecar: RunningSidecar,
    semantic: str,
    items: list[Any],
    decisions: list[bool],
    recorded: int,
) -> None:
    answers = await ask(sidecar, *items, options={"evaluations_semantic": semantic, "x": 1})
    assert [each["decision"] for each in answers] == decisions
    assert len(await sidecar.records()) == recorded


async def test_a_hundred_items_are_on_disk_by_one_sync(
    sidecar: RunningSidecar, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs, sync = [], disk.sync

    def counted(descriptor: int) -> None:
        syncs.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(disk, "sync", counted)
    answers = await ask(sidecar, *[ALLOWED] * 100)
    assert len(syncs) == 1
    assert len({each["context"]["event_id"] for each in answers}) == 100
    assert len(await sidecar.records()) == 100


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"evaluations": None}, "`evaluations` must be an array"),
        ({"evaluations": {}}, "`evaluations` must be an array"),
        ({"evaluations": [{}] * 101}, "`evaluations` has 101 items; the limit is 100"),
        ({"options": []}, "`options` must be an object"),
        ({"options": None}, "`options` must be an object"),
        (
            {"options": {"evaluations_semantic": "all"}},
            SEMANTICS,
        ),
        (
            {"options": {"evaluations_semantic": None}, "evaluations": []},
            SEMANTICS,
        ),
        ({"subject": []}, "`subject` must be an object"),
        ({"subject": {"type": "agent"}}, "`subject.id` is required"),
        ({"resource": {"id": "a"}}, "`resource.type` is required"),
        ({"action": {}}, "`action.name` is required"),
        ({"context": 1}, "`context` must be an object"),
    ],
)
async def test_a_fault_of_the_whole_request_is_refused_with_400(
    sidecar: RunningSidecar, changed: dict[str, Any], message: str
) -> None:
    whole = {name: each for name, each in question().items() if name not in changed}
    body = orjson.dumps({**whole, "evaluations": [question()], **changed})
    answer = await sidecar.call("POST", EVALUATIONS, body)
    assert answer.status == 400
    assert is_error(400, answer.body)["message"] == message
    assert await sidecar.records() == []


@pytest.mark.parametrize("item", [None, 1, "a", [], [{}]])
async def test_an_item_that_is_no_object_is_in_error(sidecar: RunningSidecar, item: Any) -> None:
    answers = await ask(sidecar, item, ALLOWED)
    assert answers[0]["context"]["error"] == {
        "status": 400, "message": "the item must be an object",
    }  # fmt: skip
    assert answers[1]["decision"] is True


def test_a_request_without_items_is_a_single_question() -> None:
    assert read_evaluations(question()) is None
    assert read_evaluations(question(evaluations=[])) is None
    with pytest.raises(Malformed):
        read_evaluations({"evaluations": [], "options": 1})


async def test_a_missing_document_leads_to_no_duplicate_record(
    sidecar: RunningSidecar,
) -> None:
    strange = {"subject": {"type": "agent", "id": "agt_strange"}}
    answers = await ask(sidecar, ALLOWED, strange, ALLOWED)
    assert [each["decision"] for each in answers] == [True, False, True]
    assert answers[1]["context"]["policy_name"] == "unmapped_request"
    assert len(await sidecar.records()) == 3
    assert ROLE in str(await sidecar.records())
