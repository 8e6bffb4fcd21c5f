"""Any HTTP interface, by the operator's table of routes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from policies.definitions.model import Policy
from sidecar.http.attribution import Attribution
from sidecar.http.request_target import canonical
from sidecar.protocols import rest
from sidecar.protocols.budget import Budget
from sidecar.protocols.protocol import Asked, Class, Match
from sidecar.protocols.protocol import Route as Route_
from sidecar.protocols.rest import Rest
from sidecar.settings.model import Named, Route
from tests.sidecar.proxy.stand import get, policy, source, standing

NOBODY = Attribution("somebody", None, None, None)

ROUTES = (
    Route("GET", "/health", "metadata", None, "low"),
    Route("*", "/admin/**", "deny"),
    Route("POST", "/search/{index}", "retrieve", "{index}-index", "high"),
    Route("GET", "/{kind}/{id}/export/**", "retrieve", "rest://kb/exports/{kind}"),
    Route("PUT", "/drafts/{name}.txt", "write", "drafts"),
    Route("*", "/**/private/**", "deny"),
)

ROWS = [
    # method, target, class, source, level
    ("GET", "/a", Class.RETRIEVE, "rest://kb/a", "medium"),
    ("HEAD", "/a", Class.RETRIEVE, "rest://kb/a", "medium"),
    ("GET", "/", Class.RETRIEVE, "rest://kb/", "medium"),
    ("GET", "/a/", Class.RETRIEVE, "rest://kb/a/", "medium"),
    ("GET", "/%61?x", Class.RETRIEVE, "rest://kb/a", "medium"),
    ("GET", "/a%20b", Class.RETRIEVE, "rest://kb/a%20b", "medium"),
    ("POST", "/a", Class.WRITE, "rest://kb/a", "medium"),
    ("DELETE", "/a", Class.WRITE, "rest://kb/a", "medium"),
    ("OPTIONS", "/a", Class.WRITE, "rest://kb/a", "medium"),
    ("TRACE", "/a", Class.WRITE, "rest://kb/a", "medium"),
    ("GET", "/health", Class.METADATA, "rest://kb/health", "low"),
    ("HEAD", "/health", Class.METADATA, "rest://kb/health", "low"),
    ("POST", "/health", Class.WRITE, "rest://kb/health", "medium"),
    ("GET", "/admin", Class.DENY, None, None),
    ("GET", "/admin/", Class.DENY, None, None),
    ("GET", "/admin/a/b", Class.DENY, None, None),
    ("DELETE", "/%61dmin/x", Class.DENY, None, None),
    ("GET", "/administrator", Class.RETRIEVE, "rest://kb/administrator", "medium"),
    ("POST", "/search/books", Class.RETRIEVE, "books-index", "high"),
    ("POST", "/search/a%20b", Class.RETRIEVE, "a%20b-index", "high"),
    ("POST", "/search/a/b", Class.WRITE, "rest://kb/search/a/b", "medium"),
    ("GET", "/search/books", Class.RETRIEVE, "rest://kb/search/books", "medium"),
    ("GET", "/orders/7/export", Class.RETRIEVE, "rest://kb/exports/orders", "medium"),
    ("GET", "/orders/7/export/all/x", Class.RETRIEVE, "rest://kb/exports/orders", "medium"),
    ("PUT", "/drafts/x.txt", Class.WRITE, "drafts", "low"),
    ("PUT", "/drafts/xtxt", Class.WRITE, "rest://kb/drafts/xtxt", "medium"),
    ("GET", "/private", Class.DENY, None, None),
    ("GET", "/a/b/private/c", Class.DENY, None, None),
    ("GET", "/a/privateer", Class.RETRIEVE, "rest://kb/a/privateer", "medium"),
]


@pytest.mark.parametrize(("method", "target", "class_", "source_id", "level"), ROWS)
async def test_the_first_route_that_matches_wins(
    method: str, target: str, class_: Class, source_id: str | None, level: str | None
) -> None:
    configured = source(1, routes=ROUTES, names={"drafts": Named("drafts", "low")})
    dialect = Rest(configured, lambda: 0.0)
    match = dialect.match(method, canonical(target))
    assert match is not None
    assert match.route.class_ is class_
    if source_id is None:
        return

    async def fetch(_: str) -> Any:
        raise AssertionError("a path needs no look-up")

    asked = Asked(method, canonical(target), match.values, None, fetch, [], NOBODY, Budget())
    assert match.route.places is not None
    assert match.route.hint is not None
    places = await match.route.places(dialect, asked)
    assert places == ((source_id, level),)
    assert match.route.hint(dialect, asked) == places[0]


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
async def test_what_is_classed_is_judged_and_recorded(
    tmp_path: Path,
    request_line: str,
    writes: str,
    status: int,
    policy_name: str,
    source_id: str,
) -> None:
    readers = policy(allowed_sources=("rest://kb/customers/*",))
    async with standing(tmp_path, readers, routes=ROUTES, writes=writes) as stand:
        answered = await stand.ask(f"{request_line} HTTP/1.1\r\nHost: kb\r\n\r\n".encode())
        assert answered.status == status
        decision = "ALLOW" if status == 200 else "DENY"
        assert await stand.sidecar.decisions() == [(decision, policy_name, source_id)]
        assert len(stand.upstream.seen) == (1 if status == 200 else 0)


@pytest.mark.parametrize(
    ("request_line", "count"),
    [("GET /a", 1), ("HEAD /a", 1), ("POST /a", 0), ("GET /health", 0), ("POST /search/a", 1)],
)
async def test_only_a_retrieval_has_lineage(tmp_path: Path, request_line: str, count: int) -> None:
    async with standing(tmp_path, policy(), routes=ROUTES, writes="allow") as stand:
        assert (
            await stand.ask(f"{request_line} HTTP/1.1\r\nHost: kb\r\n\r\n".encode())
        ).status == 200
        assert not count or await stand.sidecar.lineage(count)
        await asyncio.sleep(0.05)
        kinds = [record["kind"] for record in await stand.sidecar.records()]
        assert kinds.count("lineage") == count
        assert kinds.count("decision") == 1


SPELLINGS = ["/secret", "/%73ecret", "/s%65cret", "/secre%74"]


@pytest.mark.parametrize("target", SPELLINGS)
async def test_every_spelling_of_a_denied_path_is_denied(tmp_path: Path, target: str) -> None:
    shut: Policy = policy(denied_sources=("rest://kb/secret",))
    async with standing(tmp_path, shut) as stand:
        assert (await stand.ask(get(target))).status == 403
        assert (await stand.sidecar.decisions())[0][2] == "rest://kb/secret"
        assert stand.upstream.begun == []


async def test_a_protocol_that_names_no_source_lets_nothing_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr(rest, "_READ", Match(Route_("GET", "/**", Class.RETRIEVE, none), ()))
    async with standing(tmp_path) as stand:
        assert (await stand.ask(get("/a"))).status == 403
        assert await stand.sidecar.decisions() == [("DENY", "unresolved_source", "rest://kb")]
        assert stand.upstream.begun == []
