"""What is decided about a request that a gateway asks about: the table of `INTEGRATIONS.md`, Check
doors, row by row."""

from pathlib import Path
from typing import Any

import pytest

from policies.ground.errors import Forbidden, Unauthorized
from sidecar.settings.model import NamedSource
from sidecar.settings.sections import Door, DoorAgent, DoorHeaders
from tests.sidecar.doors.door_setup import NO_BODY, door, gateway_key
from tests.support.proxy import policy

ALLOWED = ("pass", "analysts-read")


async def test_an_allowed_request_passes_and_is_recorded_under_the_door(tmp_path: Path) -> None:
    async with door(tmp_path) as asked:
        outcome = await asked.ask("GET", "/a?b=c")
        [recorded] = outcome.decisions
        assert outcome.passes
        assert recorded.decision.decision == "ALLOW"
        [record] = await asked.records()
        assert (record["source_type"], record["source_id"]) == ("edge", "rest://kb/a")


async def test_a_denied_request_stops(tmp_path: Path) -> None:
    async with door(tmp_path, policy(allowed_sources=("rest://kb/b",))) as asked:
        assert (await asked.verdict("GET", "/a"))[0] == "stop"
        assert (await asked.verdict("GET", "/b"))[0] == "pass"


async def test_a_check_without_a_valid_key_of_the_scope_decides_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with door(tmp_path) as asked:
        valid = asked.digest
        for digest, error, reason in (
            (None, Unauthorized, "missing"),
            (b"\0" * 32, Forbidden, "unknown"),
            (gateway_key(asked.sidecar, scope="read"), Forbidden, "scope"),
            (gateway_key(asked.sidecar, expires_at=1), Forbidden, "expired"),
        ):
            asked.digest = digest
            with pytest.raises(error):
                await asked.ask()
            refused = asked.sidecar.metrics.registry.get_sample_value(
                "sluice_refused_keys_total", {"way": "envoy_http", "reason": reason}
            )
            assert refused == 1
        assert await asked.records() == []
        # One line for all four: the next may come in a minute.
        [line] = caplog.messages
        assert line == "the check door `edge` refused a call for its key: the call carries none"
        asked.digest = valid
        assert await asked.verdict() == ALLOWED
        assert caplog.messages[1:] == ["recovered: the check door `edge` took a key"]


async def test_a_key_of_an_admin_is_accepted(tmp_path: Path) -> None:
    async with door(tmp_path) as asked:
        asked.digest = gateway_key(asked.sidecar, scope="admin")
        assert await asked.verdict() == ALLOWED


async def test_a_revoked_key_stops_at_the_next_check(tmp_path: Path) -> None:
    async with door(tmp_path) as asked:
        assert await asked.verdict() == ALLOWED
        assert asked.digest is not None
        asked.sidecar.publish_document(f"key/{asked.digest.hex()}", None)
        with pytest.raises(Forbidden):
            await asked.ask()


async def test_without_a_role_the_request_is_unmapped(tmp_path: Path) -> None:
    async with door(tmp_path) as asked:
        asked.digest = gateway_key(asked.sidecar, permitted_roles=())
        outcome = await asked.ask("GET", "/a", (b"X-Sluice-User", b"eve"), (b"X-Role", b"analyst"))
        assert not outcome.passes
        [record] = await asked.records()
        assert record["policy_name"] == "unmapped_request"
        assert "`agent` of the door `edge`" in record["reason"]
        assert (record["source_id"], record["source_type"]) == ("edge://unmapped", "edge")
        assert (record["agent_role"], record["agent_id"]) == ("unknown", "unknown")


async def test_the_door_s_agent_is_used_only_if_the_key_permits_it(tmp_path: Path) -> None:
    settings = Door("edge", "envoy_http", "kb", agent=DoorAgent(None, "analyst"))
    async with door(tmp_path, settings=settings) as asked:
        asked.digest = gateway_key(asked.sidecar, permitted_roles=())
        assert await asked.verdict() == ALLOWED
        asked.digest = gateway_key(asked.sidecar, permitted_roles=("other",))
        assert (await asked.verdict())[0] == "stop"


async def test_the_sidecar_s_own_key_is_used_if_the_door_needs_none(tmp_path: Path) -> None:
    settings = Door("edge", "envoy_http", "kb", key="none", agent=DoorAgent(None, "analyst"))
    async with door(tmp_path, settings=settings) as asked:
        asked.digest = None
        assert await asked.verdict() == ALLOWED


