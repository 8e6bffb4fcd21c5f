"""Hostile tokens at a running control API: each gets nothing, is counted and recorded, and the
floods that strangers can cause are bounded."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tests.control_api.registry.enrolment.calls import (
    PATH,
    WORKLOAD,
    changes,
    enrol,
    enrolled,
    register,
)
from tests.control_api.registry.enrolment.hostile import HOSTILE
from tests.support.clusters import ISSUER, KeySetServer, claims, pod_token, rsa_jwk, token
from tests.support.control_api import SUPERADMIN, ControlApi, running_control_api


def counted(api: ControlApi, outcome: str) -> float:
    for line in api.call("GET", "/metrics").raw.decode().splitlines():
        if line.startswith(f'sluice_enrolments_total{{outcome="{outcome}"}}'):
            return float(line.rpartition(" ")[2])
    return 0.0


def test_every_hostile_token_gets_nothing_and_is_recorded(
    cluster: ControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    register(cluster)
    caplog.set_level(logging.DEBUG, "sluice")
    sent: dict[str, int] = {}
    for name, make, reason in HOSTILE:
        text = make()
        answer = enrol(cluster, text)
        if not text or len(text) > 16_000:
            assert answer.status in (413, 422), name
            continue
        assert answer.status == 403, (name, answer.raw)
        assert b"slc_" not in answer.raw
        # The token is as good as a key: it is in no answer and no log line.
        assert len(text) < 20 or (text not in answer.raw.decode() and text not in caplog.text)
        sent[reason] = sent.get(reason, 0) + 1
    assert len(HOSTILE) > 90
    entries = [each["detail"] for each in changes(cluster, "enrolment.refused")]
    for reason, count in sent.items():
        assert counted(cluster, reason) == count, reason
        recorded = [each for each in entries if each["reason"] == reason]
        assert len(recorded) == min(count, 5), reason
    # Who it was is recorded where the signature holds, and a stranger's words nowhere.
    for each in entries:
        if each["reason"] in ("audience", "lifetime", "expired", "early"):
            assert each["pod_uid"] == "loans-0-lending"
        elif each["reason"] != "malformed":
            assert "pod_uid" not in each
    cluster.verified()
    assert enrolled(cluster)["status"] == "approved"


def test_a_flood_of_refusals_is_recorded_with_the_number_left_out(
    shared_cluster: ControlApi,
) -> None:
    cluster = shared_cluster
    for _ in range(40):
        assert enrol(cluster, "a.b.c").status == 403
    assert len(changes(cluster, "enrolment.refused")) == 5
    assert counted(cluster, "malformed") == 40
    # A flood of one kind hides no token of another.
    assert enrol(cluster, token(claims(iss="https://evil.example"))).status == 403
    newest = changes(cluster, "enrolment.refused")[0]
    assert (newest["target"], newest["detail"]["reason"]) == ("unknown", "issuer")
    assert "evil.example" not in json.dumps(newest)


def test_one_pod_can_not_fill_the_log(shared_cluster: ControlApi) -> None:
    cluster = shared_cluster
    register(cluster)
    text = pod_token()
    answers = [enrol(cluster, text) for _ in range(14)]
    assert [each.status for each in answers].count(200) == 10
    limited = answers[-1]
    assert limited.status == 429
    assert 1 <= int(limited.headers["Retry-After"]) <= 20
    assert len(changes(cluster, "sidecar.enrolled")) == 10
    # Another pod of the same agent is not held up.
    assert enrolled(cluster, pod_token(pod="loans-1"))["agent_id"] == "agt_loans"


def test_the_body_is_small_and_holds_one_token(cluster: ControlApi) -> None:
    at_most = json.dumps({"token": "a" * (16 * 1024 - 13)}).encode()
    assert len(at_most) == 16 * 1024
    assert cluster.call("POST", PATH, raw=at_most, key=None).status == 403
    assert cluster.call("POST", PATH, raw=at_most + b" ", key=None).status == 413
    text = pod_token()
    for raw in (
        b"",
        b"[]",
        b'{"token": 1}',
        b'{"token": null}',
        b'{"token": ["%b"]}' % text.encode(),
        b'{"token": "%b", "token": "%b"}' % (text.encode(), text.encode()),
        b'{"token": "%b", "tenant": "other"}' % text.encode(),
    ):
        assert cluster.call("POST", PATH, raw=raw, key=None).status in (400, 422), raw
    for method in ("GET", "PUT", "DELETE"):
        assert cluster.call(method, PATH, key=None).status in (401, 405)


def test_a_refusal_of_a_known_issuer_is_in_its_own_tenants_log(
    tmp_path: Path, key_server: KeySetServer
) -> None:
    with running_control_api(tmp_path) as first:
        made = first.call("POST", "/v1/admin/tenants", {"name": "acme"}, key=SUPERADMIN).body
    tenant = made["tenant_id"]
    issuers = f"{ISSUER}={key_server.url},tenant={tenant}"
    with running_control_api(tmp_path, SLUICE_ENROL_ISSUERS=issuers) as api:
        enrol(api, token(claims(aud=["vault"])))
        enrol(api, token(claims(iss="https://evil.example")))
        [own] = changes(api, "enrolment.refused", tenant)
        assert (own["target"], own["detail"]["workload"]) == (ISSUER, WORKLOAD)
        [other] = changes(api, "enrolment.refused", "default")
        assert other["target"] == "unknown"
        # A frozen tenant's pods still enrol; those of a deactivated one don't.
        assert (
            api.call("POST", "/v1/freeze", {"reason": "drill"}, key=made["admin_key"]).status < 300
        )
        assert enrolled(api)["tenant_id"] == tenant
        api.call("DELETE", f"/v1/admin/tenants/{tenant}", key=SUPERADMIN)
        refused = enrol(api, pod_token("another"))
        assert (refused.status, "not active" in refused.body["message"]) == (403, True)
        assert changes(api, "enrolment.refused", tenant)[0]["detail"]["reason"] == "tenant"


def test_without_an_issuer_nothing_enrols_and_nothing_is_recorded(fresh: ControlApi) -> None:
    answer = enrol(fresh)
    assert (answer.status, "SLUICE_ENROL_ISSUERS" in answer.body["message"]) == (403, True)
    assert changes(fresh, "enrolment.refused") == []


def test_a_kid_is_only_looked_up(cluster: ControlApi, key_server: KeySetServer) -> None:
    asked = len(key_server.asked)
    for kid in ("../../etc/passwd", key_server.url + "/evil", "rsa-1' OR '1'='1", "%2e%2e"):
        assert enrol(cluster, token(None, {"alg": "RS256", "kid": kid})).status == 403
    # One fetch for the first unknown one, at the address that was configured.
    assert len(key_server.asked) - asked <= 1
    assert {each["path"] for each in key_server.asked} == {"/openid/v1/jwks"}


def test_a_key_of_another_kind_never_verifies(tmp_path: Path, key_server: KeySetServer) -> None:
    secret = {"kty": "oct", "kid": "hs", "alg": "HS256", "k": "c2VjcmV0"}
    key_server.body = json.dumps({"keys": [secret, rsa_jwk()]}).encode()
    with running_control_api(tmp_path, SLUICE_ENROL_ISSUERS=f"{ISSUER}={key_server.url}") as api:
        assert enrol(api, token(None, {"alg": "HS256", "kid": "hs"})).status == 403
        assert enrol(api, token(None, {"alg": "RS256", "kid": "hs"})).status == 403
        assert enrol(api).status == 200
