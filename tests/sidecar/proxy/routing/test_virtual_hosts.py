"""Several sources on one address, on the wire: each request reaches the source it names, or
none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from policies.ground.addresses import ListenAddress
from tests.sidecar.proxy.raw_client import ask, get
from tests.support.ports import free_port
from tests.support.proxy import Sidecar, policy, sidecar, source
from tests.support.scripted_source import DataSource, answer, data_source


@dataclass
class Two:
    port: int
    kb: DataSource
    crm: DataSource
    sidecar: Sidecar


@asynccontextmanager
async def two(tmp_path: Path, kb: dict[str, Any], crm: dict[str, Any]) -> AsyncIterator[Two]:
    """Two sources on one address, of which the first may not be read below `/secret`."""
    closed = policy(denied_sources=("rest://kb/secret", "rest://kb/secret/*"))
    port = free_port()
    listen = ListenAddress("127.0.0.1", port)
    async with (
        data_source(answer(body=b"of kb")) as one,
        data_source(answer(body=b"of crm")) as other,
        sidecar(tmp_path, closed) as made,
    ):
        sources = (
            source(one.port, listen=listen, **kb),
            source(other.port, alias="crm", listen=listen, **crm),
        )
        proxy = made.proxy(sources)
        await proxy.start()
        try:
            yield Two(port, one, other, made)
        finally:
            await proxy.close(1)


@pytest.fixture
async def by_path(tmp_path: Path) -> AsyncIterator[Two]:
    async with two(tmp_path, {"path": "/kb"}, {"path": "/crm"}) as made:
        yield made


@pytest.fixture
async def by_host(tmp_path: Path) -> AsyncIterator[Two]:
    async with two(tmp_path, {"hosts": ("kb.test",)}, {"hosts": ("*.crm.test",)}) as made:
        yield made


async def test_a_path_leads_to_its_source_and_is_taken_off(by_path: Two) -> None:
    assert (await ask(by_path.port, get("/kb/a?x=/crm"))).body == b"of kb"
    assert (await ask(by_path.port, get("/crm/b/"))).body == b"of crm"
    assert by_path.kb.targets == ["/a?x=/crm"]
    assert by_path.crm.targets == ["/b/"]
    assert [each[2] for each in await by_path.sidecar.decisions()] == [
        "rest://kb/a",
        "rest://crm/b/",
    ]


async def test_a_host_leads_to_its_source(by_host: Two) -> None:
    assert (await ask(by_host.port, get("/a", host="KB.test.:99"))).body == b"of kb"
    assert (await ask(by_host.port, get("/a", host="x.crm.test"))).body == b"of crm"
    assert by_host.kb.seen[0].values("host") == [f"127.0.0.1:{by_host.kb.port}"]


async def test_each_request_on_a_connection_goes_to_its_own_source(by_path: Two) -> None:
    lines = "GET {} HTTP/1.1\r\nHost: h\r\n\r\n"
    targets = ["/kb/a", "/crm/a", "/kb/secret/x", "/nowhere", "/crm/secret"]
    answered = await ask(by_path.port, "".join(map(lines.format, targets)).encode())
    statuses = [part.split(b" ")[0] for part in answered.raw.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"403", b"403", b"200"]
    assert (by_path.kb.targets, by_path.crm.targets) == (["/a"], ["/a", "/secret"])


# `proxy/RULES.md`, B11: what a prefix is taken off of, and what is left, are read alike by
# everyone.
@pytest.mark.parametrize(
    "target",
    [
        "/kb%2fsecret", "/kb/%2fsecret", "/kb/..%2fsecret", "/kb/../kb/secret", "/kb//secret",
        "/kb/./secret", "/%2e%2e/kb/secret", "/kb%2F..%2Fkb/secret", "/kb;x/../secret",
        "/kb/..;/secret", "//kb/secret", "/kb%252fsecret", "/kb\\secret", "/kb%5csecret",
    ],
)  # fmt: skip
async def test_no_spelling_around_the_prefix_reaches_the_source(by_path: Two, target: str) -> None:
    answered = await ask(by_path.port, get(target))
    assert answered.status == 400
    assert answered.json["decision"]["policy_name"] == "unreadable_request"
    assert by_path.kb.begun == by_path.crm.begun == []
    assert await by_path.sidecar.decisions() == [
        ("DENY", "unreadable_request", f"web://127.0.0.1:{by_path.port}")
    ]


@pytest.mark.parametrize("target", ["/kb/secret", "/%6bb/secret", "/kb/%73ecret", "/kb/secret/x"])
async def test_the_path_without_its_prefix_is_judged(by_path: Two, target: str) -> None:
    answered = await ask(by_path.port, get(target))
    assert answered.status == 403
    assert answered.json["decision"]["policy_name"] == "analysts-read"
    assert by_path.kb.begun == []


async def test_a_request_to_an_unknown_destination_is_denied_and_recorded(by_host: Two) -> None:
    for host in ("evil.test:1", "crm.test", "a.kb.test", "EVIL.test."):
        answered = await ask(by_host.port, get("/a", host=host))
        assert answered.status == 403
        assert answered.json["decision"]["policy_name"] == "unknown_destination"
        assert answered.fields["x-sluice-decision"] == "DENY"
    old = await ask(by_host.port, b"GET /a HTTP/1.0\r\n\r\n")
    assert old.status == 403
    [first, *_, mine] = await by_host.sidecar.records()
    assert first["pub"]["request"]["source_type"] == "web"
    assert first["pub"]["request"]["sensitivity_level"] == "critical"
    sources = [each[2] for each in await by_host.sidecar.decisions()]
    port = by_host.port
    assert sources == [
        "http://evil.test:1", f"http://crm.test:{port}", f"http://a.kb.test:{port}",
        f"http://evil.test:{port}", f"http://127.0.0.1:{port}",
    ]  # fmt: skip
    assert mine["pub"]["request"]["source_id"] == sources[-1]
    assert by_host.kb.begun == by_host.crm.begun == []


@pytest.mark.parametrize(
    "data",
    [
        b"GET /kb/a HTTP/1.1\r\nHost: a@b\r\n\r\n",
        b"GET /kb/a HTTP/1.1\r\nHost: 127.1\r\n\r\n",
        b"GET /kb/a HTTP/1.1\r\nHost: a:0\r\n\r\n",
        b"GET /kb/a HTTP/1.1\r\n\r\n",
        b"GET /kb/a HTTP/2.0\r\nHost: a\r\n\r\n",
        b"CONNECT kb:80 HTTP/1.1\r\nHost: kb\r\n\r\n",
        b"GET http://kb/kb/a HTTP/1.1\r\nHost: kb\r\n\r\n",
        b"GET /kb/a HTTP/1.1\r\nHost: kb\r\nX-Sluice-User:\r\n\r\n",
        b"GET /kb/a HTTP/1.1\r\nHost: kb\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"\x16\x03\x01\x00\x01",
        b"nonsense\r\n\r\n",
    ],
)
async def test_an_unreadable_request_is_denied_before_a_source_is_chosen(
    by_path: Two, data: bytes
) -> None:
    answered = await ask(by_path.port, data + get("/kb/behind"))
    assert answered.status == 400
    assert answered.raw.count(b"HTTP/1.1 ") == 1
    assert [each[1] for each in await by_path.sidecar.decisions()] == ["unreadable_request"]
    assert by_path.kb.begun == by_path.crm.begun == []


async def test_an_exact_path_is_forwarded_unchanged_and_nothing_below_it(tmp_path: Path) -> None:
    async with two(tmp_path, {}, {"exact_paths": ("/register", "/a/token")}) as made:
        for target in ("/register", "/register?x=1", "/register/", "/register/b", "/a/token", "/a"):
            assert (await ask(made.port, get(target))).status == 200
        assert made.crm.targets == ["/register", "/register?x=1", "/a/token"]
        assert made.kb.targets == ["/register/", "/register/b", "/a"]
        assert ("ALLOW", "analysts-read", "rest://crm/register") in await made.sidecar.decisions()