async def test_user_session_and_task_are_taken_from_headers_then_baggage_then_defaults(
    tmp_path: Path,
) -> None:
    async with door(tmp_path) as asked:
        baggage = (b"baggage", b"sluice.user=bob,sluice.task=review")
        await asked.ask()
        await asked.ask("GET", "/a", baggage)
        await asked.ask("GET", "/a", baggage, (b"X-Sluice-User", b"eve"))
        users = [each.get("task_type") for each in await asked.records()]
        assert users == [None, "review", "review"]


@pytest.mark.parametrize("name", ["user", "session", "task", "sensitivity"])
async def test_a_repeated_attribution_is_unreadable(tmp_path: Path, name: str) -> None:
    async with door(tmp_path) as asked:
        field = (f"X-Sluice-{name}".encode(), b"high")
        assert await asked.verdict("GET", "/a", field, field) == ("stop", "unreadable_request")


async def test_a_level_is_raised_and_never_lowered(tmp_path: Path) -> None:
    async with door(tmp_path) as asked:
        for level in (b"low", b"critical"):
            await asked.ask("GET", "/a", (b"X-Sluice-Sensitivity", level))
        levels = [each["sensitivity_level"] for each in await asked.records()]
        assert levels == ["medium", "critical"]


async def test_other_headers_may_attribute(tmp_path: Path) -> None:
    headers = DoorHeaders(task="X-Forwarded-Task")
    settings = Door("edge", "envoy_http", "kb", headers=headers)
    async with door(tmp_path, settings=settings) as asked:
        await asked.ask("GET", "/a", (b"x-forwarded-task", b"review"), (b"x-sluice-task", b"no"))
        [record] = await asked.records()
        assert record["task_type"] == "review"
        twice = [(b"X-Forwarded-Task", b"a"), (b"x-forwarded-task", b"b")]
        assert (await asked.verdict("GET", "/a", *twice))[1] == "unreadable_request"


@pytest.mark.parametrize(
    "target",
    [
        "/a/../b", "/a/%2e%2e/b", "/a/./b", "/a//b", "//a", "/a%2fb", "/a%5cb", "/a\\b", "/a%00",
        "/a%252fb", "/a%zz", "/a%", "/a#b", "/a%0ab", "/a b", "/a\tb", "/\xe9", "/%c0%ae", "",
        "a", "*", "http://kb/a", "?x", "/a;/..;x/b", "/..;/b",
    ],
)  # fmt: skip
async def test_a_target_with_two_readings_is_unreadable(tmp_path: Path, target: str) -> None:
    async with door(tmp_path) as asked:
        assert await asked.verdict("GET", target) == ("stop", "unreadable_request")


async def test_an_unreadable_request_is_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with door(tmp_path, mode="report") as asked:
        verdict = await asked.verdict("GET", "/a?key=b", fault="the header `x` is missing")
        [line] = [each for each in caplog.messages if "is an unreadable request" in each]
        assert line.endswith("GET `/a`")
        assert verdict == ("stop", "unreadable_request")
        verdict = await asked.verdict("GET", "/a", (b"Connection", b"x-sluice-user"))
        assert verdict == ("stop", "unreadable_request")


async def test_writes_are_allowed_only_by_the_source_s_settings(tmp_path: Path) -> None:
    async with door(tmp_path) as asked:
        assert await asked.verdict("POST") == ("stop", "write_denied")
    async with door(tmp_path, writes="allow") as asked:
        assert await asked.verdict("POST") == ALLOWED
    # Recorded under the source that the body names, where the gateway sends it along.
    json = (b"Content-Type", b"application/json")
    async with door(tmp_path, kind="pinecone") as asked:
        for body in (b'{"namespace": "ours"}', None, b"{"):
            verdict = await asked.verdict("POST", "/vectors/upsert", json, body=body)
            assert verdict == ("stop", "write_denied")
        recorded = [each["source_id"] for each in await asked.records()][-3:]
        assert recorded == ["pinecone://kb/ours", "pinecone://kb", "pinecone://kb"]


async def test_a_call_of_grpc_is_denied_and_told_where_to_go(tmp_path: Path) -> None:
    message = b"\0\0\0\0\x0b\x0a\x09contracts"  # a collection's name in its frame
    for kind, path, media in (
        ("qdrant", "/qdrant.Points/Scroll", b"application/grpc"),
        ("weaviate", "/v1/grpc-web/weaviate.v1.Weaviate/Search", b"application/grpc-web+proto"),
    ):
        async with door(tmp_path, kind=kind, grpc="http://127.0.0.1:9") as asked:
            for body in (None, message):
                outcome = await asked.ask("POST", path, (b"Content-Type", media), body=body)
                assert not outcome.passes
                [recorded] = outcome.decisions
                assert recorded.decision.policy_name == "unresolved_source"
                assert "Send calls to the sidecar's proxy" in recorded.decision.reason
    async with door(tmp_path, kind="qdrant") as asked:
        grpc = (b"Content-Type", b"application/grpc")
        for path, name in (("Snapshots/Create", "route_denied"), ("A/B", "unclassified_route")):
            assert await asked.verdict("POST", f"/qdrant.{path}", grpc) == ("stop", name)


