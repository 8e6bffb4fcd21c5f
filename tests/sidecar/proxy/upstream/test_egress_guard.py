"""Where the sidecar connects to, and where it never does, whatever a name resolves to."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from policies.ground.addresses import ListenAddress
from policies.ground.public_addresses import refusal
from sidecar.http.client import dialler
from sidecar.http.client.egress_guard import REASONS, AddressRefused, EgressGuard, LoopGuard
from sidecar.settings.model import Source
from tests.sidecar.proxy.raw_client import ask, get
from tests.support.ports import free_port
from tests.support.proxy import Sidecar, sidecar, source
from tests.support.scripted_source import data_source

# Smokescreen's classes, and what Python's `is_global` would let pass (`proxy/RULES.md`, Egress
# addresses).
CLASSES = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "private": [
        "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1", "fd00:ec2::254",
    ],
    "link_local": ["169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%lo"],
    "cgnat": ["100.64.0.1", "100.127.255.255", "100.100.100.200"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "reserved": [
        "240.0.0.1", "255.255.255.255", "0.1.2.3", "192.0.0.8", "192.0.0.9", "192.0.2.1",
        "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "2001:db8::1", "100::1",
        "fec0::1", "3fff::1", "5f00::1", "4000::1",
    ],
    "unspecified": ["0.0.0.0", "::"],
    "embedded": [
        "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2002:7f00:1::1", "2001:0:1::1",
    ],
}  # fmt: skip
PUBLIC = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2001:4860::8888"]


@pytest.mark.parametrize("reason", CLASSES)
def test_forbidden_addresses_are_refused_by_their_class(reason: str) -> None:
    assert {refusal(ip_address(each)) for each in CLASSES[reason]} == {reason}


def test_public_addresses_are_not_refused_and_every_reason_is_known() -> None:
    assert [refusal(ip_address(each)) for each in PUBLIC] == [None] * len(PUBLIC)
    assert {*CLASSES, "own_port"} == set(REASONS)


def refused(host: str, found: str, *addresses: str, port: int = 80) -> str | None:
    """Why `host` may not lead to what a resolver found, with a comma between."""
    counted: list[str] = []
    guard = EgressGuard(host, addresses, LoopGuard(), counted.append, lambda: 0.0)
    with suppress(AddressRefused):
        guard.check(found.split(","), port)
        assert not counted
        return None
    [reason] = counted
    return reason


@pytest.mark.parametrize(
    ("host", "found", "addresses", "reason"),
    [
        ("kb.test", "8.8.8.8,2606:4700::1", [], None),
        ("kb.test", "10.0.0.1", [], "private"),
        ("kb.test", "8.8.8.8,10.0.0.1", [], "private"),
        ("kb.test", "10.0.0.1,8.8.8.8", ["10.0.0.0/24"], None),
        ("kb.test", "10.0.0.1,10.0.1.1", ["10.0.0.0/24"], "private"),
        ("kb.test", "10.0.0.1,fd00::1", ["10.0.0.0/24", "fd00::/64"], None),
        ("kb.test", "127.0.0.1", ["10.0.0.0/8"], "loopback"),
        ("kb.test", "::ffff:10.0.0.1", ["10.0.0.0/8"], "embedded"),
        ("localhost", "127.0.0.1,::1", [], None),
        ("localhost", "10.0.0.1", [], "private"),
        ("localhost.test", "127.0.0.1", [], "loopback"),
        ("10.0.0.5", "10.0.0.5", [], None),
        ("10.0.0.5", "10.0.0.6", [], "private"),
        ("169.254.169.254", "169.254.169.254", [], None),
        ("fd00::5", "fd00::5", [], None),
        ("fd00::5", "fd00::6", [], "private"),
    ],
)
def test_a_name_leads_to_the_configured_addresses(
    host: str, found: str, addresses: list[str], reason: str | None
) -> None:
    assert refused(host, found, *addresses) == reason


def test_refusals_are_logged_when_they_begin_and_when_they_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted: list[str] = []
    guard = EgressGuard("kb.test", (), LoopGuard(), counted.append, lambda: 0.0)
    for _ in range(3):
        with pytest.raises(AddressRefused):
            guard.check(["10.0.0.1"], 80)
    guard.check(["8.8.8.8"], 80)
    guard.check(["8.8.8.8"], 80)
    assert counted == ["private"] * 3
    assert [each.message for each in caplog.records] == [
        "refused to connect to `kb.test`: it leads to `10.0.0.1` (private)",
        "recovered: `kb.test` leads to allowed addresses again",
    ]


@contextmanager
def listening_at(host: str) -> Iterator[tuple[LoopGuard, int]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as made:
        made.bind((host, 0))
        own = LoopGuard()
        own.add([made])
        yield own, made.getsockname()[1]


def test_own_ports_are_known_by_every_address_of_this_host() -> None:
    def reached(own: LoopGuard, port: int, *addresses: str) -> list[bool]:
        return [own.reaches_self(ip_address(each), port) for each in addresses]

    with listening_at("127.0.0.1") as (own, port):
        assert reached(own, port, "127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1") == [True] * 4
        assert reached(own, port, "127.0.0.2", "8.8.8.8", "::1") == [False] * 3
        assert reached(own, port + 1, "127.0.0.1") == [False]
    with listening_at("0.0.0.0") as (own, port):
        host = socket.gethostbyname(socket.gethostname())
        assert reached(own, port, "127.0.0.1", "127.9.9.9", "::1", host) == [True] * 4
        assert reached(own, port, "8.8.8.8", "2606:4700::1") == [False] * 2


# ------------------------------------------------------------------------------------- on the wire


class Answers:
    """In place of the resolver: one answer after the other, the last one for good."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.asked: list[str] = []
        left = list(answers)

        async def resolve(host: str, port: int) -> list[dialler.AddressInfo]:
            self.asked.append(host)
            found = left.pop(0) if len(left) > 1 else left[0]
            return [
                (
                    socket.AF_INET6 if ":" in each else socket.AF_INET,
                    socket.SOCK_STREAM, 0, "", (each, port),
                )
                for each in found
            ]  # fmt: skip

        monkeypatch.setattr(dialler, "resolve", resolve)


