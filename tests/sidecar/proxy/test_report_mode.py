"""A source in mode `report`: what would be denied goes on, and the log has it as the denial it
is."""

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.definitions.model import TenantSettings
from policies.trail.record import REPORT_PREFIX
from sidecar.settings.model import NamedSource, RestRule
from sidecar.spool.errors import SpoolFull
from tests.sidecar.proxy.raw_client import Answered, get
from tests.sidecar.proxy.test_forward_proxy import proxying
from tests.support.certificates import authority
from tests.support.proxy import ProxySetup, policy, proxy_setup, sidecar, source
from tests.support.scripted_source import Seen, answer, data_source

CLOSED = policy(denied_sources=("rest://kb/secret", "contracts"))
UNKNOWN_ID = "2a8c53c4-6d3f-4f5c-8a3c-8f3d1f3c7a11"
COLLECTIONS = "/api/v2/tenants/t/databases/d/collections"


def post(target: str, body: bytes = b"{}", *fields: str) -> bytes:
    lines = [
        f"POST {target} HTTP/1.1",
        "Host: kb.test",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *fields,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def recorded(setup: ProxySetup) -> list[dict[str, Any]]:
    """`pub.response` of each decision."""
    records = await setup.sidecar.records()
    return [each["pub"]["response"] for each in records if each["kind"] == "decision"]


async def test_a_denied_retrieval_is_forwarded_and_recorded_as_denied(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        answered = await setup.ask(get("/secret"))
        assert (answered.status, answered.body) == (200, b"ok")
        assert answered.fields["x-sluice-decision"] == "DENY"
        assert setup.upstream.targets == ["/secret"]
        [told] = await recorded(setup)
        assert (told["decision"], told["policy_name"]) == ("DENY", "analysts-read")
        assert told["check"] == "source"
        assert told["reason"].startswith(f"{REPORT_PREFIX}source `rest://kb/secret` is in")
        [record] = [r for r in await setup.sidecar.records() if r["kind"] == "decision"]
        assert answered.fields["x-sluice-event-id"] == record["eid"]


async def test_a_freeze_stops_requests_that_report_mode_forwards(tmp_path: Path) -> None:
    """Whatever the denial: by the freeze itself, or by a rule that no check knows."""
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        assert (await setup.ask(get("/secret"))).status == 200
        setup.sidecar.publish(TenantSettings("ten_1", frozen_at=1))
        assert (await setup.ask(get("/secret"))).status == 403
        assert (await setup.ask(get("/public"))).status == 403
        assert (await setup.ask(post("/secret"))).status == 403
        assert setup.upstream.targets == ["/secret"]
        names = [each["policy_name"] for each in (await recorded(setup))[1:]]
        assert names == ["tenant_frozen", "tenant_frozen", "write_denied"]
        setup.sidecar.publish(TenantSettings("ten_1"))
        assert (await setup.ask(get("/secret"))).status == 200


async def test_the_response_to_a_forwarded_denial_is_lineage_of_that_event(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        event_id = (await setup.ask(get("/secret"))).fields["x-sluice-event-id"]
        [lineage] = await setup.sidecar.lineage()
        assert lineage["event"]["id"] == event_id
        assert lineage["outcome"] == "completed"
        detail = lineage["detail"]
        assert (detail["status"], detail["bytes"], detail["withheld"]) == (200, 2, 0)
        assert detail["sha256"] == hashlib.sha256(b"ok").hexdigest()


async def test_allowed_requests_are_the_same_in_report_mode(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        answered = await setup.ask(get("/a"))
        assert answered.status == 200
        assert "x-sluice-decision" not in answered.fields
        [told] = await recorded(setup)
        assert told["decision"] == "ALLOW"
        assert not told["reason"].startswith(REPORT_PREFIX)


async def test_a_forwarded_denial_is_counted_by_its_cause(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        for data in (get("/secret"), post("/a"), get("/a")):
            assert (await setup.ask(data)).status == 200
        registry = setup.sidecar.enforcer.metrics.registry

        def count(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(name, labels)

        assert count("sluice_reported_total", check="source") == 1
        assert count("sluice_reported_total", check="write_denied") == 1
        assert count("sluice_decisions_total", decision="DENY", check="source") == 1
        assert count("sluice_decisions_total", decision="ALLOW", check="none") == 1


async def test_a_source_enforces_unless_report_mode_is_set(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, CLOSED) as setup:
        assert (await setup.ask(get("/secret"))).status == 403
        assert setup.upstream.targets == []


@pytest.mark.parametrize(
    "data",
    [
        get("/a/../secret"),
        get("/a%2fb"),
        get("/a", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
        get("/a", "X-Sluice-User: a", "X-Sluice-User: b"),
        b"nonsense\r\n\r\n",
        b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n",
    ],
)
async def test_an_ambiguous_request_is_refused_in_report_mode_too(
    tmp_path: Path, data: bytes
) -> None:
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        assert (await setup.ask(data)).status == 400
        assert setup.upstream.begun == []
        [told] = await recorded(setup)
        assert told["policy_name"] == "unreadable_request"
        assert not told["reason"].startswith(REPORT_PREFIX)


@pytest.mark.parametrize(
    ("changes", "data", "policy_name"),
    [
        ({}, post("/a", b"\x00raw, and no JSON"), "write_denied"),
        (
            {"routes": (RestRule("GET", "/shut/**", "deny"),)},
            get("/shut/door"),
            "route_denied",
        ),
        ({"kind": "chroma"}, get("/api/v9/nothing"), "unclassified_route"),
        ({"kind": "chroma"}, post("/api/v2/reset"), "route_denied"),
        (
            {"kind": "chroma"},
            post(f"{COLLECTIONS}/{UNKNOWN_ID}/query", b'{"query_embeddings":[[1.0, 2e0]]}'),
            "unresolved_source",
        ),
    ],
)
async def test_any_denial_that_is_not_by_a_policy_is_forwarded_unchanged(
    tmp_path: Path, changes: dict[str, Any], data: bytes, policy_name: str
) -> None:
    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        looked_up = "/by-id/" in seen.target
        head = "HTTP/1.1 404 Not Found" if looked_up else "HTTP/1.1 200 OK"
        await answer(head)(seen, writer)

    async with proxy_setup(tmp_path, CLOSED, mode="report", **changes) as setup:
        setup.upstream.script = script
        answered = await setup.ask(data)
        assert (answered.status, answered.body) == (200, b"ok")
        assert answered.fields["x-sluice-decision"] == "DENY"
        [told] = await recorded(setup)
        assert (told["decision"], told["policy_name"]) == ("DENY", policy_name)
        assert told["reason"].startswith(REPORT_PREFIX)
        line, body = data.partition(b"\r\n")[0], data.partition(b"\r\n\r\n")[2]
        last = setup.upstream.seen[-1]
        assert (last.line.encode(), last.body) == (line, body)


async def test_an_agent_that_waits_to_send_its_body_is_asked_for_it(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
        writer.write(post("/a", b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: 4"))
        async with asyncio.timeout(20):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            writer.write(b"body")
            assert (await reader.read()).endswith(b"ok")
        writer.close()
        assert setup.upstream.seen[-1].body == b"body"


async def test_lists_and_documents_are_not_filtered(tmp_path: Path) -> None:
    listed = [
        {"id": UNKNOWN_ID, "name": name, "tenant": "t", "database": "d"}
        for name in ("contracts", "wiki")
    ]
    names = {"chroma://kb/t/d/contracts": NamedSource("contracts", "high")}

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        found: object = {"ids": [["1"]], "documents": [["worst"]], "metadatas": [[{}]]}
        if seen.line.startswith("GET"):
            found = listed[0] if "by-id" in seen.target else listed
        json = "Content-Type: application/json"
        await answer("HTTP/1.1 200 OK", orjson.dumps(found), json)(seen, writer)

    async with proxy_setup(
        tmp_path,
        policy(denied_sources=("contracts",), max_sensitivity="low"),
        kind="chroma",
        mode="report",
        names=names,
        sensitivity_field="level",
    ) as setup:
        setup.upstream.script = script
        answered = await setup.ask(get(COLLECTIONS))
        assert [each["name"] for each in answered.json] == ["contracts", "wiki"]
        query = b'{"query_embeddings":[[1.0]],"n_results":3}'
        answered = await setup.ask(post(f"{COLLECTIONS}/{UNKNOWN_ID}/query", query))
        assert answered.json["documents"] == [["worst"]]
        assert answered.fields["x-sluice-decision"] == "DENY"
        assert setup.upstream.seen[-1].body == query
        [told] = await recorded(setup)
        assert (told["decision"], told["policy_name"]) == ("DENY", "analysts-read")


async def test_a_request_that_cannot_be_recorded_is_not_forwarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        put = setup.sidecar.spool.put_together

        def denials_only(records: Any, *, denial: bool) -> Any:
            if not denial:
                raise SpoolFull
            return put(records, denial=denial)

        monkeypatch.setattr(setup.sidecar.spool, "put_together", denials_only)
        for data in (get("/secret"), post("/a"), get("/a")):
            answered = await setup.ask(data)
            assert answered.status == 503
            assert answered.json["decision"]["policy_name"] == "audit_unavailable"
        assert setup.upstream.begun == []
        for told in await recorded(setup):
            assert not told["reason"].startswith(REPORT_PREFIX)


async def test_a_request_of_an_agent_whose_key_is_invalid_is_forwarded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        monkeypatch.setattr(type(setup.sidecar.agent), "key", lambda _self: None)
        assert (await setup.ask(get("/a"))).status == 200
        [told] = await recorded(setup)
        assert told["policy_name"] == "key_not_valid"
        assert told["reason"].startswith(REPORT_PREFIX)


async def test_an_unreachable_data_source_is_answered_with_502_and_the_decision(
    tmp_path: Path,
) -> None:
    async def breaking(_seen: Any, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with proxy_setup(tmp_path, CLOSED, mode="report") as setup:
        setup.upstream.script = breaking
        for data in (get("/secret"), post("/a")):
            answered = await setup.ask(data)
            assert answered.status == 502
            assert answered.fields["x-sluice-decision"] == "DENY"


async def test_a_tunnel_that_would_be_denied_is_opened(tmp_path: Path) -> None:
    ours = authority()
    async with (
        data_source(answer(), ours.server("api.test")) as upstream,
        sidecar(tmp_path, CLOSED) as made,
    ):
        # Writes are denied, and the content of a tunnel can't be checked.
        api = source(upstream.port, listen=None, mode="report", hosts=("api.test",))
        api = replace(api, upstream=f"https://localhost:{upstream.port}")
        async with proxying(made, api) as port:
            where = f"api.test:{upstream.port}"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
            granted = Answered(await reader.readuntil(b"\r\n\r\n"))
            assert granted.status == 200
            assert granted.fields["x-sluice-decision"] == "DENY"
            await writer.start_tls(ours.client(), server_hostname="api.test")
            writer.write(get("/a"))
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
            writer.close()
            [lineage] = await made.lineage()
            assert lineage["event"]["id"] == granted.fields["x-sluice-event-id"]
            assert await made.decisions() == [("DENY", "write_denied", "rest://kb")]
