"""A store restored to an older state never restores access that was revoked since."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from control_api.policy.publishing import reconcile
from policies.ground.keys import key_digest
from policies.sets.policy_set import key_name
from tests.support import redis
from tests.support.control_api import ControlApi, asked, running_control_api
from tests.support.redis import running_redis
from tests.support.waiting import AWAY, until

CANDIDATES = "/v1/policies/candidates"
pytestmark = redis.needs_redis


@pytest.fixture
def few_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head names less at most than what is revoked here."""
    monkeypatch.setattr(reconcile, "MAX_CHANGED_NAMES", 3)


def head_revision(server: redis.Redis) -> int:
    client: Any = redis_py.Redis(port=server.port, protocol=2)
    at = client.hget("sluice:{default}:set", "at")
    client.close()
    return int(at.decode().rpartition(":")[2]) if at else -1


def revision(api: ControlApi) -> int:
    return int(api.admin("GET", "/v1/sidecars/policy-set?since=0")["revision"])


def pushed(api: ControlApi, server: redis.Redis) -> None:
    until("Redis has it", lambda: head_revision(server) == revision(api), despite=AWAY)


def lifted(api: ControlApi) -> None:
    """The freeze is lost too; it is only known that the tenant's document differed."""
    state = api.admin("GET", "/v1/freeze")
    assert state["frozen"]
    assert "restored" in state["reason"]
    assert api.evaluate()["policy_name"] == "tenant_frozen"
    api.admin("DELETE", "/v1/freeze")


def a_candidate(api: ControlApi) -> dict[str, Any]:
    policy = api.admin("GET", "/v1/policies")[0]
    fields = {"name", "agent_role", "allowed_sources", "denied_sources", "max_sensitivity"}
    return {"policies": [{name: policy[name] for name in fields}]}


def published_since(api: ControlApi, revision: int, name: str) -> bool:
    page = api.admin("GET", f"/v1/sidecars/policy-set?since={revision}&epoch=")
    return name in {each["name"] for each in page["documents"] if each["body"]}


def candidates_of(api: ControlApi) -> list[str]:
    """The names of the candidates that are listed, or in the policy set."""
    held = api.admin("GET", "/v1/sidecars/policy-set?since=0")["documents"]
    named = [each["name"] for each in held if each["digest"] is not None]
    listed = [each["name"] for each in api.admin("GET", CANDIDATES)]
    return [*listed, *(name for name in named if name.startswith("candidate/"))]


def told_what_was_lost(api: ControlApi, caplog: pytest.LogCaptureFixture, key_id: str) -> None:
    """In the log line by the names that operators use, and as a change of the audit trail. Its
    candidates are gone."""
    assert candidates_of(api) == []
    [line] = [each.getMessage() for each in caplog.records if each.name == "sluice.put_back"]
    told = line.partition(" written again: ")[2].split(", ")
    for name in ("agent `agt_gone`", f"key `{key_id}`", "session `s-1`", "the tenant's settings"):
        assert name in told
    assert told.count("a key that the restored database lacks") == 1
    [change] = api.admin("GET", "/v1/audit/changes?object_type=log")
    assert (change["action"], change["object_id"], change["actor"]) == (
        "restored",
        "default",
        "system",
    )
    assert change["after"]["out_of_force"] == len(told)
    assert change["before"]["revision"] > change["after"]["revision"]


