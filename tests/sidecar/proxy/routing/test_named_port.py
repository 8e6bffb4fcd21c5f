"""What a web page can have a browser of this machine send to a source's port is refused, by DNS
rebinding or from another site, and recorded."""

from dataclasses import replace
from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from tests.sidecar.proxy.raw_client import ask
from tests.support.ports import free_port
from tests.support.proxy import Sidecar, sidecar, source
from tests.support.scripted_source import data_source


def request(*fields: str, target: str = "/a") -> bytes:
    lines = [f"GET {target} HTTP/1.1", *fields, "Connection: close"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def refused(made: Sidecar) -> dict[str, float]:
    [family] = made.metrics.foreign_requests.collect()
    return {each.labels["cause"]: each.value for each in family.samples}


async def test_a_rebound_name_reads_nothing_and_is_recorded(tmp_path: Path) -> None:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        proxy = made.proxy((source(upstream.port),))
        await proxy.start()
        port = proxy.port("kb")
        try:
            for host in (f"rebound.example:{port}", f"rebound.example:{port}"):
                answered = await ask(port, request(f"Host: {host}", "X-Sluice-User: eve"))
                assert answered.status == 403
                assert "add it to the sidecar's `hosts`" in answered.json["decision"]["reason"]
            for host in (f"127.0.0.1:{port}", f"LOCALHOST.:{port}", "[::1]"):
                assert (await ask(port, request(f"Host: {host}"))).status == 200
        finally:
            await proxy.close(1)
        assert len(upstream.seen) == 3
        denied = ("DENY", "unknown_destination", f"http://rebound.example:{port}")
        assert (await made.decisions())[:2] == [denied, denied]
        assert await refused(made) == {"host": 2}


@pytest.mark.parametrize(
    "field",
    ["Origin: https://page.example", "Origin: null", "Sec-Fetch-Site: cross-site"],
)
async def test_a_page_of_another_site_reads_nothing_and_is_recorded(
    tmp_path: Path, field: str
) -> None:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        proxy = made.proxy((source(upstream.port, mode="report"),))
        await proxy.start()
        try:
            for _ in range(2):
                answered = await ask(proxy.port("kb"), request("Host: localhost", field))
                assert answered.status == 403
        finally:
            await proxy.close(1)
        assert upstream.seen == []
        assert [name for _, name, _ in await made.decisions()] == ["foreign_origin"] * 2
        assert await refused(made) == {"origin": 2}


async def test_a_websocket_of_another_site_is_refused_and_nothing_after_it_read(
    tmp_path: Path,
) -> None:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        proxy = made.proxy((source(upstream.port),))
        await proxy.start()
        try:
            upgrade = b"GET /a HTTP/1.1\r\nHost: localhost\r\nOrigin: https://page.example\r\n"
            upgrade += b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            upgrade += b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            answered = await ask(proxy.port("kb"), upgrade + request("Host: localhost"))
        finally:
            await proxy.close(1)
        assert (answered.status, answered.raw.count(b"HTTP/1.1 ")) == (403, 1)
        assert upstream.seen == []


async def test_each_source_on_a_shared_port_brings_its_hosts(tmp_path: Path) -> None:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        first = source(upstream.port, hosts=("docs.test",))
        below = replace(source(upstream.port, alias="crm"), path="/crm")
        shared_listen = ListenAddress("127.0.0.1", free_port())
        proxy = made.proxy([first])
        shared = made.proxy([replace(each, listen=shared_listen) for each in (first, below)])
        await proxy.start()
        await shared.start()
        try:
            for port in (proxy.port("kb"), shared.port("kb")):
                assert (await ask(port, request("Host: docs.test"))).status == 200
                assert (await ask(port, request("Host: other.test"))).status == 403
        finally:
            await proxy.close(1)
            await shared.close(1)


async def test_a_bucket_in_the_host_name_is_accepted_only_for_s3(tmp_path: Path) -> None:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        for kind, status in (("s3", "ALLOW"), ("rest", "unknown_destination")):
            proxy = made.proxy((source(upstream.port, kind, hosts=("s3.test",)),))
            await proxy.start()
            try:
                answered = await ask(proxy.port("kb"), request("Host: open.s3.test"))
            finally:
                await proxy.close(1)
            unknown = b"unknown_destination" in answered.body
            assert unknown is (status == "unknown_destination")