@asynccontextmanager
async def cold(made: Sidecar, configured: Source) -> AsyncIterator[int]:
    """The port of a listener that has no connection to the data source yet."""
    proxy = made.proxy((configured,))
    await proxy.start()
    try:
        yield proxy.port(configured.alias)
    finally:
        await proxy.close(1)


def counted(made: Sidecar) -> dict[str, float]:
    text = generate_latest(made.metrics.registry).decode()
    name = "sluice_egress_refused_total{"
    lines = [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


@pytest.mark.parametrize(
    ("found", "addresses", "status"),
    [
        (["127.0.0.1"], (), 502),
        (["127.0.0.1"], ("127.0.0.0/8",), 200),
        (["127.0.0.1", "169.254.169.254"], ("127.0.0.0/8",), 502),
    ],
)
async def test_a_name_with_an_internal_address_is_answered_with_502_and_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: list[str],
    addresses: tuple[str, ...],
    status: int,
) -> None:
    Answers(monkeypatch, found)
    async with data_source() as upstream, sidecar(tmp_path) as made:
        configured = source(upstream.port, addresses=addresses)
        configured = replace(configured, upstream=f"http://kb.example:{upstream.port}")
        async with cold(made, configured) as port:
            answered = await ask(port, get("/a"))
            assert answered.status == status
        assert len(upstream.begun) == (status == 200)
        if status == 502:
            assert b"127.0.0.1" not in answered.body
            assert sum(counted(made).values()) == 1
            [lineage] = await made.lineage()
            assert lineage["outcome"] == "failed"


async def test_a_name_that_later_resolves_elsewhere_is_refused_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DNS rebinding: the first answer is what the source may have, the next one is not.
    Answers(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
    async with data_source() as upstream, sidecar(tmp_path) as made:
        configured = source(upstream.port, addresses=("127.0.0.1/32",))
        configured = replace(configured, upstream=f"http://kb.example:{upstream.port}")
        for status in (200, 502, 502):
            async with cold(made, configured) as port:
                assert (await ask(port, get("/a"))).status == status
        assert len(upstream.seen) == 1
        assert counted(made) == {"loopback": 2}


async def test_an_upstream_that_is_one_of_our_own_ports_is_refused(tmp_path: Path) -> None:
    port = free_port()
    async with sidecar(tmp_path) as made:
        sources = [
            source(port, listen=ListenAddress("127.0.0.1", port)),
            replace(source(port, alias="zero"), upstream=f"http://0.0.0.0:{port}"),
            replace(source(port, alias="name"), upstream=f"http://localhost:{port}"),
        ]
        proxy = made.proxy(sources)
        await proxy.start()
        try:
            async with asyncio.timeout(20):
                for alias in ("kb", "zero", "name"):
                    assert (await ask(proxy.port(alias), get("/a"))).status == 502
        finally:
            await proxy.close(1)
        assert counted(made) == {"own_port": 3}
        assert len(await made.decisions()) == 3