@pytest.mark.usefixtures("few_names")
def test_revoked_access_stays_revoked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with running_redis(tmp_path / "redis") as server:
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            doomed, lasting = (
                api.admin("POST", "/v1/keys", {"name": name, "scope": "evaluate"})
                for name in ("doomed", "lasting")
            )
            api.approved("agt_gone")
            api.approved("agt_stays")
            api.admin("PUT", f"{CANDIDATES}/kept", a_candidate(api))
            body = asked(agent_id="agt_stays", session_id="s-1")
            assert api.call("POST", "/v1/context/evaluate", body).body["decision"] == "ALLOW"
            pushed(api, server)
        shutil.copytree(data, copy)
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            api.admin("DELETE", f"/v1/keys/{doomed['key_id']}")
            api.admin("PATCH", "/v1/agents/agt_gone/status", {"status": "deprecated"})
            api.admin("DELETE", "/v1/sessions/s-1")
            api.admin("POST", "/v1/freeze", {"reason": "key leaked"})
            late = api.admin("POST", "/v1/keys", {"name": "late", "scope": "evaluate"})
            api.admin("PUT", f"{CANDIDATES}/lost", a_candidate(api))
            pushed(api, server)
            seen = revision(api)
        shutil.rmtree(data)
        copy.rename(data)
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            # A write makes the service look at Redis, as a sidecar's heartbeat request would.
            api.admin("POST", "/v1/agents", {"agent_role": "loan_underwriter"})
            until("the revision leaps", lambda: revision(api) > seen, despite=AWAY)
            pushed(api, server)
            keys = {row["name"] for row in api.admin("GET", "/v1/keys")}
            assert "lasting" in keys
            assert not keys & {"doomed", "late"}
            for key, status in ((doomed, 403), (late, 403), (lasting, 200)):
                answer = api.call("POST", "/v1/context/evaluate", asked(), key=key["key"])
                assert answer.status == status
            lifted(api)
            gone = api.call("POST", "/v1/context/evaluate", asked(agent_id="agt_gone")).body
            assert gone["policy_name"] == "agent_not_approved"
            again = api.call("POST", "/v1/context/evaluate", body).body
            assert again["policy_name"] == "session_revoked"
            assert api.evaluate(agent_id="agt_stays")["decision"] == "ALLOW"
            assert api.admin("GET", "/v1/audit/verify")["valid"]
            assert not published_since(api, seen, key_name(key_digest(doomed["key"])))
            told_what_was_lost(api, caplog, doomed["key_id"])


@pytest.mark.deep(stands_in="test_revoked_access_stays_revoked")
@pytest.mark.usefixtures("few_names")
def test_every_revoked_key_stays_revoked_however_many_there_are(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with running_redis(tmp_path / "redis") as server:
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            keys = [
                api.admin("POST", "/v1/keys", {"name": f"k{number}", "scope": "evaluate"})
                for number in range(12)
            ]
            pushed(api, server)
        shutil.copytree(data, copy)
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            for key in keys:
                api.admin("DELETE", f"/v1/keys/{key['key_id']}")
            pushed(api, server)
            seen = revision(api)
        shutil.rmtree(data)
        copy.rename(data)
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            api.admin("POST", "/v1/agents", {"agent_role": "loan_underwriter"})
            until("the revision leaps", lambda: revision(api) > seen, despite=AWAY)
            for key in keys:
                answer = api.call("POST", "/v1/context/evaluate", asked(), key=key["key"])
                assert answer.status == 403


@pytest.mark.deep(stands_in="test_revoked_access_stays_revoked")
def test_candidates_whose_newest_state_is_lost_are_dropped(tmp_path: Path) -> None:
    data, copy, route = tmp_path / "data", tmp_path / "copy", CANDIDATES
    with running_redis(tmp_path / "redis") as server:
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            body = a_candidate(api)
            api.admin("PUT", f"{route}/kept", body)
            pushed(api, server)
        shutil.copytree(data, copy)
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            api.admin("PUT", f"{route}/lost", body)
            pushed(api, server)
            seen = revision(api)
        shutil.rmtree(data)
        copy.rename(data)
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            api.admin("POST", "/v1/agents", {"agent_role": "loan_underwriter"})
            until("the revision leaps", lambda: revision(api) > seen, despite=AWAY)
            assert candidates_of(api) == []
            lifted(api)
            assert api.evaluate()["decision"] == "ALLOW"
            again = api.admin("PUT", f"{route}/kept", body)
            assert again["revision"] > seen
            api.evaluate()
            assert api.admin("GET", f"{route}/kept")["decided"] == 1
            api.verified()
