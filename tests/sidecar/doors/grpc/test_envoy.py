"""A real Envoy asks a gRPC check door: what of our answers it acts on, and that nothing passes but
what was allowed."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession

from policies.ground.addresses import ListenAddress
from policies.ground.keys import make_key
from sidecar.settings.model import Pair
from sidecar.settings.sections import Door, DoorAgent, DoorTls
from sidecar.spool import SpoolFull
from tests.sidecar.doors.grpc.envoy import Envoy, client_tls, envoy
from tests.sidecar.doors.grpc.grpc_setup import KEY, LOCAL, GrpcDoor, grpc_door
from tests.support.certificates import authority
from tests.support.ports import free_port
from tests.support.proxy import policy
from tests.support.scripted_source import DataSource, data_source
from tests.support.waiting import until_async

OTHER_KEY = make_key(b"other".ljust(32))
BODY = {"max_request_bytes": 1000, "allow_partial_message": True, "pack_as_bytes": True}
JSON = {"content-type": "application/json"}
B_ALONE = policy(allowed_sources=("rest://kb/b",))
OURS = ("user", "session", "task", "sensitivity")


class Setting:
    """An Envoy, the door that it asks, and the data source behind it."""

    def __init__(
        self, gateway: Envoy, door: GrpcDoor, source: DataSource, client: ClientSession
    ) -> None:
        self.gateway = gateway
        self.door = door
        self.source = source
        self._client = client

    async def ask(
        self, method: str = "GET", path: str = "/a", **more: Any
    ) -> tuple[int, dict[str, str], bytes]:
        url = f"http://127.0.0.1:{self.gateway.port}{path}"
        async with self._client.request(method, url, **more) as answer:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, headers, await answer.read()

    async def status(self, *asked: Any, **more: Any) -> int:
        return (await self.ask(*asked, **more))[0]


@asynccontextmanager
async def setting(
    tmp_path: Path, *policies: Any, gateway: dict[str, Any] | None = None, **changes: Any
) -> AsyncIterator[Setting]:
    async with (
        data_source() as source,
        grpc_door(tmp_path, *policies, port=source.port, **changes) as door,
        envoy(tmp_path, door.port, source.port, **(gateway or {})) as started,
        ClientSession() as client,
    ):
        yield Setting(started, door, source, client)


async def test_an_allowed_request_is_forwarded_with_its_event(tmp_path: Path) -> None:
    async with setting(tmp_path) as found:
        sent = {f"X-Sluice-{name}": "high" for name in OURS if name != "session"}
        sent |= {"X-API-Key": OTHER_KEY, "X-Sluice-Event-Id": "made-up", "X-Other": "stays"}
        status, headers, body = await found.ask(headers=sent)
        [record] = await found.door.sidecar.records()
        [seen] = found.source.seen
        assert (status, body) == (200, b"ok")
        assert headers["x-sluice-event-id"] == record["eid"]
        assert seen.values("x-sluice-event-id") == [record["eid"]]
        assert seen.values("x-other") == ["stays"]
        for name in ("x-api-key", *(f"x-sluice-{each}" for each in OURS)):
            assert seen.values(name) == []
        request = record["pub"]["request"]
        assert (request["source_id"], request["task_type"]) == ("rest://kb/a", "high")
        await until_async("the access log is written", found.gateway.access_log)
        assert found.gateway.access_log() == [
            {
                "decision": "ALLOW",
                "event_id": record["eid"],
                "policy_name": "analysts-read",
                "check": "none",
            }
        ]


async def test_a_denied_request_is_answered_and_not_forwarded(tmp_path: Path) -> None:
    async with setting(tmp_path, B_ALONE) as found:
        status, headers, body = await found.ask()
        [record] = await found.door.sidecar.records()
        assert status == 403
        assert headers["content-type"] == "application/json"
        assert headers["x-sluice-decision"] == "DENY"
        assert headers["x-sluice-event-id"] == record["eid"]
        assert orjson.loads(body)["decision"]["event_id"] == record["eid"]
        assert await found.status("GET", "/b") == 200
        assert [seen.target for seen in found.source.seen] == ["/b"]


async def test_a_client_s_own_key_does_not_replace_the_gateway_s(tmp_path: Path) -> None:
    gateway = {"key": None}
    async with setting(tmp_path, gateway=gateway) as found:
        for headers in ({"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}, {}):
            assert await found.status(headers=headers) == 401
        assert found.source.seen == []
        assert await found.door.records() == []


async def test_an_invalid_key_lets_nothing_pass(tmp_path: Path) -> None:
    async with setting(tmp_path, gateway={"key": OTHER_KEY, "failure_mode_allow": True}) as found:
        assert await found.status(headers={"X-API-Key": KEY}) == 403
        assert found.source.seen == []


def mcp_call(**arguments: str) -> bytes:
    params = {"name": "find", "arguments": arguments}
    return orjson.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})


@pytest.mark.parametrize("raw", [False, True])
async def test_a_body_is_judged_only_if_it_is_whole(tmp_path: Path, raw: bool) -> None:
    gateway = {"with_request_body": BODY, "encode_raw_headers": raw, "failure_mode_allow": True}
    allowed = policy(allowed_sources=("mcp://kb/tool/find", "mcp://kb/data/public"))
    changes = {"kind": "mcp", "arguments": {"find": "index"}}
    async with setting(tmp_path, allowed, gateway=gateway, **changes) as found:
        spoofed = {**JSON, "X-Envoy-Auth-Partial-Body": "false"}
        for path, body, status in (
            ("/mcp", mcp_call(index="public"), 200),
            ("/mcp", mcp_call(index="secret"), 200),  # a denial that a client can read
            ("/mcp", mcp_call(index="public", more="x" * 2000), 403),
            ("/mcp", b"", 403),
            ("/mcp", b"{", 403),
        ):
            assert await found.status("POST", path, data=body, headers=spoofed) == status
        [seen] = found.source.seen
        assert b"public" in seen.body
        names = [each["policy_name"] for each in await found.door.records()]
        assert names.count("unreadable_request") == 3


async def test_a_denied_mcp_call_reaches_the_client_as_json_rpc(tmp_path: Path) -> None:
    gateway = {"with_request_body": BODY}
    async with setting(tmp_path, B_ALONE, gateway=gateway, kind="mcp") as found:
        status, headers, body = await found.ask("POST", "/mcp", data=mcp_call(), headers=JSON)
        assert (status, headers["x-sluice-decision"]) == (200, "DENY")
        assert orjson.loads(body)["id"] == 7
        assert found.source.seen == []


async def test_a_streamed_body_that_envoy_cuts_is_partial(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        # No chunks come to exactly the limit: Envoy says of such a part that it is whole.
        whole = mcp_call(more="x" * 3000)
        for at in range(0, len(whole), 700):
            yield whole[at : at + 700]

    async with setting(tmp_path, gateway={"with_request_body": BODY}, kind="mcp") as found:
        status = await found.status("POST", "/mcp", data=chunks(), headers=JSON)
        assert status == 403
        [record] = await found.door.records()
        assert "max_request_bytes" in record["reason"]


async def test_a_repeated_header_is_unreadable(tmp_path: Path) -> None:
    twice = [("X-Sluice-Task", "a"), ("X-Sluice-Task", "b")]
    for raw in (False, True):
        (folder := tmp_path / str(raw)).mkdir()
        async with setting(folder, gateway={"encode_raw_headers": raw}) as found:
            assert await found.status(headers=twice) == 403
            [record] = await found.door.records()
            assert record["policy_name"] == "unreadable_request"


async def test_headers_of_the_gateway_take_precedence(tmp_path: Path) -> None:
    gateway = {"words": {"sluice_task": "of-the-gateway", "sluice_role": "admin"}}
    async with setting(tmp_path, gateway=gateway) as found:
        assert await found.status(headers={"X-Sluice-Task": "of-the-client"}) == 200
        [record] = await found.door.records()
        assert (record["task_type"], record["agent_role"]) == ("of-the-gateway", "analyst")


async def test_only_a_client_of_the_authority_is_answered(tmp_path: Path) -> None:
    ours, other = authority(), authority("other")
    server = ours.issue("127.0.0.1")
    (files := tmp_path / "door").mkdir()
    certificate, key = files / "tls.crt", files / "tls.key"
    shutil.copy(server.certificate, certificate)
    shutil.copy(server.key, key)
    settings = Door(
        "edge",
        "envoy_grpc",
        "kb",
        LOCAL,
        listen_tls=DoorTls(certificate, key, ours.path),
        key="none",
        agent=DoorAgent(None, "analyst"),
    )
    async with data_source() as source, grpc_door(tmp_path, settings=settings) as door:

        async def status(shown: Pair | None) -> int:
            """What a client gets through an Envoy that shows this certificate."""
            with tempfile.TemporaryDirectory() as folder:
                context = client_tls(ours.path, shown)
                asking = envoy(Path(folder), door.port, source.port, key=None, tls=context)
                async with (
                    asking as started,
                    ClientSession() as client,
                    client.get(f"http://127.0.0.1:{started.port}/a") as answer,
                ):
                    return answer.status

        assert await status(ours.issue("gateway")) == 200
        assert await status(other.issue("gateway")) == 403
        assert await status(None) == 403
        # A certificate that nothing trusts, and then one that is trusted again.
        stranger, renewed = other.issue("127.0.0.1"), ours.issue("127.0.0.1")
        for pair, expected in ((stranger, 403), (renewed, 200)):
            shutil.copy(pair.certificate, certificate)
            shutil.copy(pair.key, key)
            assert await status(ours.issue("gateway")) == expected


@pytest.mark.parametrize("path", ["/a/../b", "/a//b", "/a%2fb", "/a%5cb", "/%2e%2e/b", "/a#b"])
async def test_a_path_with_two_readings_does_not_pass(tmp_path: Path, path: str) -> None:
    async with setting(tmp_path) as found:
        reader, writer = await asyncio.open_connection("127.0.0.1", found.gateway.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: kb\r\nConnection: close\r\n\r\n".encode())
        status = (await reader.readline()).split()[1]
        writer.close()
        assert status in (b"400", b"403")
        assert found.source.seen == []


async def test_nothing_passes_while_the_sidecar_can_decide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with setting(tmp_path, gateway={"failure_mode_allow": True}) as found:
        enforcer = found.door.sidecar.enforcer
        with monkeypatch.context() as patch:

            def full(*_: Any, **__: Any) -> None:
                raise SpoolFull

            patch.setattr(found.door.sidecar.spool, "put_together", full)
            assert await found.status() == 503
        with monkeypatch.context() as patch:
            patch.setattr(enforcer.policies.freshness, "stale", lambda _: True)
            assert await found.status() == 403
        [record] = await found.door.records()
        assert record["policy_name"] == "policy_set_stale"
        assert found.source.seen == []
        assert await found.status() == 200


async def test_nothing_passes_while_the_door_restarts(tmp_path: Path) -> None:
    listen = ListenAddress("127.0.0.1", free_port())
    settings = Door("edge", "envoy_grpc", "kb", listen)
    (first := tmp_path / "1").mkdir()
    (second := tmp_path / "2").mkdir()
    async with (
        data_source() as source,
        envoy(tmp_path, listen.port, source.port) as started,
        ClientSession() as client,
    ):

        async def status() -> int:
            async with client.get(f"http://127.0.0.1:{started.port}/a") as answer:
                return answer.status

        async def passes() -> bool:
            return await status() == 200

        async with grpc_door(first, settings=settings):
            await until_async("the first answers", passes)
        forwarded = len(source.seen)
        assert await status() == 403
        assert len(source.seen) == forwarded
        async with grpc_door(second, settings=settings):
            await until_async("the second answers", passes)


async def test_nothing_passes_while_the_door_is_unreachable(tmp_path: Path) -> None:
    async with (
        data_source() as source,
        envoy(tmp_path, 9, source.port) as started,
        ClientSession() as client,
        client.get(f"http://127.0.0.1:{started.port}/a") as answer,
    ):
        assert answer.status == 403
        assert source.seen == []


async def test_nothing_passes_while_the_door_hangs_or_can_record_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with setting(tmp_path) as found:
        answers = asyncio.Event()
        judge = found.door.judgement.judge

        async def late(*asked: Any) -> Any:
            await answers.wait()
            return await judge(*asked)

        with monkeypatch.context() as patch:
            patch.setattr(found.door.judgement, "judge", late)
            assert await found.status() == 403
        # The gateway has given up. The judgement goes on, and its record stands.
        answers.set()
        assert found.source.seen == []
        await until_async("the record is on disk", found.door.records)
        assert len(await found.door.records()) == 1
        assert await found.status() == 200


async def test_open_checks_are_answered_when_the_door_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with setting(tmp_path) as found:
        asked, answers = asyncio.Event(), asyncio.Event()
        judge = found.door.judgement.judge

        async def late(*of: Any) -> Any:
            asked.set()
            await answers.wait()
            return await judge(*of)

        monkeypatch.setattr(found.door.judgement, "judge", late)
        async with asyncio.TaskGroup() as group:
            request = group.create_task(found.status())
            await asked.wait()
            closing = group.create_task(found.door.server.close(10))
            await asyncio.sleep(0)
            answers.set()
        assert request.result() == 200
        assert closing.done()
        assert await found.status() == 403
