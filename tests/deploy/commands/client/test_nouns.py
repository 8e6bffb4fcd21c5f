"""Every command of the operator against a real control API."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from policies.ground.process.api_client import ApiResponse, ControlApiClient
from tests.deploy.commands.client.conftest import Operator, evaluate
from tests.support.stack import Stack


def test_an_agent_is_registered_changed_and_deprecated(operator: Operator) -> None:
    made = operator.done(
        "agents", "register", "--role", "support", "--id", "spiffe://a/b", "--owner", "desk"
    )
    assert made.out == "agent spiffe://a/b is draft\n"
    assert "revision" in made.err
    for action, status in (
        ("submit", "pending_approval"),
        ("return", "draft"),
        ("submit", "pending_approval"),
        ("approve", "approved"),
    ):
        moved = operator.done("agents", action, "spiffe://a/b", "--json")
        assert moved.json["status"] == status
    shown = operator.done("agents", "show", "spiffe://a/b")
    assert "owner            desk" in shown.out
    listed = operator.done("agents", "list", "--status", "approved", "--role", "support")
    heading, line = listed.out.splitlines()
    assert heading.split() == ["AGENT", "STATUS", "ROLE", "OWNER", "FRAMEWORK", "NAME"]
    assert line.split() == ["spiffe://a/b", "approved", "support", "desk", "-", "-"]
    assert line.index("approved") == heading.index("STATUS")
    operator.done("agents", "deprecate", "spiffe://a/b")
    refused = operator("agents", "approve", "spiffe://a/b")
    assert refused.code == 1
    assert refused.err.startswith("sluice: 409 Conflict: ")
    assert "request id: " in refused.err


def test_a_key_is_created_bound_and_revoked(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "agent.key"
    made = operator.done(
        "keys", "create", "--name", "agents", "--scope", "evaluate", "--out", str(file)
    )
    secret = file.read_text().strip()
    assert file.stat().st_mode & 0o777 == 0o600
    assert secret.startswith("slc_")
    assert secret not in made.out + made.err
    key_id = made.out.split()[1]
    bound = operator.done("keys", "bind", key_id, "--role", "support", "--role", "claims")
    assert bound.out == f"key {key_id} is bound\n"
    listed = operator.done("keys", "list", "--json").json
    key = next(each for each in listed if each["key_id"] == key_id)
    assert key["permitted_roles"] == ["support", "claims"]
    rotated = operator.done("keys", "rotate", key_id, "--json")
    assert rotated.json["key"].startswith("slc_")
    assert "shown only this once" in rotated.err
    operator.done("keys", "bind", rotated.json["key_id"], "--no-roles")
    assert operator("keys", "bind", rotated.json["key_id"]).code == 2
    assert operator.done("keys", "revoke", rotated.json["key_id"]).code == 0
    assert operator("revoke", "key", rotated.json["key_id"]).code == 1
    listed = operator.done("keys", "list", "--all").out
    assert rotated.json["key_id"] not in listed
    # Where the help of `list` says that revoked keys are.
    revoked = operator.done("changes", "--type", "key", "--action", "revoked", "--json").json
    assert revoked[0]["object_id"] == rotated.json["key_id"]


def test_no_secret_is_created_if_its_file_can_not_be(operator: Operator, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("kept")
    before = len(operator.done("keys", "list", "--json", "--all").json)
    words = ("keys", "create", "--name", "a", "--scope", "read", "--out")
    for place in (taken, tmp_path / "none" / "file"):
        said = operator(*words, str(place))
        assert said.code == 2
        assert str(place) in said.err
    assert taken.read_text() == "kept"
    assert len(operator.done("keys", "list", "--json", "--all").json) == before
    # If the key is refused, no file is left either.
    refused = operator(
        "keys", "create", "--name", "x" * 300, "--scope", "read", "--out", f"{taken}2"
    )
    assert refused.code == 1
    assert "name: " in refused.err
    assert not (tmp_path / "taken2").exists()


def test_the_superadmin_creates_a_tenant_and_its_admin_key(
    operator: Operator, tmp_path: Path
) -> None:
    first, superadmin, admin = (tmp_path / name for name in ("first", "superadmin.key", "acme.key"))
    first.write_text(operator.key_file.read_text())
    superadmin.write_text(json.loads(first.read_text())["superadmin_key"])
    superadmin.chmod(0o600)
    own = ("--key-file", str(superadmin))
    made = operator.done("tenants", "create", "acme", "--out", str(admin), *own)
    assert admin.stat().st_mode & 0o777 == 0o600
    secret = admin.read_text().strip()
    assert secret.startswith("slc_")
    assert secret not in made.out + made.err
    listed = operator.done("tenants", "list", "--json", *own).json
    acme, default = listed
    assert (acme["name"], default["tenant_id"]) == ("acme", "default")
    assert f"tenant_id  {acme['tenant_id']}\n" == made.out
    keys = operator.done("keys", "list", "--json", "--key-file", str(admin)).json
    assert [each["scope"] for each in keys] == ["admin"]
    # A name that is taken leaves no file; an admin of a tenant may do neither.
    taken = operator("tenants", "create", "acme", "--out", f"{admin}2", *own)
    assert (taken.code, (tmp_path / "acme.key2").exists()) == (1, False)
    assert operator("tenants", "list").code == 1


def test_sessions_are_listed_shown_and_revoked(operator: Operator, stack: Stack) -> None:
    evaluate(stack, session_id="s/1")
    evaluate(stack, session_id="s-2")
    assert "s/1" in operator.done("sessions", "list", "--status", "active").out
    assert operator.done("sessions", "show", "s/1", "--json").json["user_id"] == "ann"
    said = operator.done("sessions", "revoke", "s/1", "--reason", "lost laptop")
    assert said.out == "session s/1 is revoked\n"
    shown = operator.done("sessions", "show", "s/1", "--json").json
    assert shown["revocation_reason"] == "lost laptop"
    operator.done("revoke", "session", "s-2")
    assert operator.done("sessions", "show", "s-2", "--json").json["status"] == "revoked"


def test_events_are_filtered_and_paged(operator: Operator, stack: Stack) -> None:
    for number in range(4):
        evaluate(stack, user_id=f"u-{number}", source_id="payroll", session_id="paged")
    words = ("events", "--session", "paged", "--decision", "DENY")
    rows = operator.done(*words, "--json", "--all").json
    assert [each["user_id"] for each in rows] == ["u-3", "u-2", "u-1", "u-0"]
    assert operator.done(*words, "--json", "--limit", "3").json == rows[:3]
    assert operator.done(*words, "--json", "--user", "u-2").json == rows[1:2]
    later = operator.done(*words, "--json", "--from", rows[1]["timestamp"]).json
    assert later == rows[:2]
    assert operator.done(*words, "--to", rows[3]["timestamp"], "--json").out == "[]\n"
    heading, first, *_ = operator.done(*words).out.splitlines()
    assert heading.split()[:3] == ["TIME", "DECISION", "ROLE"]
    assert first.split()[:3] == [rows[0]["timestamp"], "DENY", "support"]
    assert first[heading.index("REASON") :] == rows[0]["reason"]
    unusable = operator("events", "--from", "yesterday")
    assert unusable.code == 2
    assert "--from: `yesterday` is not a time; expected how long ago" in unusable.err


def test_an_event_is_shown_in_full_by_the_id_that_the_list_shows(
    operator: Operator, stack: Stack
) -> None:
    event_id = evaluate(stack, source_id="payroll", session_id="whole")["event_id"]
    heading, row = operator.done("events", "--session", "whole").out.splitlines()
    assert row[heading.index("ID ") :].startswith(event_id)
    shown = dict(
        line.split(maxsplit=1)
        for line in operator.done("events", "--event", event_id).out.splitlines()
    )
    assert (shown["event_id"], shown["decision"]) == (event_id, "DENY")
    # What is absent is `-`, and a list its items: nothing of Python's own spelling.
    assert "task_type=-" in shown["task"]
    assert not any("None" in text or "[" in text for text in shown.values())
    found = operator.done("events", "--event", event_id, "--json").json
    assert found["event"]["event_id"] == event_id
    [compared] = [each["facts"] for each in found["explain"]["checks"] if each["check"] == "source"]
    assert f"allowed_sources={', '.join(compared['allowed_sources'])}" in shown["source"]
    # Every check of the decision has its line.
    assert {each["check"] for each in found["explain"]["checks"]} <= shown.keys()
    # A policy that names only the end of the id: what it should say instead.
    named = evaluate(stack, source_id="chroma://db/t/d/handbook")["event_id"]
    said = operator.done("events", "--event", named).out
    hint = operator.done("events", "--event", named, "--json").json["suggestion"]
    assert re.search(rf"^suggestion +{re.escape(hint)}$", said, re.MULTILINE)
    assert "suggestion" not in shown
    unknown = operator("events", "--event", "absent")
    assert (unknown.code, "404" in unknown.err) == (1, True)


def test_an_event_without_an_explanation_is_shown(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sidecar's denial of a call for an agent that its key does not name has no facts."""
    event = {"event_id": "e-1", "agent_id": "agt_other", "agent_foreign": True}
    answer = {"event": event, "explain": None, "unexplained": "the record has no facts"}
    ask = ControlApiClient.request

    def answered(api: ControlApiClient, method: str, path: str, *rest: Any, **more: Any) -> Any:
        if path == "/v1/audit/events/e-1":
            return ApiResponse(200, answer, {})
        return ask(api, method, path, *rest, **more)

    monkeypatch.setattr(ControlApiClient, "request", answered)
    said = operator.done("events", "--event", "e-1").out
    assert "agt_other" in said
    assert "none: the record has no facts" in said


