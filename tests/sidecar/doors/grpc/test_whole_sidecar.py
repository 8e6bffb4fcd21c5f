"""A whole sidecar with a gRPC door: beside a door over HTTP, and as a process."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import uvloop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from policies.ground.addresses import ListenAddress
from sidecar.doors.grpc import check_messages
from sidecar.http.grpc import wire
from sidecar.settings.model import Source
from sidecar.settings.sections import Door
from tests.sidecar.doors.grpc.envoy_messages import message
from tests.sidecar.doors.grpc.grpc_setup import CHECK, HEALTH, code
from tests.sidecar.doors.grpc.test_messages import http
from tests.sidecar.doors.http.checks import DOORS, SPEAKER, Answered, Checks, checks
from tests.support.fake_control_api import EVALUATE_KEY, ROLE, fake_control_api, policy
from tests.support.ports import free_port
from tests.support.sidecar_process import sidecar_process

METADATA = (("x-api-key", EVALUATE_KEY),)
PARTS = [
    "",
    "/",
    "/a",
    "/b",
    "/mcp",
    "/..",
    "/%2e",
    "%2F",
    "//",
    "?x=1",
    "#",
    "é",
    ";",
    "/collections",
]
FIELDS = [
    ("Content-Type", "application/json"),
    ("X-Sluice-User", "ann"),
    ("X-Sluice-Task", "review"),
    ("X-Sluice-Task", ""),
    ("X-Sluice-Sensitivity", "critical"),
    ("X-Sluice-Sensitivity", "none"),
    ("Baggage", "sluice.task=other,k=v"),
    ("Baggage", "sluice.user=%FF"),
    ("Content-Encoding", "gzip"),
    ("Connection", "x-sluice-user"),
    ("X-Envoy-Auth-Partial-Body", "true"),
    ("Authorization", "Bearer x"),
]
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find","arguments":{}}}'
BODIES = [b"", b"{", CALL, b'{"limit":1}']
TIMES = ("timestamp", "event_id", "source_type")


def records_of(found: list[dict[str, Any]], door: str) -> list[dict[str, Any]]:
    """What was decided at a door, but for what names the door and the moment."""
    return [
        {name: value for name, value in each.items() if name not in TIMES}
        for each in found
        if each["source_type"] == door
    ]


@pytest.mark.deep(
    stands_in="tests/sidecar/test_every_door.py::test_every_door_gives_the_same_decision_record_and_metrics"
)
@pytest.mark.parametrize("kind", ["rest", "mcp", "qdrant"])
def test_a_door_over_http_and_one_over_grpc_decide_alike(tmp_path: Path, kind: Any) -> None:
    listen = ListenAddress("127.0.0.1", free_port())
    doors = (DOORS[0], Door("mesh-grpc", "envoy_grpc", "crm", listen, agent=SPEAKER))
    source = Source("crm", kind, "http://127.0.0.1:9", None, "medium")
    allowed = policy(allowed_sources=("rest://crm/a*", "mcp://crm/*", "qdrant://crm/*"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        context = checks(tmp_path, allowed, doors=doors, source=source)

        async def start() -> Checks:
            return await context.__aenter__()

        async def stop() -> None:
            await context.__aexit__(None, None, None)

        async def both(request: Any, *asked: Any, **more: Any) -> tuple[Any, Answered]:
            async with grpc.aio.insecure_channel(str(listen)) as channel:
                call: Any = channel.unary_unary(CHECK)
                data = await call(request.SerializeToString(), metadata=METADATA, timeout=20)
            over_http = await found.ask("edge", *asked, **more)
            return message("CheckResponse").FromString(data), over_http

        found = loop.run(start())
        before: list[dict[str, Any]] = []

        @given(
            st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]),
            st.builds(
                "{}{}{}".format,
                st.sampled_from(["/a", "/mcp", "/collections/x/points/scroll"]),
                st.sampled_from(PARTS),
                st.sampled_from(PARTS),
            ),
            st.lists(st.sampled_from(FIELDS), max_size=3, unique_by=lambda field: field[0]),
            st.sampled_from(BODIES),
        )
        @example("POST", "/mcp", FIELDS[:2], CALL)
        @settings(suppress_health_check=[HealthCheck.too_slow])
        def alike(method: str, target: str, fields: list[tuple[str, str]], body: bytes) -> None:
            what = {"method": method, "path": target, "host": "gateway", "size": len(body)}
            request = http(**what, raw_body=body)
            listed = request.attributes.request.http.header_map.headers
            for name, value in fields:
                listed.add(key=name.lower(), raw_value=value.encode("latin-1"))
            over_grpc, over_http = loop.run(both(request, method, target, *fields, body=body))
            decided = loop.run(found.decided())[len(before) :]
            before.extend(decided)
            if over_http.status == 400:
                return  # bytes that are no HTTP, which no gateway sends
            assert (over_http.status == 200) is (code(over_grpc) == 0)
            assert records_of(decided, "mesh-grpc") == records_of(decided, "edge")

        try:
            alike()
            decided = loop.run(found.decided())
            # The data source of kind `qdrant` would be asked, and none is there.
            expected = {"DENY"} if kind == "qdrant" else {"ALLOW", "DENY"}
            assert {each["decision"] for each in decided} == expected
        finally:
            loop.run(stop())


async def test_a_process_answers_drains_and_stops(tmp_path: Path) -> None:
    port = free_port()
    door = {
        "name": "edge",
        "protocol": "envoy_grpc",
        "source": "crm",
        "listen": f"127.0.0.1:{port}",
        "agent": {"role": ROLE},
    }
    source = {
        "alias": "crm",
        "kind": "rest",
        "upstream": "http://127.0.0.1:9",
        "sensitivity": "medium",
    }
    async with (
        fake_control_api() as control,
        sidecar_process(tmp_path, control, sources=[source], doors=[door]) as running,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        control.create_tenant(policy(allowed_sources=("rest://crm/a",)))
        await running.start()
        check: Any = channel.unary_unary(CHECK)
        health: Any = channel.unary_unary(HEALTH)
        assert check_messages.read(await health(b"", timeout=20), {1: wire.VARINT}) == {1: [1]}
        for path, expected in (("/a", 0), ("/b", 7)):
            data = http(path=path).SerializeToString()
            answer = await check(data, metadata=METADATA, timeout=20)
            assert code(message("CheckResponse").FromString(answer)) == expected
        running.tell(signal.SIGTERM)
        assert await running.ended() == 0
        assert [each["decision"] for each in control.decisions()] == ["ALLOW", "DENY"]
