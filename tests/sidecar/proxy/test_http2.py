"""HTTP/2 at every port of the proxy: decided, recorded and relayed as HTTP/1.1 is."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import orjson
import pytest
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT
from sidecar.settings.model import RestRule
from tests.sidecar.proxy.every_port import EveryPort, every_port
from tests.sidecar.proxy.http2_client import Http2Client
from tests.support.certificates import authority
from tests.support.proxy import ProxySetup, policy, proxy_setup, sidecar, source
from tests.support.scripted_source import data_source
from tests.support.waiting import until_async

TUNNEL = b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\n\r\n"
PORTS = pytest.mark.parametrize(
    ("port", "before"),
    [("kb", b""), (FORWARD_PROXY, b""), (FORWARD_PROXY, TUNNEL), (TRANSPARENT, b"")],
    ids=["listen", "forward proxy", "tunnel", "redirected"],
)
pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/http/server/test_http2.py::test_requests_are_answered_side_by_side"
)
TOO_SENSITIVE = [("x-sluice-sensitivity", "critical")]


async def _gone(made: EveryPort) -> bool:
    return not made.proxy.agent_connections


@PORTS
async def test_every_port_decides_and_forwards_requests_of_http_2(
    tmp_path: Path, port: str, before: bytes
) -> None:
    async with every_port(tmp_path) as made:
        reader, writer = await made.open(port)
        writer.write(before)
        if before:
            await reader.readuntil(b"\r\n\r\n")
        client = Http2Client(reader, writer)
        many = [client.begin(f"/open/{number}") for number in range(3)]
        for stream in many:
            got = await client.result(stream)
            assert (got.status, got.reset) == (200, None)
            assert orjson.loads(got.body)["result"]
            assert got.fields[b"x-sluice-event-id"]
        writer.close()
        decisions = await made.sidecar.decisions()
        paths = [f"/open/{number}" for number in range(3)]
        judged = sorted((decision, source) for decision, _, source in decisions)
        assert judged == [("ALLOW", f"rest://kb{path}") for path in paths]
        assert sorted(each.target for each in made.upstream.seen) == paths
        await until_async("the agent is gone", lambda: _gone(made))


@PORTS
@pytest.mark.parametrize(
    "change",
    [
        {"scheme": "https"},
        {"fields": [("host", "other.test")]},
        {"fields": [("connection", "close")]},
        {"fields": [("X-Upper", "1")]},
        {"method": "CONNECT"},
    ],
    ids=["scheme", "host", "connection", "upper case", "connect"],
)
async def test_a_head_of_http_2_that_could_mean_two_things_is_recorded_and_reset(
    tmp_path: Path, port: str, before: bytes, change: dict[str, object]
) -> None:
    async with every_port(tmp_path) as made:
        reader, writer = await made.open(port)
        writer.write(before)
        if before:
            await reader.readuntil(b"\r\n\r\n")
        client = Http2Client(reader, writer)
        more = dict(change)
        got = await client.ask("/open/1", *more.pop("fields", []), **more)  # type: ignore[misc]
        assert got.reset == 1, "PROTOCOL_ERROR"
        assert (await client.ask("/open/2")).status == 200, "other streams go on"
        writer.close()
        decisions = sorted(await made.sidecar.decisions())
        assert [each[:2] for each in decisions][1] == ("DENY", "unreadable_request")
        assert [each.target for each in made.upstream.seen] == ["/open/2"]


async def test_a_grpc_client_shows_the_reason_of_a_denial(setup: ProxySetup) -> None:
    def call() -> grpc.RpcError:
        with grpc.insecure_channel(f"127.0.0.1:{setup.port}") as channel:
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary("/a.B/C")(b"", timeout=20, metadata=TOO_SENSITIVE)
            return error.value

    error = await asyncio.to_thread(call)
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    [(decision, name, _)] = await setup.sidecar.decisions()
    assert decision == "DENY"
    fields = dict(error.trailing_metadata())
    assert fields["x-sluice-decision"] == "DENY"
    status = Status.FromString(fields["grpc-status-details-bin"])
    assert (status.code, status.message) == (7, error.details())
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (name, "sluice")
    assert info.metadata["event_id"] == fields["x-sluice-event-id"]
    assert error.details().endswith(f" (event {fields['x-sluice-event-id']})")
    assert setup.upstream.begun == []


async def test_http_2_is_offered_and_served_within_tls(tmp_path: Path) -> None:
    context = authority().client()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with every_port(tmp_path) as made:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", made.proxy.port("secure"), ssl=context, server_hostname="secure.test"
        )
        secured = writer.get_extra_info("ssl_object")
        assert secured.selected_alpn_protocol() == "h2"
        client = Http2Client(reader, writer)
        where = {"host": "secure.test", "scheme": "https"}
        assert (await client.ask("/open/1", **where)).status == 200
        assert (await client.ask("/open/2", host="secure.test")).reset == 1, (
            "not this port's scheme"
        )
        writer.close()
    assert [each.target for each in made.upstream.seen] == ["/open/1"]


@PORTS
async def test_a_body_of_http_2_arrives_whole_and_in_its_length(
    tmp_path: Path, port: str, before: bytes
) -> None:
    body = bytes(range(256)) * 1024
    async with every_port(tmp_path) as made:
        reader, writer = await made.open(port)
        writer.write(before)
        if before:
            await reader.readuntil(b"\r\n\r\n")
        client = Http2Client(reader, writer)
        stream = client.begin("/open/write", method="POST", end=False)
        rest = body
        while rest:
            room = min(client.h2.local_flow_control_window(stream), 16_384, len(rest))
            if not room:
                await client.exchange()
                continue
            client.h2.send_data(stream, rest[:room])
            client.flush()
            rest = rest[room:]
        client.h2.end_stream(stream)
        assert (await client.result(stream)).status == 200
        writer.close()
    [seen] = made.upstream.seen
    assert seen.body == body
    assert seen.values("transfer-encoding") == ["chunked"]


class _Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A server that answers every method with the call's own message."""

    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda message, _: message)


