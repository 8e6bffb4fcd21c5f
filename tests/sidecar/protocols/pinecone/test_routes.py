"""Pinecone's writes, its assistants, and what is closed."""

from pathlib import Path
from typing import Any

import pytest

from sidecar.http.request_target import canonical
from sidecar.protocols.pinecone.routes import ROUTES, Pinecone
from sidecar.protocols.protocol import RouteClass
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.pinecone.front import OPEN
from tests.sidecar.protocols.pinecone.server import Server
from tests.support.proxy import CLOCK, source


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("POST", "/vectors/upsert", {"vectors": [], "namespace": "shut"}, "shut"),
        ("POST", "/vectors/delete", {"deleteAll": True, "namespace": "shut"}, "shut"),
        ("POST", "/vectors/update", {"id": "1", "namespace": "shut"}, "shut"),
        ("POST", "/records/namespaces/shut/upsert", {"_id": "1"}, "shut"),
        ("POST", "/namespaces/shut/documents/delete", {"ids": ["1"]}, "shut"),
        ("POST", "/namespaces", {"name": "shut"}, "shut"),
        ("DELETE", "/namespaces/shut", None, "shut"),
        ("DELETE", "/assistant/files/shut/1", None, "assistant/shut"),
    ],
)
async def test_writes_are_judged_by_their_namespace(
    tmp_path: Path, method: str, target: str, body: Any, expected: str
) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "pinecone", server, OPEN, writes="allow") as front:
        denied(await front.ask(method, target, body), "analysts-read")
        assert await front.sources() == [("DENY", f"pinecone://kb/{expected}")]


async def test_an_assistant_is_a_source_of_its_own(front: Minimal) -> None:
    for verb in ("", "/context", "/chat/completions"):
        assert (await front.ask("POST", f"/assistant/chat/helper{verb}", {})).status == 200
        denied(await front.ask("POST", f"/assistant/chat/shut{verb}", {}), "analysts-read")
    assert set(await front.sources()) == {
        ("ALLOW", "pinecone://kb/assistant/helper"), ("DENY", "pinecone://kb/assistant/shut"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("method", "target", "name"),
    [
        ("POST", "/bulk/imports", "route_denied"),
        ("GET", "/bulk/imports/1", "route_denied"),
        ("GET", "/assistant/assistants", "route_denied"),
        ("POST", "/vectors/upsert", "write_denied"),
        ("POST", "/query/", "unclassified_route"),
        ("POST", "/records/namespaces//search", "unreadable_request"),
        ("GET", "/indexes", "unclassified_route"),
    ],
)
async def test_a_closed_route_is_denied_and_not_forwarded(
    front: Minimal, method: str, target: str, name: str
) -> None:
    answered = await front.ask(method, target, None if method == "GET" else {})
    denied(answered, name, 400 if name == "unreadable_request" else 403)
    # A write is recorded under the namespace that its body names.
    recorded = "pinecone://kb/__default__" if name == "write_denied" else "pinecone://kb"
    assert await front.sources() == [("DENY", recorded)]
    assert front.lines == []


def test_every_route_that_reads_names_its_source() -> None:
    lists = ("/namespaces", "/describe_index_stats")
    for route in ROUTES:
        if route.route_class in (RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE):
            assert route.find_sources is not None or route.pattern in lists, route.pattern
        if route.filters_documents:
            assert route.plan_forward is not None, route.pattern


def test_each_route_has_its_class() -> None:
    protocol = Pinecone(source(1, "pinecone"), CLOCK.monotonic)
    for method, path, class_ in (
        ("POST", "/vectors/fetch_by_metadata", RouteClass.RETRIEVE),
        ("POST", "/namespaces/a/documents/upsert", RouteClass.WRITE),
        ("GET", "/assistant/files/a/b", RouteClass.RETRIEVE),
    ):
        match = protocol.match(method, canonical(path))
        assert match is not None
        assert match.route.route_class is class_