def test_the_log_s_public_key_is_printed_with_its_fingerprint(
    operator: Operator, stack: Stack
) -> None:
    key = stack.admin("GET", "/v1/audit/log-keys")["log_key"]
    sha256 = hashlib.sha256(base64.b64decode(key)).hexdigest()
    said = operator.done("log-key")
    # Only the key, so that standard output can be the file `log.pub`.
    assert said.out == f"{key}\n"
    assert said.err == f"sluice: its SHA-256 fingerprint is {sha256}\n"
    shown = operator.done("log-key", "--json").json
    assert (shown["log_key"], shown["sha256"]) == (key, sha256)
    # The service's own log names it too, beside what it works with.
    started = stack.control.log.read_text()
    assert "SQLite, without Redis; checkpoints in `file:///" in started
    assert f"the signing key's SHA-256 is {sha256}" in started


def test_the_audit_trail_is_verified_and_its_first_bad_entry_is_named(
    operator: Operator, stack: Stack
) -> None:
    event_id = evaluate(stack, session_id="verified")["event_id"]
    said = operator.done("audit", "verify")
    [total] = re.findall(r"^valid: ([0-9,]+) of \1 entries are verified$", said.out, re.MULTILINE)
    assert "waiting until a process" in said.err or f"of {total}" in said.err
    shown = operator.done("audit", "status", "--json").json
    assert (shown["state"], shown["running"]) == ("valid", False)
    # A column beside the entry, since a changed entry would end the log's checkpoints as well.
    with closing(sqlite3.connect(stack.directory / "data" / "sluice.db")) as database:
        change = "UPDATE log_entries SET decision = ? WHERE eid = ?"
        where = "SELECT seq, decision FROM log_entries WHERE eid = ?"
        seq, before = database.execute(where, (event_id,)).fetchone()
        database.execute(change, ("DENY" if before == "ALLOW" else "ALLOW", event_id))
        database.commit()
        damaged = operator("audit", "verify")
        assert damaged.code == 1
        assert damaged.out.startswith(f"damaged: entry {seq} (`{event_id}`): column_mismatch: ")
        assert operator("audit", "verify", "--json").json["broken_at"] == event_id
        status = operator("audit", "status")
        assert (status.code, "state          damaged" in status.out) == (1, True)
        database.execute(change, (before, event_id))
        database.commit()
    assert operator.done("audit", "verify").out.startswith("valid: ")


