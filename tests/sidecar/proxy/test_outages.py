"""An outage of the sidecar is not a permission: what it can't decide or record gets 503 at every
way in, with a time to try again, and the same decision in its body and its record."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.evaluate import Decision
from policies.ground.addresses import ListenAddress
from sidecar.proxy.assembly import FORWARD_PROXY, ProxyPorts
from sidecar.proxy.local_response import LocalResponse
from sidecar.spool.errors import SpoolFull
from tests.sidecar.proxy.raw_client import Answered, ask, get
from tests.support.proxy import Sidecar, listening, policy, sidecar, source
from tests.support.scripted_source import DataSource, data_source

STALE, FULL = "policy_set_stale", "audit_unavailable"
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "open"}}


def stale(made: Sidecar) -> None:
    made.enforcer.policies.freshness.expire("a test")


def full(made: Sidecar) -> None:
    """Only denials have room."""
    put = made.spool.put_together

    def put_denials(records: Any, *, denial: bool, urgent: bool = True) -> Any:
        if not denial:
            raise SpoolFull
        return put(records, denial=denial, urgent=urgent)

    made.spool.put_together = put_denials  # type: ignore[method-assign]


def lost(made: Sidecar) -> None:
    """Nothing has room."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise SpoolFull

    made.spool.put_together = refuse  # type: ignore[method-assign]


OUTAGES: dict[str, Callable[[Sidecar], None]] = {STALE: stale, FULL: full}


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[tuple[Sidecar, DataSource]]:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        yield made, upstream


def is_outage(answered: Answered, name: str) -> None:
    assert answered.status == 503, answered.raw
    assert int(answered.fields["retry-after"]) > 0
    assert answered.fields["x-sluice-decision"] == "DENY"
    decision = answered.json["decision"]
    assert (decision["decision"], decision["policy_name"]) == ("DENY", name)
    assert answered.fields["x-sluice-event-id"] == decision["event_id"]
    assert answered.json["message"] == decision["reason"]
    assert answered.json["code"] == 503


@pytest.mark.parametrize("name", OUTAGES)
async def test_an_outage_is_answered_with_503_and_recorded_by_its_name(
    tmp_path: Path, name: str
) -> None:
    async with running(tmp_path) as (made, upstream):
        OUTAGES[name](made)
        async with listening(made, source(upstream.port)) as port:
            is_outage(await ask(port, get("/a")), name)
        assert await made.decisions() == [("DENY", name, "rest://kb/a")]


async def test_an_outage_is_answered_with_503_to_requests_and_tunnels_of_the_proxy(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (made, upstream):
        stale(made)
        tcp = source(1, "tcp", alias="db", listen=None, hosts=("db.test:5432",))
        tcp = replace(tcp, upstream="tcp://127.0.0.1:1")
        named = ProxyPorts(ListenAddress("127.0.0.1", 0))
        proxy = made.proxy((source(upstream.port), tcp), named=named)
        await proxy.start()
        try:
            port = proxy.port(FORWARD_PROXY)
            line = f"GET http://127.0.0.1:{upstream.port}/a HTTP/1.1\r\n"
            host = f"Host: 127.0.0.1:{upstream.port}\r\n\r\n"
            is_outage(await ask(port, (line + host).encode()), STALE)
            tunnel = b"CONNECT db.test:5432 HTTP/1.1\r\nHost: db.test:5432\r\n\r\n"
            refused = await ask(port, tunnel)
            is_outage(refused, STALE)
            assert refused.fields["proxy-status"] == "sluice; error=proxy_internal_error"
        finally:
            await proxy.close(1)


async def post(port: int, message: object) -> Answered:
    data = orjson.dumps(message)
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: kb\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return await ask(port, head.encode() + data)


async def test_an_outage_of_an_mcp_call_is_a_json_rpc_error_with_503(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as (made, upstream),
        listening(made, source(upstream.port, "mcp")) as port,
    ):
        stale(made)
        answered = await post(port, CALL)
        assert answered.status == 503
        assert int(answered.fields["retry-after"]) > 0
        assert answered.json["id"] == 7
        assert answered.json["error"]["code"] == -32001
        assert answered.json["error"]["data"]["policy_name"] == STALE
        lost(made)
        answered = await post(port, CALL)
        assert answered.status == 503
        assert answered.json["id"] == 7
        assert answered.json["error"]["data"] == {"error": "Service Unavailable", "code": 503}


async def test_without_any_record_nothing_is_decided_and_the_agent_may_try_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (made, upstream):
        lost(made)
        async with listening(made, source(upstream.port)) as port:
            answered = await ask(port, get("/a"))
        assert answered.status == 503
        assert int(answered.fields["retry-after"]) > 0
        assert "decision" not in answered.json
        assert upstream.begun == []


def test_a_policy_of_the_same_name_is_no_outage() -> None:
    decision = Decision("DENY", STALE, "no", "source", "pol_1", 1, ())
    assert LocalResponse.of_denial(403, decision, "event").status == 403


async def test_a_denial_stays_403_without_a_time_to_try_again(tmp_path: Path) -> None:
    async with data_source() as upstream, sidecar(tmp_path, policy(allowed_sources=())) as made:
        async with listening(made, source(upstream.port)) as port:
            answered = await ask(port, get("/a"))
        assert answered.status == 403
        assert "retry-after" not in answered.fields
