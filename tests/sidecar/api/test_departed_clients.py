"""A batch ends with its client: what was decided is recorded, and nothing more is decided."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from sidecar.enforce import Enforcer
from tests.sidecar.proxy.raw_client import leave
from tests.support import waiting
from tests.support.fake_control_api import EVALUATE_KEY
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


@pytest.mark.parametrize("how", LEAVES)
@pytest.mark.parametrize("kind", BATCHES)
async def test_a_batch_ends_with_its_client(
    sidecar: RunningSidecar, monkeypatch: pytest.MonkeyPatch, kind: str, how: str
) -> None:
    submit, go, begun = Enforcer.submit, asyncio.Event(), 0

    async def slow(self: Enforcer, *given: Any, **more: Any) -> Any:
        nonlocal begun
        begun += 1
        await go.wait()
        return await submit(self, *given, **more)

    monkeypatch.setattr(Enforcer, "submit", slow)
    path, body = BATCHES[kind]
    data = orjson.dumps(body)
    _, writer = await asyncio.open_connection(sidecar.address.host, sidecar.address.port)
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {EVALUATE_KEY}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
    await until_async("the first is being decided", lambda: begun == 1)
    LEAVES[how](writer)
    await until_async("the connection is gone", lambda: not sidecar.parts.connections.open)
    go.set()
    await waiting.turns()
    assert begun == 1
    assert len(await sidecar.records()) == 1
