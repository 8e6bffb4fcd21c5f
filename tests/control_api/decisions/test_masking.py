"""Masking by the tenant's own setting or the service's, from the next call on."""

import asyncio
import json
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from policies.ground.masking import MaskingTurns, masked_json, masked_text
from policies.retrieval import Retrieval
from policies.trail.masked_ahead import masked_ahead
from tests.support.control_api import SUPERADMIN, ControlApi, asked, running_control_api
from tests.support.waiting import PATIENCE

USER = "ann@example.com"


def switch(api: ControlApi, on: bool) -> None:
    answer = api.call(
        "PATCH", "/v1/admin/tenants/default/settings", {"pii_masking": on}, key=SUPERADMIN
    )
    assert answer.status == 200, answer.raw


def shown(api: ControlApi, event_id: str) -> tuple[bool, str, str]:
    (event,) = [each for each in api.events() if each["event_id"] == event_id]
    return event["pii_masked"], event["user_id"], event["query"]


def test_masking_begins_with_the_switch_and_events_are_found_by_the_stored_value(
    api: ControlApi,
) -> None:
    body = {"user_id": USER, "query": "at 10.0.0.7"}
    before = api.evaluate(**body)["event_id"]
    switch(api, True)
    during = api.evaluate(**body, session_id="s-masked")["event_id"]
    switch(api, False)
    after = api.evaluate(**body)["event_id"]
    assert shown(api, before) == shown(api, after) == (False, USER, "at 10.0.0.7")
    assert shown(api, during) == (True, "[EMAIL]", "at [IP]")
    assert api.admin("GET", "/v1/sessions/s-masked")["user_id"] == "[EMAIL]"
    assert [e["event_id"] for e in api.events("?user_id=%5BEMAIL%5D")] == [during]
    found = {each["event_id"] for each in api.events("?user_id=ann%40example.com")}
    assert found == {before, after}


@pytest.mark.deep(
    stands_in="test_masking_begins_with_the_switch_and_events_are_found_by_the_stored_value"
)
def test_a_tenants_setting_holds_from_the_next_call_on(either: ControlApi) -> None:
    asked = {"user_id": USER, "query": "at 10.0.0.7"}
    before = either.evaluate(**asked)["event_id"]
    switch(either, True)
    during = either.evaluate(**asked, session_id="s-1")["event_id"]
    switch(either, False)
    after = either.evaluate(**asked)["event_id"]
    assert shown(either, before) == shown(either, after) == (False, USER, "at 10.0.0.7")
    assert shown(either, during) == (True, "[EMAIL]", "at [IP]")
    assert either.admin("GET", "/v1/sessions/s-1")["user_id"] == "[EMAIL]"
    assert either.verified()["total"] >= 3


@pytest.mark.deep(
    stands_in="test_masking_begins_with_the_switch_and_events_are_found_by_the_stored_value"
)
def test_masked_events_are_found_by_the_masked_value(fresh: ControlApi) -> None:
    switch(fresh, True)
    event_id = fresh.evaluate(user_id=USER)["event_id"]
    assert not fresh.events("?user_id=ann%40example.com")
    assert [e["event_id"] for e in fresh.events("?user_id=%5BEMAIL%5D")] == [event_id]


def test_the_services_flag_overrides_a_tenants(tmp_path: Path) -> None:
    with running_control_api(tmp_path, SLUICE_PII_MASKING="1") as api:
        switch(api, False)
        event_id = api.evaluate(user_id=USER, query="x")["event_id"]
        assert shown(api, event_id) == (True, "[EMAIL]", "x")


def test_long_texts_are_masked_as_if_in_one_piece(api: ControlApi) -> None:
    long = f"{USER} {'600 123 456 ' * 100}ü"
    switch(api, True)
    try:
        event_id = api.evaluate(user_id=USER, query=long)["event_id"]
        body = {"event_id": event_id, "action_type": "sent", "detail": {"text": [long, USER]}}
        answer = api.admin("POST", "/v1/audit/lineage", body)
        lineage = api.admin("GET", f"/v1/audit/lineage/{event_id}")
    finally:
        switch(api, False)
    assert shown(api, event_id) == (True, "[EMAIL]", masked_text(long).text), answer
    [action] = lineage["actions"]
    assert action["detail"] == masked_json({"text": [long, USER]})[0]


def test_masking_ends_when_the_client_leaves(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, ended = threading.Event(), threading.Event()

    async def endless(_turns: MaskingTurns, _retrievals: Sequence[Retrieval]) -> list[Retrieval]:
        waiting.set()
        try:
            made: list[Retrieval] = await asyncio.get_running_loop().create_future()
            return made
        finally:
            ended.set()

    body = json.dumps(asked(source_id="contracts")).encode()
    head = f"POST /v1/context/evaluate HTTP/1.1\r\nHost: x\r\nX-API-Key: {api.admin_key}\r\n"
    sized = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    switch(api, True)
    monkeypatch.setattr("control_api.decisions.operations.masked_ahead", endless)
    try:
        with socket.create_connection(("127.0.0.1", api.port)) as client:
            client.sendall((head + sized).encode() + body)
            assert waiting.wait(PATIENCE)
        assert ended.wait(PATIENCE)
    finally:
        switch(api, False)
    assert not [each for each in api.events() if each["source_id"] == "contracts"]


def test_a_key_that_is_revoked_while_its_texts_are_masked_decides_nothing(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    async def slowly(turns: MaskingTurns, retrievals: Sequence[Retrieval]) -> list[Retrieval]:
        waiting.set()
        await asyncio.to_thread(go_on.wait, PATIENCE)
        return await masked_ahead(turns, retrievals)

    made = api.admin("POST", "/v1/keys", {"name": "stolen", "scope": "evaluate"})
    switch(api, True)
    monkeypatch.setattr("control_api.decisions.operations.masked_ahead", slowly)
    try:
        with ThreadPoolExecutor() as pool:
            batch = {"items": [asked(source_id="contracts")] * 2}
            path = "/v1/context/evaluate/batch"
            call = pool.submit(api.call, "POST", path, batch, key=made["key"])
            assert waiting.wait(PATIENCE)
            revoked = api.call("DELETE", f"/v1/keys/{made['key_id']}")
            go_on.set()
            answer = call.result()
    finally:
        go_on.set()
        switch(api, False)
    assert (revoked.status, answer.status) == (200, 403)
    assert not [each for each in api.events() if each["source_id"] == "contracts"]
