"""An offer to switch to any protocol but WebSocket is ignored (RFC 9110 section 7.8): the request
is decided and forwarded as what it is, and nothing that follows is read as a request, since it may
belong to the other protocol (RFC 9931)."""

import asyncio
import itertools
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests import servers
from tests.runner import tiers
from tests.sidecar.proxy.raw_client import get
from tests.sidecar.proxy.segmented_agent import OWN, WAYS, WayIn, answers, chunks, cut, way_in
from tests.support.proxy import ProxySetup
from tests.support.waiting import until_async

OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQA")
BODIES = {
    "none": ("GET", b"", ()),
    "length": ("PUT", b"x" * 5000, ("Content-Length: 5000",)),
    "chunks": ("PUT", b"x" * 5000, ("Transfer-Encoding: chunked",)),
}


def offering(entry: WayIn, body: str, path: str = "/a") -> bytes:
    method, data, fields = BODIES[body]
    sent = chunks(data, 1000) if body == "chunks" else data
    return entry.head(method, path, *OFFER, *fields) + sent


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("way", WAYS)
async def test_the_request_is_served_without_the_offer(tmp_path: Path, way: str, body: str) -> None:
    async with way_in(tmp_path, way, "rest") as made:
        agent = await made.agent()
        await agent.send(map(agent.sealed, cut(offering(made, body), itertools.repeat(1460))), 2)
        await agent.received_once(lambda read: bool(answers(read)))
        data = BODIES[body][1]
        assert answers(bytes(agent.received)) == [(200, b"%d" % len(data))]
        [seen] = made.upstream.seen
        assert seen.body == data
        for name in ("upgrade", "http2-settings", "connection"):
            assert seen.values(name) == []
        assert [each[0] for each in await made.sidecar.decisions()] == ["ALLOW"]
        agent.close()


@pytest.mark.parametrize("body", ["none", "length"])
async def test_a_request_after_the_answer_is_served(tmp_path: Path, body: str) -> None:
    async with way_in(tmp_path, OWN, "rest") as made:
        agent = await made.agent()
        for number in range(3):
            await agent.send(cut(offering(made, body, f"/{number}"), itertools.repeat(1460)), 2)
            await agent.received_once(partial(_more_than, number))
        await agent.send([made.head("GET", "/last")])
        await agent.received_once(lambda read: len(answers(read)) > 3)
        assert [status for status, _ in answers(bytes(agent.received))] == [200] * 4
        assert made.upstream.targets == ["/0", "/1", "/2", "/last"]
        assert b"Connection: close" not in agent.received
        agent.close()


@pytest.mark.parametrize("way", WAYS)
async def test_a_body_without_an_end_is_refused_on_the_record(tmp_path: Path, way: str) -> None:
    async with way_in(tmp_path, way, "rest") as made:
        agent = await made.agent()
        head = made.head("PUT", "/a", *OFFER, "Transfer-Encoding: gzip")
        await agent.send([agent.sealed(head)])
        await agent.received_once(lambda read: bool(answers(read)))
        assert [status for status, _ in answers(bytes(agent.received))] == [400]
        assert [each[0] for each in await made.sidecar.decisions()] == ["DENY"]
        assert made.upstream.begun == []
        agent.close()


async def test_an_agent_with_an_ignored_upgrade_is_asked_for_its_body(tmp_path: Path) -> None:
    async with way_in(tmp_path, OWN, "rest") as made:
        agent = await made.agent()
        fields = (*OFFER, "Content-Length: 5", "Expect: 100-continue")
        await agent.send([made.head("PUT", "/a", *fields)])
        await agent.received_once(lambda read: read.startswith(b"HTTP/1.1 100 Continue\r\n\r\n"))
        await agent.send([b"hello"])
        await agent.received_once(lambda read: b"HTTP/1.1 200 OK" in read)
        assert [each.body for each in made.upstream.seen] == [b"hello"]
        agent.close()


def _more_than(count: int, read: bytes) -> bool:
    return len(answers(read)) > count


@tiers.sampled("way", "body", "cuts", each=2)
@pytest.mark.parametrize("cuts", ["one", "apart", "inside", "bytes"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_after_an_upgrade_request_is_read_before_its_answer(
    tmp_path: Path, way: str, body: str, cuts: str
) -> None:
    async with way_in(tmp_path, way, "rest") as made:
        first, behind = offering(made, body), made.head("GET", "/smuggled") * 3
        agent = await made.agent()
        segments = {
            "one": [first + behind],
            "apart": [first, behind],
            "inside": [first[:-7], first[-7:] + behind[:9], behind[9:]],
            "bytes": cut(first + behind, itertools.repeat(1)),
        }[cuts]
        await agent.send(map(agent.sealed, segments))
        await agent.received_once(lambda _read: False)  # the connection ends
        assert [status for status, _ in answers(bytes(agent.received))] == [200]
        assert b"\r\nConnection: close\r\n" in agent.received
        assert made.upstream.targets == ["/a"]
        assert len(await made.sidecar.decisions()) == 1


async def test_requests_before_an_upgrade_request_are_answered(tmp_path: Path) -> None:
    async with way_in(tmp_path, OWN, "rest") as made:
        agent = await made.agent()
        in_front = made.head("GET", "/1") + made.head("GET", "/2")
        await agent.send([in_front + offering(made, "none") + made.head("GET", "/smuggled")])
        await agent.received_once(lambda _read: False)
        assert [status for status, _ in answers(bytes(agent.received))] == [200] * 3
        assert made.upstream.targets == ["/1", "/2", "/a"]


@pytest.mark.parametrize("protocol", ["foo", "TLS/1.0", "h2c, foo", "HTTP/2.0", ""])
async def test_every_protocol_except_websocket_is_ignored(setup: ProxySetup, protocol: str) -> None:
    fields = ("Connection: Upgrade", f"Upgrade: {protocol}")
    answered = await setup.ask(get("/a", *fields))
    assert answered.status == 200
    assert setup.upstream.seen[0].values("upgrade") == []
    # A denial is one all the same.
    assert (await setup.ask(get("/secret", *fields))).status == 403
    assert setup.upstream.targets == ["/a"]


JAVA = """
import java.net.URI;
import java.net.http.*;
public class Ask {
    public static void main(String[] told) throws Exception {
        var client = HttpClient.newHttpClient();
        for (var number = 0; number < 3; number++) {
            var get = HttpRequest.newBuilder(URI.create(told[0] + "/" + number)).build();
            var put = HttpRequest.newBuilder(URI.create(told[0] + "/put")).PUT(
                HttpRequest.BodyPublishers.ofString("x".repeat(100000))).build();
            for (var request : new HttpRequest[] {get, put}) {
                var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                System.out.println(answer.statusCode() + " " + answer.version());
            }
        }
    }
}
"""


@pytest.mark.deep(stands_in="test_the_request_is_served_without_the_offer")
@pytest.mark.skipif(servers.of_system("java") is None, reason="no JDK here")
async def test_the_http_client_of_java_works_unchanged(setup: ProxySetup, tmp_path: Path) -> None:
    source = tmp_path / "Ask.java"
    source.write_text(JAVA)
    java = await asyncio.create_subprocess_exec(
        "java", str(source), f"http://127.0.0.1:{setup.port}",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        told, error = await java.communicate()
    assert java.returncode == 0, error.decode()
    assert told.decode().splitlines() == ["200 HTTP_1_1"] * 6
    await until_async("the source has the requests", lambda: len(setup.upstream.seen) == 6)
    assert all(each.values("upgrade") == [] for each in setup.upstream.seen)
