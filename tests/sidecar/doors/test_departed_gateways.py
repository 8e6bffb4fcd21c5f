"""What is looked up for a check ends with its gateway, over HTTP and over gRPC. The check is then
denied and recorded, since a gateway that gave up may have let the request pass."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sidecar.settings.model import Source
from tests.sidecar.doors.grpc.grpc_setup import CHECK, KEY, grpc_door
from tests.sidecar.doors.grpc.test_messages import http
from tests.sidecar.doors.http.checks import checks, question
from tests.sidecar.proxy.raw_client import leave
from tests.support import waiting
from tests.support.fake_control_api import EVALUATE_KEY
from tests.support.scripted_source import DataSource, Seen, data_source
from tests.support.waiting import until_async

BODY = b"".join(b'{"index":"i%d"}\n{}\n' % line for line in range(20))
DENIED = "DENY", "unresolved_source"
NDJSON = "application/x-ndjson"


@asynccontextmanager
async def silent() -> AsyncIterator[DataSource]:
    """A data source that answers no look-up."""

    async def script(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        await waiting.never()

    async with data_source(script) as made:
        yield made


async def one_look_up(upstream: DataSource) -> None:
    await until_async("a name is looked up", lambda: len(upstream.seen) == 1)


async def broken_off(upstream: DataSource) -> None:
    await until_async("the look-up is broken off", lambda: not upstream.open)
    await waiting.turns()
    assert len(upstream.begun) == 1, "no other name is looked up"


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


LEAVES: dict[str, Callable[[asyncio.StreamWriter], None]] = {"closes": close, "resets": leave}


@pytest.mark.parametrize("how", LEAVES)
async def test_a_gateway_that_leaves_a_check_over_http(tmp_path: Path, how: str) -> None:
    async with silent() as upstream:
        crm = Source("crm", "opensearch", f"http://127.0.0.1:{upstream.port}", None, "medium")
        async with checks(tmp_path, source=crm) as made:
            address = made.running.address
            _, writer = await asyncio.open_connection(address.host, address.port)
            fields = [("Content-Type", NDJSON)]
            writer.write(question("edge", "POST", "/_msearch", fields, BODY, EVALUATE_KEY))
            await one_look_up(upstream)
            LEAVES[how](writer)
            await broken_off(upstream)
            await until_async("it is recorded", made.decided)
            [record] = await made.decided()
            assert (record["decision"], record["policy_name"]) == DENIED


async def test_a_gateway_that_leaves_ends_the_claim_of_a_session(tmp_path: Path) -> None:
    async with checks(tmp_path) as made:
        made.control.hold_claims = asyncio.Event()
        address = made.running.address
        _, writer = await asyncio.open_connection(address.host, address.port)
        fields = [("X-Sluice-Session", "s-1")]
        writer.write(question("edge", "GET", "/a", fields, b"", EVALUATE_KEY))
        await until_async("the session is being claimed", lambda: made.control.claims)
        writer.close()
        await until_async("it is recorded", made.decided)
        [record] = await made.decided()
        assert record["reason"].endswith("the client left")


async def test_a_gateway_that_leaves_ends_its_check_over_grpc(tmp_path: Path) -> None:
    async with (
        silent() as upstream,
        grpc_door(tmp_path, port=upstream.port, kind="opensearch") as door,
    ):
        headers = {"content-type": NDJSON}
        members = {"headers": headers, "raw_body": BODY, "size": len(BODY)}
        request = http(method="POST", path="/_msearch", **members)
        called: Any = door.channel.unary_unary(CHECK)
        call = called(request.SerializeToString(), metadata=[("x-api-key", KEY)], timeout=60)
        waits = asyncio.ensure_future(call)
        await one_look_up(upstream)
        call.cancel()
        await asyncio.wait((waits,))
        await broken_off(upstream)
        await until_async("it is recorded", door.records)
        [record] = await door.records()
        assert (record["decision"], record["policy_name"]) == DENIED
