"""A request with an `Idempotency-Key` that is sent twice creates one object, and shows its secret
once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.control_api import ControlApi

KEY = {"name": "agents", "scope": "evaluate"}
RULE = {
    "name": "denials",
    "rule_type": "denial_spike",
    "threshold": 20,
    "webhook_url": "https://hooks.example.com/x",
}
TOKEN = "a5c0e2e4-8a6e-4b0c-9e0f-6f2d7f6f3c11"
CREATED = [
    ("/v1/keys", KEY, "/v1/keys"),
    ("/v1/alerts/rules", RULE, "/v1/alerts/rules"),
    ("/v1/admin/tenants/default/keys", {**KEY, "name": "provisioned"}, "/v1/keys"),
]


@pytest.mark.parametrize(("path", "body", "listed"), CREATED)
def test_a_repetition_creates_nothing(
    api: ControlApi, path: str, body: dict[str, Any], listed: str
) -> None:
    headers = {"Idempotency-Key": TOKEN + path}
    first = api.call("POST", path, body, headers=headers)
    assert first.status == 201, first.raw
    for _ in range(2):
        again = api.call("POST", path, {**body, "name": "another"}, headers=headers)
        assert again.status == 409
        assert b"was carried out before" in again.raw
        assert b"slc_" not in again.raw
        assert b"whsec_" not in again.raw
    names = [each["name"] for each in api.admin("GET", listed)]
    assert names.count(body["name"]) == 1
    assert "another" not in names
    # Another text, or none, is another request.
    other = {"Idempotency-Key": TOKEN + path + "2"}
    assert api.call("POST", path, {**body, "name": "a2"}, headers=other).status == 201
    assert api.call("POST", path, {**body, "name": "a3"}).status == 201


def test_a_repeated_request_does_not_restore_a_revoked_key(api: ControlApi) -> None:
    headers = {"Idempotency-Key": TOKEN}
    made = api.call("POST", "/v1/keys", KEY, headers=headers).body
    api.admin("DELETE", f"/v1/keys/{made['key_id']}")
    assert api.call("POST", "/v1/keys", KEY, headers=headers).status == 409


def test_tenants_do_not_share_repetition_keys(api: ControlApi) -> None:
    headers = {"Idempotency-Key": TOKEN + "-of-two"}
    theirs = api.admin("POST", "/v1/admin/tenants", {"name": "the others"})["admin_key"]
    ids = [
        api.call("POST", "/v1/keys", KEY, headers=headers, key=key).body["key_id"]
        for key in (api.admin_key, theirs)
    ]
    assert ids[0] != ids[1]


@pytest.mark.parametrize("text", ["short", "x" * 129, "with a space in it"])
def test_an_unusable_text_is_refused(api: ControlApi, text: str) -> None:
    answer = api.call("POST", "/v1/keys", KEY, headers={"Idempotency-Key": text})
    assert answer.status == 422
    assert b"idempotency_key: " in answer.raw
