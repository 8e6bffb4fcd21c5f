"""What takes long ends with its client: a batch, the claim of a session, a search. What was decided
is recorded, and nothing more is decided."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from policies.definitions.model import Key
from sidecar.authzen.search.claimants import PacedSearch
from sidecar.enforce import Enforcer
from tests.sidecar.authzen.searching import ADMIN_KEY, keyed
from tests.sidecar.proxy.raw_client import leave
from tests.support import waiting
from tests.support.fake_control_api import EVALUATE_KEY, FakeControlApi
from tests.support.sidecar import RunningSidecar, ask
from tests.support.waiting import until_async

QUESTION = {
    "subject": {"type": "user", "id": "ada", "properties": {"role": "analyst"}},
    "action": {"name": "read"},
    "resource": {"type": "source", "id": "kb"},
}
BATCHES: dict[str, tuple[str, Any]] = {
    "retrievals": ("/v1/context/evaluate/batch", {"items": [ask()] * 20}),
    "questions": ("/access/v1/evaluations", {"evaluations": [QUESTION] * 20}),
}


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


LEAVES: dict[str, Callable[[asyncio.StreamWriter], None]] = {"closes": close, "resets": leave}


async def asking(
    sidecar: RunningSidecar, path: str, body: Any, key: str = EVALUATE_KEY
) -> asyncio.StreamWriter:
    """The connection of a client that has sent this request."""
    data = orjson.dumps(body)
    _, writer = await asyncio.open_connection(sidecar.address.host, sidecar.address.port)
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {key}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
    return writer


@pytest.mark.parametrize("how", LEAVES)
@pytest.mark.parametrize("kind", BATCHES)
async def test_a_batch_ends_with_its_client(
    sidecar: RunningSidecar, monkeypatch: pytest.MonkeyPatch, kind: str, how: str
) -> None:
    decide, go, begun = Enforcer.decide, asyncio.Event(), 0

    async def slow(self: Enforcer, *given: Any, **more: Any) -> Any:
        nonlocal begun
        begun += 1
        await go.wait()
        return await decide(self, *given, **more)

    monkeypatch.setattr(Enforcer, "decide", slow)
    path, body = BATCHES[kind]
    writer = await asking(sidecar, path, body)
    await until_async("the first is being decided", lambda: begun == 1)
    LEAVES[how](writer)
    await until_async("the connection is gone", lambda: not sidecar.parts.connections.open)
    go.set()
    await waiting.turns()
    assert begun == 1
    assert len(await sidecar.records()) == 1


CLAIMS: dict[str, tuple[str, Any]] = {
    "retrieval": ("/v1/context/evaluate", ask(session_id="s-1")),
    "retrievals": ("/v1/context/evaluate/batch", {"items": [ask(session_id="s-1")] * 20}),
}


@pytest.mark.parametrize("how", LEAVES)
@pytest.mark.parametrize("kind", CLAIMS)
async def test_a_claim_of_a_session_ends_with_its_client(
    sidecar: RunningSidecar, control: FakeControlApi, kind: str, how: str
) -> None:
    control.hold_claims = asyncio.Event()
    writer = await asking(sidecar, *CLAIMS[kind])
    await until_async("the session is being claimed", lambda: control.claims)
    LEAVES[how](writer)
    await until_async("it is recorded", sidecar.records)
    [record] = await sidecar.records()
    assert record["pub"]["response"]["policy_name"] == "evaluation_error"
    assert record["pub"]["response"]["reason"].endswith("the client left")
    control.hold_claims.set()
    assert (await sidecar.evaluate(session_id="s-1"))["decision"] == "ALLOW", "it is free"


@pytest.mark.parametrize("how", LEAVES)
async def test_a_search_ends_with_its_client(
    control: FakeControlApi, sidecar: RunningSidecar, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    under_way, ended = [0], 0

    async def rest(_self: PacedSearch, *, last: bool = False) -> None:
        nonlocal ended
        assert not last
        under_way[0] += 1
        try:
            await waiting.never()
        finally:
            ended += 1

    monkeypatch.setattr(PacedSearch, "rest", rest)
    reader = keyed(ADMIN_KEY, Key("key_admin", "admin"))
    await sidecar.follows(control.publish(reader))
    body = {**QUESTION, "subject": {"type": "agent"}}
    writer = await asking(sidecar, "/access/v1/search/subject", body, ADMIN_KEY)
    await until_async("the search is under way", lambda: under_way[0])
    LEAVES[how](writer)
    await until_async("it has ended", lambda: ended)
    assert await sidecar.records() == []
