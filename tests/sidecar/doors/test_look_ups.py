"""What a check asks the data source itself, with the headers that the gateway passed on."""

import asyncio
from pathlib import Path

import orjson

from tests.sidecar.doors.door_setup import door
from tests.support.proxy import policy
from tests.support.scripted_source import Seen, data_source

COLLECTIONS = "/api/v2/tenants/t/databases/d/collections"
ID = "0b7d3c1e-3b0f-4f57-9a2c-1f4f0a8f4a11"


async def test_a_name_is_looked_up_and_its_meaning_is_judged_too(tmp_path: Path) -> None:
    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        # The data source knows another spelling of the name that was asked for.
        found = {"id": ID, "name": "payroll", "tenant": "t", "database": "d"}
        body = orjson.dumps(found)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)

    shut = policy(denied_sources=("chroma://kb/t/d/payroll",))
    async with (
        data_source() as upstream,
        door(tmp_path, shut, kind="chroma", port=upstream.port) as asked,
    ):
        upstream.script = script
        credentials = (b"Authorization", b"Bearer of-the-user")
        outcome = await asked.ask("GET", f"{COLLECTIONS}/contracts", credentials)
        assert not outcome.passes
        [record] = await asked.records()
        assert record["source_id"] == "chroma://kb/t/d/payroll"
        [seen] = upstream.begun
        assert seen.values("authorization") == ["Bearer of-the-user"]
        assert seen.line == f"GET {COLLECTIONS}/contracts HTTP/1.1"