def test_a_list_longer_than_a_page_follows_its_links(
    operator: Operator, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        evaluate(stack, user_id=f"p-{number}", session_id="links")
    monkeypatch.setattr("policies.ground.process.api_client.PAGE", 2)
    words = ("events", "--session", "links", "--json")
    users = [each["user_id"] for each in operator.done(*words, "--all").json]
    assert users == ["p-4", "p-3", "p-2", "p-1", "p-0"]
    assert len(operator.done(*words, "--limit", "3").json) == 3


REPORT = {
    "sidecar_id": "sc-1",
    "run_id": "9f1c2a7b00d1",
    "version": "1.0.0",
    "agent_id": None,
    "agent_role": "support",
    "epoch": "0",
    "revision": 1,
    "policy_set_age_ms": 5,
    "spool_depth": 0,
    "oldest_unshipped_ms": None,
    "refusing": None,
}


def test_the_fleet_is_listed_and_the_command_waits_for_it(operator: Operator, stack: Stack) -> None:
    assert operator.done("fleet", "--json").json == []
    assert operator.done("fleet", "--wait-for", "1").out == "every live sidecar has revision 1\n"
    stack.admin("POST", "/v1/sidecars/report", REPORT)
    assert operator.done("fleet").out.splitlines()[1].startswith("sc-1")
    late = operator("fleet", "--wait-for", "999999", "--timeout", "1")
    assert late.code == 1
    assert "sc-1" in late.out
    assert "1 live sidecars lack revision 999999" in late.err


def test_the_administrative_trail_is_listed(operator: Operator, stack: Stack) -> None:
    stack.admin("POST", "/v1/agents", {"agent_id": "agt_c", "agent_role": "support"})
    operator.done("agents", "submit", "agt_c")
    words = ("changes", "--type", "agent", "--object", "agt_c")
    newest, oldest = operator.done(*words, "--json").json
    assert (newest["action"], newest["after"]["status"]) == ("status", "pending_approval")
    heading, first, second = operator.done(*words).out.splitlines()
    assert heading.split() == ["TIME", "TYPE", "OBJECT", "ACTION", "BY", "CHANGED"]
    assert first[heading.index("CHANGED") :] == "status: draft → pending_approval"
    by = f"{newest['actor']} ({newest['actor_name']})"
    assert first[: heading.index("CHANGED")].split(maxsplit=4)[1:] == [
        *("agent", "agt_c", "status"),
        by.ljust(heading.index("CHANGED") - heading.index("BY")),
    ]
    assert second[heading.index("ACTION") :].split(maxsplit=1)[1] == f"{by}  -"
    assert len(operator.done(*words, "--action", "status", "--json").json) == 1
    empty = operator.done("changes", "--by", "nobody", "--to", "1h")
    assert "no change matches --by nobody: an id is meant" in empty.err
    assert "no change" not in operator.done(*words, "--all").err
    assert operator.done(*words, "--to", oldest["timestamp"], "--json").json == []


def test_the_fleet_s_own_records_show_what_it_has_applied(operator: Operator, stack: Stack) -> None:
    stack.admin("POST", "/v1/sidecars/report", {**REPORT, "sidecar_id": "sc-9"})
    shown = operator("fleet", "--applied", "1", "--json").json
    assert (shown["revision"], shown["applied"]) == (1, [])
    lacking = operator("fleet", "--applied", "1")
    assert lacking.code == 1
    [row] = [line for line in lacking.out.splitlines() if line.startswith("sc-9")]
    assert row.split()[1:3] == ["-", "-"]


@pytest.mark.parametrize(
    "words",
    [
        ("agents",),
        ("audit",),
        ("agents", "show"),
        ("keys", "create", "--name", "a"),
        ("keys", "create", "--name", "a", "--scope", "all"),
        ("keys", "create", "--name", "a", "--scope", "read", "--expires-days", "0"),
        ("revoke", "sessions"),
        ("revoke", "sessions", "--reason", "no filter"),
        ("freeze",),
        ("freeze", "--lift", "reason"),
        ("events", "--limit", "0"),
        ("events", "--limit", "3", "--all"),
        ("events", "--event", "e", "--decision", "DENY"),
        ("events", "--event", "e", "--follow"),
        ("events", "--follow", "--to", "2026-01-01T00:00:00Z"),
        ("fleet", "--key", "slc_secret"),
    ],
)
def test_unusable_arguments_exit_with_2(operator: Operator, words: tuple[str, ...]) -> None:
    said = operator(*words)
    assert said.code == 2
    assert said.err


@pytest.mark.parametrize("scope", ["read", "evaluate"])
def test_a_key_of_insufficient_scope_is_refused_with_the_needed_scope(
    operator: Operator, stack: Stack, key_file: Callable[[str], Path], scope: str
) -> None:
    path = str(key_file(stack.new_key("little", scope)))
    said = operator("keys", "create", "--name", "a", "--scope", "read", "--key-file", path)
    assert said.code == 1
    assert said.err.startswith("sluice: 403 Forbidden: ")
    assert f"the key in `{path}` was sent" in said.err
    assert "changing one of scope `admin`" in said.err
    assert operator("keys", "list", "--key-file", path).code == (0 if scope == "read" else 1)
