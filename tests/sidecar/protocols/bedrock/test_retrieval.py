"""Retrieval from Bedrock's knowledge bases: requests are signed by the sidecar and made for the
right user. With its neighbours, every rule of `protocols/RULES.md`, Bedrock, is a test."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sidecar.protocols.bedrock.front import (
    ALLOWED,
    QUERY,
    Front,
    denied,
    fronting,
    generate,
    invoke,
    numbers,
    retrieve,
)
from tests.sidecar.protocols.bedrock.server import LEVELS, OPEN, SHUT
from tests.support.proxy import policy
from tests.support.scripted_source import answer


async def test_boto3_retrieves_through_the_listener(front: Front) -> None:
    answer = await front.through(retrieve())
    assert numbers(answer) == list(range(len(LEVELS)))
    assert await front.sidecar.decisions() == [("ALLOW", "analysts-read", f"bedrock://kb/{OPEN}")]
    [seen] = front.upstream.seen
    assert "AKIAAGENT" not in seen.head.decode()
    assert seen.values("x-sluice-user") == []


async def test_a_denied_knowledge_base_raises_with_the_reason(front: Front) -> None:
    with pytest.raises(ClientError) as raised:
        await front.through(retrieve(SHUT))
    assert SHUT in raised.value.response["Error"]["Message"]
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert front.upstream.seen == []


@pytest.mark.parametrize("said", [None, {"userId": "bob"}, {"userId": "bob", "groups": ["x"]}, 7])
async def test_the_user_of_the_request_is_replaced_by_the_stated_one(
    front: Front, said: Any
) -> None:
    body = {**QUERY} if said is None else {**QUERY, "userContext": said}
    answered = await front.post(f"/knowledgebases/{OPEN}/retrieve", body, "X-Sluice-User: eve")
    assert answered.status == 200
    assert front.script.asked[-1] == {**QUERY, "userContext": {"userId": "eve"}}
    # If no user is stated, it is the source's default.
    await front.post(f"/knowledgebases/{OPEN}/retrieve", body)
    assert front.script.asked[-1]["userContext"] == {"userId": "ada"}


@pytest.mark.parametrize(
    ("target", "status", "name"),
    [
        # Other spellings of an identifier: an ARN, lower case, escapes.
        (f"/knowledgebases/arn:aws:bedrock:x:123456789012:knowledge-base%2F{OPEN}/retrieve", 400,
         "unreadable_request"),
        (f"/knowledgebases/{SHUT.lower()}/retrieve", 403, "unresolved_source"),
        (f"/knowledgebases/%4B{SHUT[1:]}/retrieve", 403, "analysts-read"),
        (f"/knowledgebases/{OPEN}/../{SHUT}/retrieve", 400, "unreadable_request"),
        (f"/knowledgebases/{OPEN}/retrieve?nextToken=x", 400, "unreadable_request"),
        (f"/knowledgebases/{OPEN}/retrieve/", 403, "unclassified_route"),
        (f"/knowledgebases/{OPEN}/search", 403, "unclassified_route"),
    ],
)  # fmt: skip
async def test_no_spelling_reaches_another_knowledge_base(
    front: Front, target: str, status: int, name: str
) -> None:
    denied(await front.post(target, QUERY), name, status)
    assert front.upstream.seen == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"retrievalQuery":{"text":"a"},"retrievalQuery":{"text":"b"}}',
        {**QUERY, "brandNew": {"knowledgeBase": SHUT}},
        {**QUERY, "retrievalConfiguration": []},
        {**QUERY, "retrievalConfiguration": {"vectorSearchConfiguration": "x"}},
        {**QUERY, "retrievalConfiguration": {"kendraSearchConfiguration": {}}},
        {**QUERY, "nextToken": 7},
        b"[]",
    ],
)
async def test_an_unknown_body_is_refused(front: Front, body: Any) -> None:
    denied(await front.post(f"/knowledgebases/{OPEN}/retrieve", body), "unreadable_request", 400)
    assert front.upstream.seen == []


async def test_another_knowledge_base_in_the_body_is_judged_too(front: Front) -> None:
    body = {**QUERY, "retrievalConfiguration": {
        "vectorSearchConfiguration": {"deep": [{"knowledgeBaseId": SHUT}]}
    }}  # fmt: skip
    denied(await front.post(f"/knowledgebases/{OPEN}/retrieve", body), "analysts-read")


VECTOR, MANAGED = "vectorSearchConfiguration", "managedSearchConfiguration"
MARKED = policy(allowed_sources=ALLOWED, max_sensitivity="medium")


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("search", [VECTOR, MANAGED, None])
@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, [0, 1]),
        ({"equals": {"key": "number", "value": 1}}, [1]),
        ({"in": {"key": "level", "value": ["low", "high", "critical"]}}, [0]),
        ({"orAll": [{"equals": {"key": "level", "value": "high"}},
                    {"equals": {"key": "number", "value": 0}}]}, [0]),
    ],
)  # fmt: skip
async def test_only_documents_of_allowed_levels_are_found(
    tmp_path: Path, obeys: bool, search: str | None, own: Any, expected: list[int]
) -> None:
    async with fronting(tmp_path, MARKED, sensitivity_field="level") as front:
        front.script.obeys = obeys
        more: dict[str, Any] = {}
        if search is not None:
            more["retrievalConfiguration"] = {search: {} if own is None else {"filter": own}}
        answer = await front.through(retrieve(**more))
        [asked] = front.script.asked
        [(where, pushed)] = asked["retrievalConfiguration"].items()
        condition = {"in": {"key": "level", "value": ["low", "medium"]}}
        if search is None or own is None:
            assert pushed["filter"] == condition
        else:
            assert pushed["filter"] == {"andAll": [own, condition]}
        assert where == search or search is None
        # A server that ignores the condition is caught by the check.
        found = expected if obeys and search is not None else [0, 1]
        assert numbers(answer) == found
        [lineage] = await front.sidecar.lineage()
        assert lineage["detail"]["withheld"] == (0 if obeys else len(LEVELS) - 2)


async def test_an_agent_that_may_see_every_level_sees_every_document(tmp_path: Path) -> None:
    readers = policy(allowed_sources=ALLOWED, max_sensitivity="critical")
    async with fronting(tmp_path, readers, sensitivity_field="level") as front:
        assert numbers(await front.through(retrieve())) == list(range(len(LEVELS)))
        assert "retrievalConfiguration" not in front.script.asked[0]


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b"", b'{"retrievalResults": {}}', b'{"retrievalResults": [7]}', b"{}",
     b'{"retrievalResults": [], "nextToken": 7}'],
)  # fmt: skip
async def test_a_response_that_can_not_be_parsed_is_withheld(tmp_path: Path, body: bytes) -> None:
    async with fronting(tmp_path, MARKED, sensitivity_field="level") as front:
        front.upstream.script = answer(body=body)
        answered = await front.post(f"/knowledgebases/{OPEN}/retrieve", QUERY)
        assert answered.status == 502


async def test_a_request_that_cannot_be_filtered_is_judged_at_the_highest_level(
    tmp_path: Path,
) -> None:
    async with fronting(tmp_path, MARKED, sensitivity_field="level") as front:
        for call in (generate(OPEN), generate(OPEN, stream="_stream"), invoke()):
            with pytest.raises(ClientError, match="critical"):
                await front.through(call)
        assert front.upstream.seen == []
