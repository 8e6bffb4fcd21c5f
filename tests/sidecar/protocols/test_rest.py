"""Any HTTP interface, with the operator's table of routes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from policies.definitions.model import Policy
from sidecar.http.attribution import Attribution
from sidecar.http.request_target import canonical
from sidecar.protocols import rest
from sidecar.protocols.protocol import ProtocolRoute as Route_
from sidecar.protocols.protocol import RouteClass, RoutedRequest, RouteMatch
from sidecar.protocols.rest import Rest
from sidecar.protocols.strict_body import Budget
from sidecar.settings.model import NamedSource, RestRule
from tests.sidecar.proxy.raw_client import get
from tests.support.proxy import policy, proxy_setup, source

SOMEBODY = Attribution("somebody", None, None, None)

ROUTES = (
    RestRule("GET", "/health", "metadata", None, "low"),
    RestRule("*", "/admin/**", "deny"),
    RestRule("POST", "/search/{index}", "retrieve", "{index}-index", "high"),
    RestRule("GET", "/{kind}/{id}/export/**", "retrieve", "rest://kb/exports/{kind}"),
    RestRule("PUT", "/drafts/{name}.txt", "write", "drafts"),
    RestRule("*", "/**/private/**", "deny"),
)

ROWS = [
    # method, target, class, source, level
    ("GET", "/a", RouteClass.RETRIEVE, "rest://kb/a", "medium"),
    ("HEAD", "/a", RouteClass.RETRIEVE, "rest://kb/a", "medium"),
    ("GET", "/", RouteClass.RETRIEVE, "rest://kb/", "medium"),
    ("GET", "/a/", RouteClass.RETRIEVE, "rest://kb/a/", "medium"),
    ("GET", "/%61?x", RouteClass.RETRIEVE, "rest://kb/a", "medium"),
    ("GET", "/a%20b", RouteClass.RETRIEVE, "rest://kb/a%20b", "medium"),
    ("POST", "/a", RouteClass.WRITE, "rest://kb/a", "medium"),
    ("DELETE", "/a", RouteClass.WRITE, "rest://kb/a", "medium"),
    ("OPTIONS", "/a", RouteClass.WRITE, "rest://kb/a", "medium"),
    ("TRACE", "/a", RouteClass.WRITE, "rest://kb/a", "medium"),
    ("GET", "/health", RouteClass.METADATA, "rest://kb/health", "low"),
    ("HEAD", "/health", RouteClass.METADATA, "rest://kb/health", "low"),
    ("POST", "/health", RouteClass.WRITE, "rest://kb/health", "medium"),
    ("GET", "/admin", RouteClass.DENY, None, None),
    ("GET", "/admin/", RouteClass.DENY, None, None),
    ("GET", "/admin/a/b", RouteClass.DENY, None, None),
    ("DELETE", "/%61dmin/x", RouteClass.DENY, None, None),
    ("GET", "/administrator", RouteClass.RETRIEVE, "rest://kb/administrator", "medium"),
    ("POST", "/search/books", RouteClass.RETRIEVE, "books-index", "high"),
    ("POST", "/search/a%20b", RouteClass.RETRIEVE, "a%20b-index", "high"),
    ("POST", "/search/a/b", RouteClass.WRITE, "rest://kb/search/a/b", "medium"),
    ("GET", "/search/books", RouteClass.RETRIEVE, "rest://kb/search/books", "medium"),
    ("GET", "/orders/7/export", RouteClass.RETRIEVE, "rest://kb/exports/orders", "medium"),
    ("GET", "/orders/7/export/all/x", RouteClass.RETRIEVE, "rest://kb/exports/orders", "medium"),
    ("PUT", "/drafts/x.txt", RouteClass.WRITE, "drafts", "low"),
    ("PUT", "/drafts/xtxt", RouteClass.WRITE, "rest://kb/drafts/xtxt", "medium"),
    ("GET", "/private", RouteClass.DENY, None, None),
    ("GET", "/a/b/private/c", RouteClass.DENY, None, None),
    ("GET", "/a/privateer", RouteClass.RETRIEVE, "rest://kb/a/privateer", "medium"),
]


@pytest.mark.parametrize(("method", "target", "class_", "source_id", "level"), ROWS)
async def test_the_first_route_that_matches_wins(
    method: str, target: str, class_: RouteClass, source_id: str | None, level: str | None
) -> None:
    configured = source(1, routes=ROUTES, names={"drafts": NamedSource("drafts", "low")})
    protocol = Rest(configured, lambda: 0.0)
    match = protocol.match(method, canonical(target))
    assert match is not None
    assert match.route.route_class is class_
    if source_id is None:
        return

    async def fetch(_: str, _body: bytes | None = None) -> Any:
        raise AssertionError("a path needs no look-up")

    request = RoutedRequest(
        method, canonical(target), match.path_params, None, fetch, [], SOMEBODY, Budget()
    )
    assert match.route.find_sources is not None
    assert match.route.hint_source is not None
    sources = await match.route.find_sources(protocol, request)
    assert sources == ((source_id, level),)
    assert match.route.hint_source(protocol, request) == sources[0]


READ: dict[str, Any] = {"routes": ROUTES}


@pytest.mark.parametrize(
    ("request_line", "writes", "status", "policy_name", "source_id"),
    [
        ("GET /customers/7", "deny", 200, "analysts-read", "rest://kb/customers/7"),
        ("HEAD /customers/7", "deny", 200, "analysts-read", "rest://kb/customers/7"),
        ("GET /orders/7", "deny", 403, "analysts-read", "rest://kb/orders/7"),
        ("POST /customers/7", "deny", 403, "write_denied", "rest://kb/customers/7"),
        ("DELETE /customers/7", "deny", 403, "write_denied", "rest://kb/customers/7"),
        ("POST /customers/7", "allow", 200, "analysts-read", "rest://kb/customers/7"),
        ("POST /orders/7", "allow", 403, "analysts-read", "rest://kb/orders/7"),
        ("POST /search/customers", "deny", 403, "analysts-read", "customers-index"),
        ("GET /admin/x", "allow", 403, "route_denied", "rest://kb"),
    ],
)
async def test_a_classified_request_is_judged_and_recorded(
    tmp_path: Path,
    request_line: str,
    writes: str,
    status: int,
    policy_name: str,
    source_id: str,
) -> None:
    readers = policy(allowed_sources=("rest://kb/customers/*",))
    async with proxy_setup(tmp_path, readers, routes=ROUTES, writes=writes) as front:
        answered = await front.ask(f"{request_line} HTTP/1.1\r\nHost: kb\r\n\r\n".encode())
        assert answered.status == status
        decision = "ALLOW" if status == 200 else "DENY"
        assert await front.sidecar.decisions() == [(decision, policy_name, source_id)]
        assert len(front.upstream.seen) == (1 if status == 200 else 0)


@pytest.mark.parametrize(
    ("request_line", "count"),
    [("GET /a", 1), ("HEAD /a", 1), ("POST /a", 0), ("GET /health", 0), ("POST /search/a", 1)],
)
async def test_only_a_retrieval_has_lineage(tmp_path: Path, request_line: str, count: int) -> None:
    async with proxy_setup(tmp_path, policy(), routes=ROUTES, writes="allow") as front:
        assert (
            await front.ask(f"{request_line} HTTP/1.1\r\nHost: kb\r\n\r\n".encode())
        ).status == 200
        assert not count or await front.sidecar.lineage(count)
        await asyncio.sleep(0.05)
        kinds = [record["kind"] for record in await front.sidecar.records()]
        assert kinds.count("lineage") == count
        assert kinds.count("decision") == 1


SPELLINGS = ["/secret", "/%73ecret", "/s%65cret", "/secre%74"]


@pytest.mark.parametrize("target", SPELLINGS)
async def test_every_spelling_of_a_denied_path_is_denied(tmp_path: Path, target: str) -> None:
    shut: Policy = policy(denied_sources=("rest://kb/secret",))
    async with proxy_setup(tmp_path, shut) as front:
        assert (await front.ask(get(target))).status == 403
        assert (await front.sidecar.decisions())[0][2] == "rest://kb/secret"
        assert front.upstream.begun == []


async def test_a_protocol_that_names_no_source_lets_nothing_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr(
        rest, "_READ", RouteMatch(Route_("GET", "/**", RouteClass.RETRIEVE, none), ())
    )
    async with proxy_setup(tmp_path) as front:
        assert (await front.ask(get("/a"))).status == 403
        assert await front.sidecar.decisions() == [("DENY", "unresolved_source", "rest://kb")]
        assert front.upstream.begun == []
