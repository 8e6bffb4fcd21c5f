"""The collections of REST requests and of writes, however they name them. In front of a minimal
server (`server.py`)."""

from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.weaviate.front import ID, LOOKUP, OPEN, arrived
from tests.sidecar.protocols.weaviate.judging import judge
from tests.sidecar.protocols.weaviate.server import Server
from tests.sidecar.proxy.raw_client import ask


@pytest.mark.parametrize(
    ("method", "target", "source_id"),
    [
        ("GET", "/v1/objects?class=Shut", "Shut"),
        ("GET", "/v1/objects?cl%61ss=Sh%75t&limit=1", "Shut"),
        ("GET", "/v1/objects?class=shut", "Shut"),
        ("GET", "/v1/objects?class=OpenAlias&tenant=ours", "Shut/ours"),
        ("GET", f"/v1/objects/shut/{ID}", "Shut"),
        ("HEAD", f"/v1/objects/Shut/{ID}", "Shut"),
        ("GET", f"/v1/objects/OpenAlias/{ID}?tenant=theirs", "Shut/theirs"),
        ("GET", "/v1/schema/Shut", "Shut"),
        ("GET", "/v1/schema/openAlias", "Shut"),
        ("GET", "/v1/schema/Shut/tenants/ours", "Shut/ours"),
        ("GET", "/v1/nodes/Shut", "Shut"),
        ("GET", "/v1/aliases/OpenAlias", "Shut"),
    ],
)
async def test_the_collections_of_rest_requests_are_judged(
    front: Minimal, method: str, target: str, source_id: str
) -> None:
    if method == "HEAD":
        line = f"HEAD {target} HTTP/1.1\r\nHost: kb\r\nConnection: close\r\n\r\n"
        assert (await ask(front.port, line.encode())).status == 403
    else:
        denied(await front.ask(method, target), "analysts-read")
    assert await front.sources() == [("DENY", f"weaviate://kb/{source_id}")]
    assert arrived(front) == []


@pytest.mark.parametrize(
    ("method", "target", "name", "status"),
    [
        ("GET", "/v1/objects", "unresolved_source", 403),
        ("GET", "/v1/objects?class=", "unresolved_source", 403),
        ("GET", f"/v1/objects/{ID}", "unresolved_source", 403),
        ("GET", "/v1/objects?class=Open&class=Shut", "unreadable_request", 400),
        ("GET", "/v1/objects?class=Open;class=Shut", "unreadable_request", 400),
        ("GET", "/v1/objects?class=Open%zz", "unreadable_request", 400),
        ("GET", "/v1/objects?class=Open%FF", "unreadable_request", 400),
        ("GET", f"/v1/objects/Op%C3%A9n/{ID}", "unresolved_source", 403),
        ("GET", "/v1/schema/", "unclassified_route", 403),
        ("POST", "/v1/aliases", "route_denied", 403),
        ("PUT", "/v1/aliases/Docs", "route_denied", 403),
        ("POST", "/v1/backups/s3", "route_denied", 403),
        ("POST", "/v1/export/s3", "route_denied", 403),
        ("POST", "/v1/classifications", "route_denied", 403),
        ("POST", "/v1/objects", "write_denied", 403),
        ("DELETE", "/v1/batch/objects", "write_denied", 403),
        ("POST", "/v1/aggregate/Open", "unclassified_route", 403),
    ],
)
async def test_denied_and_unclear_requests_are_not_forwarded(
    front: Minimal, method: str, target: str, name: str, status: int
) -> None:
    denied(await front.ask(method, target, None if method == "GET" else {}), name, status)
    assert front.lines == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"query": ["a"]}, ("ALLOW", "Open")),
        ({"query": ["a"], "tenant": "ours"}, ("ALLOW", "Open/ours")),
        ({"query": ["a"], "where": {"path": ["next", "Shut", "title"]}}, ("DENY", "Shut")),
    ],
)
async def test_a_rest_search_is_judged_with_its_filter(
    front: Minimal, body: Any, expected: tuple[str, str]
) -> None:
    await front.ask("POST", "/v1/search/Open/near-text", body)
    assert await front.sources() == [(expected[0], f"weaviate://kb/{expected[1]}")]