async def test_a_call_that_no_protocol_reads_is_judged_by_its_path(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(1), handlers=[_Echo()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def call(method: str, port: int) -> bytes | grpc.StatusCode:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                return bytes(channel.unary_unary(f"/a.B/{method}")(b"abc", timeout=20))
            except grpc.RpcError as error:
                return error.code()

    routes = tuple(RestRule("POST", f"/a.B/{each}", "retrieve") for each in ("Open", "Shut"))
    upstream = f"http://127.0.0.1:{port}"
    shut = policy(denied_sources=("rest://kb/a.B/Shut",))
    async with proxy_setup(tmp_path, shut, upstream=upstream, http="2", routes=routes) as made:
        methods = ["Open", "Shut", "Write"]
        got = [await asyncio.to_thread(call, each, made.port) for each in methods]
        denied = grpc.StatusCode.PERMISSION_DENIED
        assert got == [b"abc", denied, denied]
        decided = [(decision, source) for decision, _, source in await made.sidecar.decisions()]
        assert decided == [
            ("ALLOW", "rest://kb/a.B/Open"),
            ("DENY", "rest://kb/a.B/Shut"),
            ("DENY", "rest://kb/a.B/Write"),
        ]
    server.stop(None)


async def test_an_upload_for_which_there_is_no_room_is_a_503_and_is_broken_off(
    tmp_path: Path,
) -> None:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        proxy = made.proxy((source(upstream.port, writes="allow"),))
        await proxy.start()
        proxy.listeners["kb"].server.service.budget.head_limit = 40_000
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port("kb"))
        client = Http2Client(reader, writer)
        stream = client.begin("/w", method="POST", body=bytes(16_000), end=False)
        for _ in range(3):
            client.h2.send_data(stream, bytes(16_000))
        got = await client.result(stream)
        assert got.status == 503
        assert b"nothing was decided" in got.body
        await until_async("the source knows", lambda: upstream.open == 0)
        assert upstream.seen == []
        assert (await client.ask("/b")).status == 200
        writer.close()
        await proxy.close(1)
