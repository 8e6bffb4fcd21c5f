"""What `/metrics` says about requests through the proxy: each is counted once, by its outcome."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from policies.ground.addresses import ListenAddress
from policies.ground.errors import UpstreamFailed
from sidecar.metrics.metrics import Metrics, Observations
from sidecar.protocols.protocol import ResponseTooLarge
from sidecar.proxy.assembly import FORWARD_PROXY, ProxyPorts
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import CAUSES, ProxyMetrics
from sidecar.telemetry.collectors import watch_proxy
from tests.sidecar.proxy.raw_client import ask, get, one
from tests.support import waiting
from tests.support.certificates import authority
from tests.support.proxy import ProxySetup, policy, proxy_setup, sidecar, source
from tests.support.scripted_source import Seen, answer, data_source
from tests.support.waiting import until_async

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CLOSED = policy(denied_sources=("rest://kb/secret",))


def value(setup: ProxySetup, name: str, **labels: str) -> float:
    registry = setup.sidecar.enforcer.metrics.registry
    return registry.get_sample_value(name, labels) or 0


def requests(setup: ProxySetup) -> dict[tuple[str, str], float]:
    """By decision and class of status."""
    return {
        (decision, code): count
        for decision in ("ALLOW", "DENY", "none")
        for code in ("none", "2xx", "3xx", "4xx", "5xx")
        if (
            count := value(
                setup, "sluice_proxy_requests_total", kind="rest", decision=decision, status=code
            )
        )
    }


async def test_each_request_is_counted_once_by_decision_and_status(tmp_path: Path) -> None:
    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 404 Not Found" if "/absent" in seen.target else "HTTP/1.1 200 OK"
        await answer(head)(seen, writer)

    async with proxy_setup(tmp_path, CLOSED) as setup:
        setup.upstream.script = script
        for target in ("/a", "/a", "/absent", "/secret", "/a/../b"):
            await setup.ask(get(target))
        await setup.ask(b"nonsense\r\n\r\n")
        assert requests(setup) == {
            ("ALLOW", "2xx"): 2,
            ("ALLOW", "4xx"): 1,
            ("DENY", "4xx"): 3,
        }


async def test_requests_that_follow_on_one_connection_are_counted_each(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, CLOSED) as setup:
        reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
        for count in range(1, 6):
            writer.write(b"GET /a HTTP/1.1\r\nHost: kb.test\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            await reader.readexactly(2)
            await until_async(
                "the requests are counted",
                lambda count=count: requests(setup) == {("ALLOW", "2xx"): count},  # type: ignore[misc]
            )
        writer.close()


async def test_a_denial_that_is_forwarded_counts_as_a_denial(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        for target in ("/secret", "/secret", "/a"):
            await setup.ask(get(target))
        assert requests(setup) == {("DENY", "2xx"): 2, ("ALLOW", "2xx"): 1}


async def test_a_request_that_needs_no_decision_is_counted_without_one(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, CLOSED, kind="chroma") as setup:
        await setup.ask(get("/api/v2/heartbeat"))
        labels = {"kind": "chroma", "decision": "none", "status": "2xx"}
        assert value(setup, "sluice_proxy_requests_total", **labels) == 1


async def test_an_agent_that_leaves_is_counted_without_a_status(tmp_path: Path) -> None:
    async def silent(_seen: Any, _writer: Any) -> None:
        await waiting.never()

    async with proxy_setup(tmp_path, CLOSED, limits=ProxyLimits(half_close_seconds=0.1)) as setup:
        setup.upstream.script = silent
        _, writer = await asyncio.open_connection("127.0.0.1", setup.port)
        writer.write(get("/a"))
        await until_async("the source has the request", lambda: bool(setup.upstream.seen))
        writer.transport.abort()
        await until_async(
            "the request is counted", lambda: requests(setup) == {("ALLOW", "none"): 1}
        )


async def test_failures_of_a_data_source_are_counted_by_cause(tmp_path: Path) -> None:
    async def closes(_seen: Any, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def nonsense(_seen: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n")

    async def breaks(_seen: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    async with proxy_setup(tmp_path, CLOSED) as setup:
        registry = setup.sidecar.enforcer.metrics.registry

        def failures(cause: str) -> float:
            labels = {"kind": "rest", "cause": cause}
            found = registry.get_sample_value("sluice_upstream_failures_total", labels)
            # Each is there before it counts anything: an alert sees no increase from nothing.
            assert found is not None
            return found

        for script, cause in (
            (closes, "unanswered"),
            (nonsense, "unanswered"),
            (breaks, "broken_off"),
        ):
            before = failures(cause)
            setup.upstream.script = script
            await setup.ask(get("/a"))
            assert failures(cause) == before + 1
        assert requests(setup)["ALLOW", "5xx"] == 2


async def test_a_data_source_without_a_listener_is_counted_as_unreachable(tmp_path: Path) -> None:
    async with data_source() as upstream:
        port = upstream.port
    async with sidecar(tmp_path) as made:
        proxy = made.proxy([source(port)])
        await proxy.start()
        try:
            assert (await ask(proxy.port("kb"), get("/a"))).status == 502
        finally:
            await proxy.close(1)
        registry = made.enforcer.metrics.registry
        labels = {"kind": "rest", "cause": "unreachable"}
        assert registry.get_sample_value("sluice_upstream_failures_total", labels) == 1


async def test_a_failed_look_up_is_counted_as_a_failure_of_the_source(tmp_path: Path) -> None:
    async def closes(_seen: Any, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with proxy_setup(tmp_path, CLOSED, kind="chroma") as setup:
        setup.upstream.script = closes
        target = "/api/v2/tenants/t/databases/d/collections"
        assert (await setup.ask(get(target))).status == 502
        labels = {"kind": "chroma", "cause": "unanswered"}
        assert value(setup, "sluice_upstream_failures_total", **labels) == 1


async def test_an_answer_that_is_too_large_to_be_read_is_a_cause(tmp_path: Path) -> None:
    limits = ProxyLimits(inspected_response_bytes=16)
    async with proxy_setup(tmp_path, CLOSED, limits=limits, kind="chroma") as setup:
        setup.upstream.script = answer(body=b"x" * 64)
        target = "/api/v2/tenants/t/databases/d/collections/name"
        assert (await setup.ask(get(target))).status == 502
        labels = {"kind": "chroma", "cause": "too_large"}
        assert value(setup, "sluice_upstream_failures_total", **labels) == 1


async def test_connections_and_bytes_are_counted(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    async with data_source() as upstream, sidecar(tmp_path) as made:
        proxy = made.proxy([source(upstream.port)])
        watch_proxy(Observations(registry), proxy)

        def told(name: str) -> float:
            return registry.get_sample_value(f"sluice_proxy_{name}") or 0

        assert told("agent_connections") == told("received_bytes_total") == 0
        await proxy.start()
        try:
            sent = b"GET /a HTTP/1.1\r\nHost: kb.test\r\n\r\n"
            received = 0
            for count in (1, 2):
                # The second goes over the connection to the data source that is there.
                answered = await one(proxy.port("kb"), sent)
                received += len(answered.raw)
                assert told("received_bytes_total") == count * len(sent)
                assert told("sent_bytes_total") == received
            assert told("source_connections") == 1
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port("kb"))
            await until_async("the agent is connected", lambda: told("agent_connections") == 1)
            writer.close()
            await until_async(
                "the agents' connections are closed", lambda: told("agent_connections") == 0
            )
        finally:
            await proxy.close(1)


async def connected(port: int, where: str) -> tuple[bytes, Opened]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
    return await reader.readuntil(b"\r\n\r\n"), (reader, writer)


async def test_tunnels_and_their_bytes_are_counted(tmp_path: Path) -> None:
    registry, ours = CollectorRegistry(), authority()
    large = answer(body=b"x" * 100_000)
    async with data_source(large, ours.server("api.test")) as upstream, sidecar(tmp_path) as made:
        api = source(upstream.port, listen=None, writes="allow", hosts=("api.test",))
        api = replace(api, upstream=f"https://localhost:{upstream.port}")
        shut = replace(api, alias="shut", hosts=("shut.test",), writes="deny")
        shut = replace(shut, upstream=f"https://127.0.0.1:{upstream.port}")
        named = ProxyPorts(ListenAddress("127.0.0.1", 0))
        proxy = made.proxy([api, shut], named=named)
        watch_proxy(Observations(registry), proxy)

        def told(name: str) -> float:
            return registry.get_sample_value(f"sluice_proxy_{name}") or 0

        def requests(**labels: str) -> float:
            found = made.enforcer.metrics.registry
            return found.get_sample_value("sluice_proxy_requests_total", labels) or 0

        await proxy.start()
        try:
            port = proxy.port(FORWARD_PROXY)
            _, (reader, writer) = await connected(port, f"api.test:{upstream.port}")
            await writer.start_tls(ours.client(), server_hostname="api.test")
            writer.write(b"GET /a HTTP/1.1\r\nHost: api.test\r\n\r\n")
            await reader.readuntil(b"x" * 100_000)
            # While it lasts, and not only at its end.
            assert told("sent_bytes_total") > 100_000
            assert told("agent_connections") == told("source_connections") == 1
            writer.close()
            await until_async(
                "the connections to the source are closed", lambda: told("source_connections") == 0
            )
            assert told("sent_bytes_total") > 100_000
            assert told("received_bytes_total") > 100
            for name in ("shut.test", "nowhere.test"):
                _, (_, writer) = await connected(port, f"{name}:{upstream.port}")
                writer.close()
            assert requests(kind="rest", decision="ALLOW", status="2xx") == 1
            assert requests(kind="rest", decision="DENY", status="4xx") == 1
            assert requests(kind="web", decision="DENY", status="4xx") == 1
        finally:
            await proxy.close(1)


@pytest.mark.parametrize("status", [0, 100, 204, 302, 403, 599, 600, 999])
def test_the_values_of_labels_come_from_closed_sets(status: int) -> None:
    metrics = Metrics(CollectorRegistry())
    traffic = ProxyMetrics(metrics, "rest")
    traffic.count_request("ALLOW", status)
    failures: list[type[UpstreamFailed]] = [UpstreamFailed, ResponseTooLarge, *CAUSES]
    for failure in failures:
        traffic.count_failure(failure("somebody's words"))
    text = str(list(metrics.registry.collect()))
    assert "somebody's words" not in text
    code = f"{status // 100}xx" if 100 <= status < 600 else "other" if status else "none"
    assert f"'status': '{code}'" in text
