"""The collections that a request to Qdrant names in its body are judged, at any depth."""

from typing import Any

import pytest

from tests.sidecar.protocols.minimal import Minimal, denied
from tests.sidecar.protocols.qdrant.front import QUERY, SHUT

DEEP = {"prefetch": [{"query": [1.0, 0.1]}, {"prefetch": {"query": 1, "lookup_from": SHUT}}]}
HIDDEN = [
    ("query", {"query": 1, "lookup_from": SHUT}),
    ("query", {"query": [1.0, 0.1], "prefetch": {"query": 1, "lookup_from": SHUT}}),
    ("query", {"query": [1.0, 0.1], "prefetch": [{"prefetch": [DEEP]}]}),
    ("query/batch", {"searches": [QUERY, {"query": 1, "lookup_from": SHUT}]}),
    ("query/batch", {"searches": [QUERY, DEEP]}),
    ("query/groups", {"query": [1.0, 0.1], "group_by": "author", "with_lookup": "shut_docs"}),
    ("query/groups", {"query": [1.0, 0.1], "group_by": "author", "with_lookup": SHUT}),
    ("query/groups", {"query": 1, "group_by": "author", "lookup_from": SHUT}),
    ("search/groups", {"vector": [1.0, 0.1], "group_by": "author", "with_lookup": "shut_docs"}),
    ("recommend", {"positive": [1], "limit": 1, "lookup_from": SHUT}),
    ("recommend/batch", {"searches": [{"positive": [1], "limit": 1, "lookup_from": SHUT}]}),
    ("recommend/groups", {"positive": [1], "group_by": "author", "with_lookup": SHUT}),
    ("discover", {"target": 1, "limit": 1, "lookup_from": SHUT}),
    ("discover/batch", {"searches": [{"target": 1, "limit": 1, "lookup_from": SHUT}]}),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "body"), HIDDEN)
async def test_a_collection_named_in_the_body_is_judged(
    front: Minimal, verb: str, body: object
) -> None:
    denied(
        await front.ask("POST", f"/collections/open_docs/points/{verb}", body), "analysts-read"
    )  # fmt: skip
    assert await front.sources() == [("DENY", "qdrant://kb/shut_docs")]
    assert front.lines == ["GET /aliases"]


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        # Qdrant accepts an array in place of an object.
        ("query", {"query": 1, "lookup_from": ["shut_docs"]}),
        ("query", {"query": 1, "prefetch": [["x", None, None, None, None, None, ["shut_docs"]]]}),
        ("query/groups", {"query": [1.0], "group_by": "a", "with_lookup": ["shut_docs"]}),
        ("query/batch", {"searches": [[["shut_docs"]]]}),
        ("query/batch", {"searches": {"lookup_from": SHUT}}),
        ("query", {"query": [1.0, 0.1], "filter": [None, None, []]}),
        ("query", {"query": 1, "lookup_from": {"collection": ["shut_docs"]}}),
        ("query", {"query": 1, "lookup_from": {}}),
        ("query", {"query": [1.0], "prefetch": "x"}),
        ("query", {"query": [1.0], "with_payload": {"include": [], "exclude": []}}),
        ("query", {"query": [1.0], "with_payload": [["acl"]]}),
    ],
)
async def test_a_member_of_an_unknown_form_is_refused(
    front: Minimal, verb: str, body: object
) -> None:
    answered = await front.ask("POST", f"/collections/open_docs/points/{verb}", body)
    denied(answered, "unreadable_request", 400)
    assert front.lines == []


async def test_prefetch_nested_beyond_reason_is_refused(front: Minimal) -> None:
    body: dict[str, Any] = {"query": [1.0, 0.1]}
    for _ in range(400):
        body = {"prefetch": body}
    answered = await front.ask("POST", "/collections/open_docs/points/query", body)
    denied(answered, "unreadable_request", 400)


async def test_a_repeated_member_is_refused(front: Minimal) -> None:
    raw = b'{"query":1,"lookup_from":{"collection":"open_docs"},"lookup_from":null}'
    answered = await front.ask("POST", "/collections/open_docs/points/query", raw=raw)
    denied(answered, "unreadable_request", 400)


async def test_every_collection_named_is_recorded(front: Minimal) -> None:
    body = {"query": 1, "lookup_from": {"collection": "open_more"}}
    answered = await front.ask("POST", "/collections/docs/points/query", body)
    assert answered.status == 200
    assert sorted(await front.sources()) == [
        ("ALLOW", "qdrant://kb/open_docs"), ("ALLOW", "qdrant://kb/open_more"),
    ]  # fmt: skip
