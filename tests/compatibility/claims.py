"""What the changelog says of an upgrade, and how a client of the upgraded control API sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

from tests.compatibility.installation import HAND_MADE, LISTS, ONLY_FOR, OTHER_AGENT
from tests.compatibility.upgraded import Upgraded
from tests.support.waiting import until

_DAY = 86_400_000_000


def old_keys_speak_for_every_agent(it: Upgraded) -> None:
    keys = {each["name"]: each for each in it.admin("GET", "/v1/keys")}
    assert keys["sidecar"]["agent_ids"] == keys[HAND_MADE]["agent_ids"] == ["*"]
    assert keys["evaluate"]["agent_ids"] is None
    for agent_id in ("agt_story", OTHER_AGENT):
        assert it.deliver(it.left.keys[HAND_MADE], agent_id=agent_id)[1] == []


def a_new_sidecars_key_needs_agents(it: Upgraded) -> None:
    body = {"name": "new", "scope": "sidecar"}
    assert it.ask("POST", "/v1/keys", body)[0] == 422
    assert it.ask("POST", "/v1/keys", {**body, "agent_ids": ["agt_story"]})[0] < 300


def a_narrowed_key_says_nothing_of_other_agents(it: Upgraded) -> None:
    [key_id] = [each["key_id"] for each in it.admin("GET", "/v1/keys") if each["name"] == HAND_MADE]
    bind = f"/v1/keys/{key_id}/binding"
    it.admin("PATCH", bind, {"agent_ids": ["agt_story"]})
    try:
        forged, [refused] = it.deliver(it.left.keys[HAND_MADE], "ALLOW", agent_id=OTHER_AGENT)
        assert refused["n"] == it.spool.n - 1
        listed = str(it.admin("GET", "/v1/audit/rejected-records"))
        assert refused["reason"] in listed
        assert forged in listed
        assert it.deliver(it.left.keys[HAND_MADE], agent_id="agt_story")[1] == []
    finally:
        it.admin("PATCH", bind, {"agent_ids": ["*"]})


def an_event_needs_a_uuid_of_version_7(it: Upgraded) -> None:
    [refused] = it.deliver(it.left.keys[HAND_MADE], agent_id="agt_story", eid="event-1")[1]
    assert refused["reason"]


def a_late_record_is_doubtful(it: Upgraded) -> None:
    at = time.time_ns() // 1000 - 31 * _DAY
    event_id, refused = it.deliver(it.left.keys[HAND_MADE], agent_id="agt_story", at=at)
    assert refused == []
    assert it.admin("GET", f"/v1/audit/events/{event_id}")["event"]["time_doubtful"] is True


def levels_of_sources_are_a_floor(it: Upgraded) -> None:
    assert it.admin("GET", "/v1/sources") == []
    it.admin("PUT", "/v1/sources/hand%2A", {"sensitivity_level": "critical"})
    assert it.evaluate()["decision"] == "DENY"
    it.admin("DELETE", "/v1/sources/hand%2A")
    assert it.evaluate()["decision"] == "ALLOW"


def the_fleet_shows_sidecars_that_ignore_levels(it: Upgraded) -> None:
    [shown] = [
        each for each in it.admin("GET", "/v1/sidecars") if each["sidecar_id"] == "sidecar-1"
    ]
    assert (shown["source_levels"], shown["forked"]) == (False, None)


def a_denial_is_escaped_by_naming_no_agent(it: Upgraded) -> None:
    assert it.evaluate(source_id="contracts")["policy_name"] == ONLY_FOR
    assert it.evaluate(source_id="contracts", agent_id=None)["decision"] == "ALLOW"
    said = it.admin("GET", "/v1/policies/access?source_id=contracts")
    assert said["rows"]


def metrics_have_their_new_names(it: Upgraded) -> None:
    it.evaluate(source_id="payroll")
    text = it.text("/metrics")[1]
    for name in ("sluice_connections", "sluice_max_connections", "sluice_unfinished_head_bytes"):
        assert f"\n{name} " in text
    assert "sluice_requests_total{" in text
    assert 'check="source"' in text
    assert "sluice_http_responses_total" not in text


def a_head_is_limited(it: Upgraded) -> None:
    assert it.text("/health", X_Long="x" * 70_000)[0] in (400, 431)


def the_console_answers_under_its_own_host(it: Upgraded) -> None:
    assert it.text("/console/sign-in", Host="sluice.example")[0] in (403, 421)


def the_log_is_signed_and_proves_itself(it: Upgraded) -> None:
    path = it.exported()
    assert it.admin("GET", "/v1/audit/verify")["level"] == "signed"
    assert it.admin("GET", "/v1/audit/checkpoints")[0]["witness_names"] == []
    code, answer = it.verified(path)
    assert (code, answer["valid"], answer["level"]) == (0, True, "signed")
    assert it.verified(*it.state())[0] == 0
    assert it.text(f"/v1/audit/proof/{it.left.events[-1]['event_id']}")[0] == 200


def documents_that_the_old_version_dropped_are_excused(it: Upgraded) -> None:
    code, answer = it.verified(it.exported(), "--recompute")
    assert (code, answer["valid"]) == (2, True), answer
    [told] = answer["not_derived"]
    assert told["why"] == "are of a version that kept no documents"
    it.admin("POST", "/v1/audit/verification")
    until("the service has verified the log", lambda: _self_verified(it))


def _self_verified(it: Upgraded) -> bool:
    found = it.admin("GET", "/health/ready")["self_verification"]["state"]
    assert found != "damaged", it.admin("GET", "/v1/audit/verification")
    return bool(found == "valid")


def changes_of_before_are_listed_without_digests(it: Upgraded) -> None:
    changes = it.admin("GET", "/v1/audit/changes?object_type=policy")
    assert [(each["before"], each["after"]) for each in changes] == [(None, None)]


def decisions_of_before_are_exported_in_every_form(it: Upgraded) -> None:
    oldest = it.left.events[-1]["event_id"]
    for form in ("ocsf", "ecs", "cloudevents", "otel", "csv"):
        status, text = it.text(f"/v1/audit/export?format={form}")
        assert (status, oldest in text) == (200, True), form


def an_old_decision_can_be_held_and_erased(it: Upgraded) -> None:
    event = next(each for each in it.left.events if each["session_id"] == "s-old")
    assert it.admin("GET", f"/v1/audit/events/{event['event_id']}")["unexplained"]
    target = {"object_type": "session", "object_id": "s-old", "reason": "a test"}
    hold = it.admin("POST", "/v1/audit/holds", target)
    redact = {"session_id": "s-old", "reason": "a test"}
    assert it.ask("POST", "/v1/audit/redact", redact)[0] == 409
    it.admin("POST", f"/v1/audit/holds/{hold['hold_id']}/release", {"reason": "over"})
    it.admin("POST", "/v1/audit/redact", redact)
    assert it.admin("GET", "/v1/audit/redactions")


def what_was_there_is_there(it: Upgraded) -> None:
    for name in LISTS:
        path = f"/v1/{name}"
        now = {str(_identity(each)): each for each in it.admin("GET", path)}
        for before in it.left.lists[name]:
            after = now[str(_identity(before))]
            assert {**after, **_moving(before)}.items() >= before.items()
    for before in it.left.events:
        shown = it.admin("GET", f"/v1/audit/events/{quote(before['event_id'])}")["event"]
        assert shown.items() >= before.items()


def _identity(row: dict[str, object]) -> object:
    """A key names the agent that it is bound to, and a session its role: the first one counts."""
    names = ("key_id", "policy_id", "rule_id", "session_id", "agent_id")
    return next(row[name] for name in names if name in row)


def _moving(row: dict[str, object]) -> dict[str, object]:
    """Members that change by themselves: a session ends, a rule fires."""
    return {name: row[name] for name in ("status", "last_fired_at") if name in row}


# A part of the changelog's newest section, and what shows it. The two that change old entries, or
# what is derived from them, come last.
CLAIMS: dict[str, Callable[[Upgraded], None]] = {
    "an upgrade can be rolled back without touching the database": what_was_there_is_there,
    'Older keys go on with `["*"]`': old_keys_speak_for_every_agent,
    "without it 422": a_new_sidecars_key_needs_agents,
    "narrow them with `sluice keys bind": a_narrowed_key_says_nothing_of_other_agents,
    "An event's id must be a UUIDv7": an_event_needs_a_uuid_of_version_7,
    "has `time_doubtful` in lists": a_late_record_is_doubtful,
    "`PUT` and `DELETE /v1/sources/{source_pattern}`": levels_of_sources_are_a_floor,
    "sidecars of before, which ignore the levels": the_fleet_shows_sidecars_that_ignore_levels,
    "denials that a call escapes by naming no agent": a_denial_is_escaped_by_naming_no_agent,
    "`sluice_http_responses_total` is `sluice_requests_total`": metrics_have_their_new_names,
    "A request head has at most 64 KiB": a_head_is_limited,
    "The console answers under one host alone": the_console_answers_under_its_own_host,
    "Signed checkpoints of each tenant's audit log": the_log_is_signed_and_proves_itself,
    "or a change by 0.1, which kept none": documents_that_the_old_version_dropped_are_excused,
    "`GET /v1/audit/changes`: who changed what": changes_of_before_are_listed_without_digests,
    "gives the decisions in OCSF": decisions_of_before_are_exported_in_every_form,
    "Erasing a person from the audit trail": an_old_decision_can_be_held_and_erased,
}