@pytest.mark.parametrize("member", ["Tenant", "WHERE", "returnReferences", "groupBy"])
async def test_a_rest_search_with_an_unknown_member_is_denied(front: Minimal, member: str) -> None:
    body = {"query": ["a"], member: "x"}
    denied(await front.ask("POST", "/v1/search/Open/bm25", body), "unresolved_source")


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("POST", "/v1/objects", {"class": "Open"}, ("ALLOW", "Open")),
        ("POST", "/v1/objects", {"class": "shut", "tenant": "ours"}, ("DENY", "Shut/ours")),
        ("PUT", f"/v1/objects/Open/{ID}", {"class": "Shut"}, ("DENY", "Shut")),
        ("PATCH", f"/v1/objects/Shut/{ID}", {"class": "Open"}, ("DENY", "Shut")),
        ("DELETE", f"/v1/objects/OpenAlias/{ID}", None, ("DENY", "Shut")),
        ("POST", "/v1/batch/objects", {"objects": [{"class": "Open"}, {"class": "Shut"}]},
         ("DENY", "Shut")),
        ("DELETE", "/v1/batch/objects", {"match": {"class": "Shut"}}, ("DENY", "Shut")),
        ("DELETE", "/v1/batch/objects",
         {"match": {"class": "Open", "where": {"path": ["next", "Shut", "a"]}}}, ("DENY", "Shut")),
        ("POST", "/v1/batch/references", [{"from": f"weaviate://localhost/Shut/{ID}/next"}],
         ("DENY", "Shut")),
        ("POST", f"/v1/objects/Shut/{ID}/references/next", {}, ("DENY", "Shut")),
        ("POST", "/v1/schema", {"class": "Shut"}, ("DENY", "Shut")),
        ("POST", "/v1/schema/Shut/tenants", [], ("DENY", "Shut")),
    ],
)  # fmt: skip
async def test_writes_are_judged_by_every_collection_they_name(
    tmp_path: Path, method: str, target: str, body: Any, expected: tuple[str, str]
) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "weaviate", server, OPEN, writes="allow") as front:
        await front.ask(method, target, body)
        assert await front.sources() == [(expected[0], f"weaviate://kb/{expected[1]}")]


async def test_a_denied_write_is_recorded_under_the_first_collection_of_its_body() -> None:
    reference = {"from": f"weaviate://localhost/Shut/{ID}/next"}
    for method, target, body in (
        ("POST", "/v1/objects", {"class": "shut", "tenant": "ours"}),
        ("POST", "/v1/batch/objects", {"objects": [{"class": "Shut"}, {"class": "Open"}]}),
        ("DELETE", "/v1/batch/objects", {"match": {"class": "Shut"}}),
        ("POST", "/v1/batch/references", [reference]),
        ("POST", "/v1/schema", {"class": "Shut"}),
    ):
        assert (await judge(method, target, body)).hint == "Shut", target


@pytest.mark.parametrize(
    "body",
    [{"class": "Open", "Class": "Shut"}, {"class": "Open", "claſs": "Shut"}, {"Class": "Open"}],
)
async def test_a_member_that_only_a_lenient_reader_takes_is_refused(
    tmp_path: Path, body: Any
) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "weaviate", server, OPEN, writes="allow") as front:
        answered = await front.ask("POST", "/v1/objects", body)
        denied(answered, "unreadable_request", 400)


async def test_a_write_that_changes_names_forgets_the_aliases(tmp_path: Path) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "weaviate", server, OPEN, writes="allow") as front:
        for method in ("GET", "DELETE", "GET"):
            await front.ask(method, "/v1/schema/Open")
        assert front.lines.count(LOOKUP) == 2
