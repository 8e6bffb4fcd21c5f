"""Which header brings the API key to the sidecar's own port, on both ways through it, and the two
headers that tell the decision (`CONTRACT.md`, Authentication, Evaluation)."""

from __future__ import annotations

import orjson
import pytest

from tests.sidecar.wire import GOOD, answer_of, connect, request
from tests.support.fake_control_api import EVALUATE_KEY, READ_KEY
from tests.support.sidecar import EVALUATE, RunningSidecar

BATCH = orjson.dumps({"items": [orjson.loads(GOOD)]})
WAYS = [
    ("POST", EVALUATE, GOOD),
    ("POST", f"{EVALUATE}/batch", BATCH),
    ("GET", "/v1/sources", None),
]
BEARER = f"Bearer {EVALUATE_KEY}"


@pytest.mark.parametrize(("method", "path", "body"), WAYS)
async def test_a_bearer_token_is_the_key(
    sidecar: RunningSidecar, method: str, path: str, body: bytes | None
) -> None:
    for form in (BEARER, f"bearer {EVALUATE_KEY}", f"BEARER  {EVALUATE_KEY}"):
        for key in (None, EVALUATE_KEY):
            headers = {"Authorization": form}
            answer = await sidecar.call(method, path, body, key=key, headers=headers)
            assert answer.status == 200, answer.body


@pytest.mark.parametrize(("method", "path", "body"), WAYS)
@pytest.mark.parametrize(
    ("key", "authorization", "status"),
    [
        (None, "Basic YTpi", 401),
        (None, EVALUATE_KEY, 401),
        (None, "Bearer", 401),
        (None, "Bearer nonsense", 403),
        (None, f"Bearer {READ_KEY}", 403),
        (EVALUATE_KEY, f"Bearer {READ_KEY}", 401),
        (READ_KEY, BEARER, 401),
        (EVALUATE_KEY, "Bearer", 401),
    ],
)
async def test_another_header_is_refused_before_the_body_is_read(
    sidecar: RunningSidecar,
    method: str,
    path: str,
    body: bytes | None,
    key: str | None,
    authorization: str,
    status: int,
) -> None:
    headers = {"Authorization": authorization}
    for sent in (body, b"{"):
        answer = await sidecar.call(method, path, sent, key=key, headers=headers)
        assert answer.status == status, answer.body
    assert await sidecar.records() == []


async def test_another_scheme_beside_a_key_is_passed_over(sidecar: RunningSidecar) -> None:
    headers = {"Authorization": "Basic YTpi"}
    assert (await sidecar.call("POST", EVALUATE, GOOD, headers=headers)).status == 200


async def test_a_repeated_key_header_is_refused_with_403(sidecar: RunningSidecar) -> None:
    reader, writer = await connect(sidecar)
    field = b"X-API-Key: %b\r\n" % EVALUATE_KEY.encode()
    writer.write(request(field * 2, GOOD))
    assert (await answer_of(reader))[0] == 403
    writer.close()


async def test_a_path_that_needs_no_key_looks_at_none(sidecar: RunningSidecar) -> None:
    headers = {"Authorization": "Bearer another"}
    assert (await sidecar.call("GET", "/health", key=EVALUATE_KEY, headers=headers)).status == 200


async def test_cached_heads_are_distinguished_by_their_keys(sidecar: RunningSidecar) -> None:
    """The short way keeps what a head said; each connection sends every head twice."""
    reader, writer = await connect(sidecar)
    key = b"X-API-Key: %b\r\n" % EVALUATE_KEY.encode()
    bearer = b"Authorization: %b\r\n" % BEARER.encode()
    differ = key + b"Authorization: Bearer %b\r\n" % READ_KEY.encode()
    for _ in range(3):
        for fields, status in ((key, 200), (bearer, 200), (differ, 401), (key + bearer, 200)):
            writer.write(request(fields, GOOD))
            assert (await answer_of(reader))[0] == status
    writer.close()


@pytest.mark.parametrize("query", ["", "?explain=true"])
async def test_the_decision_is_in_headers_of_first_and_repeated_requests(
    sidecar: RunningSidecar, query: str
) -> None:
    denied = GOOD.replace(b'"contracts"', b'"elsewhere"')
    for _ in range(3):  # from the second on the short way is taken
        for body, decision in ((GOOD, "ALLOW"), (denied, "DENY")):
            answer = await sidecar.call("POST", EVALUATE + query, body)
            told = answer.json()
            assert told["decision"] == decision
            assert answer.headers.getall("X-Sluice-Decision") == [decision]
            assert answer.headers.getall("X-Sluice-Event-Id") == [told["event_id"]]
    refused = await sidecar.call("POST", EVALUATE, b"{")
    assert "X-Sluice-Decision" not in refused.headers