async def test_a_body_that_decides_must_be_here(tmp_path: Path) -> None:
    query = "/collections/contracts/points/scroll"
    json = (b"Content-Type", b"application/json")
    async with door(tmp_path, kind="qdrant") as asked:
        outcome = await asked.ask("POST", query, json)
        assert not outcome.passes
        assert outcome.decisions[0].decision.reason == NO_BODY
        assert await asked.verdict("POST", query, json, body=b"{") == ("stop", "unreadable_request")
        gzip = (b"Content-Encoding", b"gzip")
        assert (await asked.verdict("POST", query, json, gzip, body=b"{}"))[0] == "stop"


async def test_a_report_is_recorded_and_passes(tmp_path: Path) -> None:
    async with door(tmp_path, policy(allowed_sources=("x",)), mode="report") as asked:
        outcome = await asked.ask()
        assert outcome.passes
        assert outcome.shown is not None
        assert outcome.shown.decision.decision == "DENY"
        assert (await asked.ask("POST")).passes  # a write that would be denied


async def test_an_open_route_passes_without_an_event(tmp_path: Path) -> None:
    async with door(tmp_path, kind="chroma") as asked:
        outcome = await asked.ask("GET", "/api/v2/heartbeat")
        assert (outcome.passes, outcome.decisions) == (True, [])
        assert await asked.records() == []


async def test_all_of_several_sources_must_be_allowed(tmp_path: Path) -> None:
    ping = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}'
    call = ping % b'{"name":"find","arguments":{"index":"hr"}}'
    json = (b"Content-Type", b"application/json")
    settings: dict[str, Any] = {"kind": "mcp", "arguments": {"find": "index"}}
    (two := tmp_path / "two").mkdir()
    allowed = policy(allowed_sources=("mcp://kb/tool/*",))
    async with door(tmp_path, allowed, **settings) as asked:
        assert (await asked.verdict("POST", "/mcp", json, body=call))[0] == "stop"
        assert len(await asked.records()) == 1
    async with door(two, **settings) as asked:
        outcome = await asked.ask("POST", "/mcp", json, body=call)
        assert outcome.passes
        assert [each["source_id"] for each in await asked.records()] == [
            "mcp://kb/tool/find",
            "mcp://kb/data/hr",
        ]


async def test_a_list_is_judged_as_the_whole_source_at_its_highest_level(tmp_path: Path) -> None:
    names = {"mcp://kb/tool/pay": NamedSource("pay", "critical")}
    listing = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    json = (b"Content-Type", b"application/json")
    async with door(tmp_path, kind="mcp", names=names) as asked:
        assert (await asked.verdict("POST", "/mcp", json, body=listing))[0] == "stop"
        [record] = await asked.records()
        assert (record["source_id"], record["sensitivity_level"]) == ("mcp://kb", "critical")


async def test_documents_with_levels_count_as_critical(tmp_path: Path) -> None:
    async with door(tmp_path, kind="rest", sensitivity_field="level") as asked:
        assert (await asked.verdict())[0] == "stop"
        [record] = await asked.records()
        assert record["sensitivity_level"] == "critical"


async def test_a_continuation_is_unknown(tmp_path: Path) -> None:
    json = (b"Content-Type", b"application/json")
    async with door(tmp_path, kind="opensearch") as asked:
        body = b'{"scroll_id":"abc"}'
        verdict = await asked.verdict("POST", "/_search/scroll", json, body=body)
        assert verdict == ("stop", "unresolved_source")


async def test_a_look_up_that_fails_is_a_recorded_denial(tmp_path: Path) -> None:
    collection = "/api/v2/tenants/t/databases/d/collections"
    async with door(tmp_path, kind="chroma") as asked:  # nothing answers at its port
        found = await asked.verdict("GET", f"{collection}/contracts")
        assert found == ("stop", "unresolved_source")
        json = (b"Content-Type", b"application/json")
        body = b'{"name":"x","get_or_create":true}'
        verdict = await asked.verdict("POST", collection, json, body=body)
        assert verdict == ("stop", "write_denied")
