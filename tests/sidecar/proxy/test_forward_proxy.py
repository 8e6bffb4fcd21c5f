"""What an agent reaches with `HTTP_PROXY`: configured sources, by the address it asks for, and
nothing else, whatever a target or a header says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from sidecar.proxy.assembly import FORWARD_PROXY, ProxyPorts
from sidecar.proxy.forward_proxy import parse_absolute
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.settings.model import Source, UpstreamTls
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support.certificates import authority
from tests.support.proxy import Sidecar, policy, sidecar, source
from tests.support.scripted_source import DataSource, answer, data_source


@asynccontextmanager
async def proxying(
    made: Sidecar, *sources: Source, limits: ProxyLimits = LIMITS, hidden: bool = False
) -> AsyncIterator[int]:
    """The port of a forward proxy to these sources."""
    named = ProxyPorts(ListenAddress("127.0.0.1", 0), hidden)
    proxy = made.proxy(sources, limits=limits, named=named)
    await proxy.start()
    try:
        yield proxy.port(FORWARD_PROXY)
    finally:
        await proxy.close(1)


@dataclass
class ByProxy:
    """`kb` is a plain source that is also called `kb.test`, `api` one over TLS below `/v1`."""

    port: int
    kb: DataSource
    api: DataSource
    sidecar: Sidecar

    async def get(self, target: str, *fields: str, host: str | None = None) -> Answered:
        """A GET of a target in absolute form."""
        named = host if host is not None else target.partition("://")[2].partition("/")[0]
        lines = [f"GET {target} HTTP/1.1", f"Host: {named}", *fields]
        return await ask(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n")


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[ByProxy]:
    closed = policy(denied_sources=("rest://kb/secret", "rest://kb/secret/*"))
    ours = authority()
    async with (
        data_source(answer(body=b"of kb")) as kb,
        data_source(answer(body=b"of api"), ours.server("localhost")) as api,
        sidecar(tmp_path, closed) as made,
    ):
        over_tls = source(
            api.port, alias="api", tls=UpstreamTls(ca=ours.path), hosts=("api.test",), listen=None
        )
        over_tls = replace(over_tls, upstream=f"https://localhost:{api.port}/v1")
        plain = source(kb.port, hosts=("kb.test", "*.kb.test"), listen=None)
        async with proxying(made, plain, over_tls) as port:
            yield ByProxy(port, kb, api, made)


async def test_a_source_is_found_by_its_upstream_and_by_its_names(proxy: ByProxy) -> None:
    here = f"127.0.0.1:{proxy.kb.port}"
    for where in (
        here,
        "kb.test",
        "KB.test.",
        "kb.test:80",
        "a.kb.test",
        f"kb.test:{proxy.kb.port}",
    ):
        answered = await proxy.get(f"http://{where}/a?x=%2Fy")
        assert (answered.status, answered.body) == (200, b"of kb"), where
    assert {each.target for each in proxy.kb.seen} == {"/a?x=%2Fy"}
    assert {each.values("host")[0] for each in proxy.kb.seen} == {here}
    assert {each[2] for each in await proxy.sidecar.decisions()} == {"rest://kb/a"}


async def test_the_requested_path_is_placed_below_the_path_of_the_upstream(proxy: ByProxy) -> None:
    where = f"localhost:{proxy.api.port}"
    for target in (f"https://{where}/v1/a", f"http://{where}/v1/a", "https://api.test/v1/a",
                   "http://api.test/v1/a", "HTTPS://API.test/%761/a"):  # fmt: skip
        assert (await proxy.get(target)).body == b"of api", target
    assert {each.target for each in proxy.api.seen} == {"/v1/a"}
    assert {each[2] for each in await proxy.sidecar.decisions()} == {"rest://api/a"}
    for target in ("/a", "/v1x/a", "/V1/a", "/"):
        answered = await proxy.get(f"https://api.test{target}")
        assert answered.json["decision"]["policy_name"] == "unknown_destination"


async def test_a_denied_request_reaches_no_source(proxy: ByProxy) -> None:
    for target in ("/secret", "/%73ecret", "/secret/x?y"):
        answered = await proxy.get(f"http://kb.test{target}")
        assert answered.status == 403
        assert answered.json["decision"]["policy_name"] == "analysts-read"
    assert proxy.kb.begun == []


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("http://evil.test/a", "http://evil.test:80"),
        ("https://Evil.test./a", "https://evil.test:443"),
        ("http://evil.test:81", "http://evil.test:81"),
        ("http://169.254.169.254/latest", "http://169.254.169.254:80"),
        ("http://[::ffff:127.0.0.1]/a", "http://[::ffff:7f00:1]:80"),
        ("http://127.0.0.1/a", "http://127.0.0.1:80"),
        ("http://kb.test:81/a", "http://kb.test:81"),
        ("http://kb.test.evil.test/a", "http://kb.test.evil.test:80"),
        ("https://kb.test/a", "https://kb.test:443"),
    ],
)
async def test_a_request_to_an_unknown_destination_is_denied_and_recorded(
    proxy: ByProxy, target: str, named: str
) -> None:
    answered = await proxy.get(target)
    assert answered.status == 403
    assert answered.json["decision"]["policy_name"] == "unknown_destination"
    assert await proxy.sidecar.decisions() == [("DENY", "unknown_destination", named)]
    [record] = await proxy.sidecar.records()
    request = record["pub"]["request"]
    assert (request["source_type"], request["sensitivity_level"]) == ("web", "critical")
    assert proxy.kb.begun == proxy.api.begun == []


# `proxy/RULES.md`, B26: the sidecar's own ports are no way to anything.
async def test_own_ports_are_not_reached_through_ourselves(proxy: ByProxy) -> None:
    for host in ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "127.1"):
        answered = await proxy.get(f"http://{host}:{proxy.port}/metrics")
        assert answered.status in (400, 403), host
    assert {each[0] for each in await proxy.sidecar.decisions()} == {"DENY"}


UNREADABLE = [
    "/a", "*", "kb.test", "kb.test:80", "//kb.test/a", "http:/kb.test/a", "http:kb.test/a",
    "ftp://kb.test/a", "foo://kb.test/a", "http://", "http:///a", "http://:80/a",
    "http://u@kb.test/a", "http://u:p@kb.test/a", "http://kb.test@evil.test/a",
    "http://evil.test#@kb.test/a", "http://evil.test\\@kb.test/a", "http://kb.test:/a",
    "http://kb.test:0/a", "http://kb.test:99999/a", "http://kb.test:x/a", "http://127.1/a",
    "http://0x7f.0.0.1/a", "http://2130706433/a", "http://[::1%25lo]/a", "http://[kb.test]/a",
    "http://k%62.test/a", "http://kb.test%2f/a", "http://kb..test/a", "http://kb.test/../secret",
    "http://kb.test/%2e%2e/secret", "http://kb.test//secret", "http://kb.test/a%2fsecret",
    "http://kb.test/a#b", "http://kb.test/a\\b", "http://kb.test/%252fa", "http://kb.test/%zz",
    "http://kb.test#/secret", "http://kb.test/..;/secret", "http://k\u00e4.test/a",
]  # fmt: skip


@pytest.mark.parametrize("target", UNREADABLE)
async def test_a_target_with_two_readings_is_refused(proxy: ByProxy, target: str) -> None:
    answered = await proxy.get(target, host="kb.test")
    assert answered.status == 400, answered.raw[:300]
    assert await proxy.sidecar.decisions() == [("DENY", "unreadable_request", "web://127.0.0.1:0")]
    assert proxy.kb.begun == proxy.api.begun == []


@pytest.mark.parametrize("host", ["evil.test", "kb.test:81", "a@kb.test", "", "kb.test, evil.test"])
async def test_a_host_that_contradicts_the_target_is_refused(proxy: ByProxy, host: str) -> None:
    answered = await proxy.get("http://kb.test/a", host=host)
    assert answered.status == 400
    assert proxy.kb.begun == []


async def test_each_request_on_a_connection_is_judged_by_its_own_destination(
    proxy: ByProxy,
) -> None:
    lines = "GET {} HTTP/1.1\r\nHost: {}\r\n\r\n"
    wanted = [
        ("http://kb.test/a", "kb.test"), ("http://evil.test/a", "evil.test"),
        ("http://api.test/v1/b", "api.test"), ("http://kb.test/secret", "kb.test"),
        ("http://kb.test", "kb.test"),
    ]  # fmt: skip
    answered = await ask(proxy.port, "".join(lines.format(*each) for each in wanted).encode())
    statuses = [part[:3] for part in answered.raw.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"403", b"200", b"403", b"200"]
    assert (proxy.kb.targets, proxy.api.targets) == (["/a", "/"], ["/v1/b"])


async def test_headers_between_agent_and_proxy_are_not_forwarded(proxy: ByProxy) -> None:
    fields = (
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic x",
        "X-Sluice-User: eve",
    )
    assert (await proxy.get("http://kb.test/a", *fields)).status == 200
    [seen] = proxy.kb.seen
    assert [name for name, _ in seen.fields] == ["Host"]
    [record] = [each for each in await proxy.sidecar.records() if each["kind"] == "decision"]
    assert record["pub"]["response"]["decision"] == "ALLOW"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("http://a.test", ("http", ("a.test", 80), "/")),
        ("https://a.test", ("https", ("a.test", 443), "/")),
        ("HTTP://A.test?x", ("http", ("a.test", 80), "/?x")),
        ("http://[::1]:81/x", ("http", ("::1", 81), "/x")),
    ],
)
def test_a_target_is_split_into_its_parts(target: str, expected: object) -> None:
    assert parse_absolute(target) == expected
