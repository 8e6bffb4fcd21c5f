"""Tomorrow's policies beside today's, through both services: published, replaced, promoted and
dropped while agents ask."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.stories.clients import each_exactly_once, in_thread, while_asking
from tests.stories.test_kill import shipped
from tests.support.stack import Stack
from tests.support.waiting import AWAY, until

ROUTE = "/v1/policies/candidates"
TODAY = {
    "name": "support-reads",
    "agent_role": "support",
    "allowed_sources": ["handbook", "contracts", "rest://files/*"],
    "denied_sources": ["payroll"],
    "max_sensitivity": "high",
}
CLOSED = {**TODAY, "allowed_sources": ["contracts"]}
OPEN = {**TODAY, "name": "support-all", "allowed_sources": ["*"], "denied_sources": []}


def put(stack: Stack, name: str, policy: dict[str, Any]) -> int:
    """Publish a candidate, and wait until the sidecar evaluates it. Returns its revision."""
    made = stack.admin("PUT", f"{ROUTE}/{name}", {"policies": [policy]})
    in_force(stack, made["revision"])
    return int(made["revision"])


def in_force(stack: Stack, revision: int) -> None:
    stack.admin("GET", f"/v1/sidecars?wait_for={revision}")


def exported(stack: Stack) -> bytes:
    url = f"http://127.0.0.1:{stack.control.port}/v1/audit/export"
    asked = urllib.request.Request(url, headers={"X-API-Key": stack.admin_key})
    with urllib.request.urlopen(asked) as answer:
        return bytes(answer.read())


def entries(export: bytes) -> list[dict[str, Any]]:
    found = [json.loads(line).get("entry") for line in export.splitlines()]
    return [entry for entry in found if entry]


def verified(path: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "deploy.commands.verify", str(path), "--json", *options]
    done = subprocess.run(command, capture_output=True, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0, report
    return report


def test_a_promotion_under_load_is_one_set_or_the_other(either_way: Stack, tmp_path: Path) -> None:
    stack = either_way
    revisions: list[int] = []

    def change() -> None:
        put(stack, "closed", OPEN)
        revisions.append(put(stack, "open", OPEN))
        revisions.append(put(stack, "closed", CLOSED))
        stack.admin("POST", f"{ROUTE}/closed/promote")
        [promoted] = stack.admin("GET", "/v1/policies")
        assert promoted["allowed_sources"] == ["contracts"]
        # Today's policies allowed it.
        until("the promotion is in force", lambda: denies(stack), despite=AWAY)

    heard = asyncio.run(while_asking(stack, lambda: in_thread(change), sidecar=8, control=8))
    assert not heard.refused
    assert not heard.unanswered
    until("everything is shipped", lambda: shipped(stack), despite=AWAY)
    each_exactly_once(stack, heard)
    export = exported(stack)
    log = entries(export)
    decided = [entry["pub"] for entry in log if entry["kind"] == "decision"]
    opened, closed = revisions
    turn = promotion_revision(log)
    for pub in decided:
        revision, source = pub["facts"]["revision"], pub["request"]["source_id"]
        allowed = source == "handbook" and revision < turn
        assert pub["response"]["decision"] == ("ALLOW" if allowed else "DENY")
        found = {each["name"]: each for each in pub.get("candidates", [])}
        if found.pop("open", {}).get("decision") != "ERROR":
            named = {each["name"] for each in pub.get("candidates", [])}
            assert ("open" in named) == (revision >= opened and not allowed)
        if closed <= revision < turn and found.get("closed", {}).get("decision") != "ERROR":
            assert ("closed" in found) == allowed
        if revision >= turn:
            assert "closed" not in found
    assert {pub["facts"]["revision"] >= turn for pub in decided} == {True, False}
    assert counted(stack, "open") == tally(decided, "open", opened)
    path = tmp_path / "log.jsonl"
    path.write_bytes(export)
    verified(path)
    assert verified(path, "--recompute")["not_recomputable"] == 0


def denies(stack: Stack) -> bool:
    return bool(stack.evaluate()[1]["decision"] == "DENY")


def promotion_revision(log: list[dict[str, Any]]) -> int:
    """The revision from which the role's document is the promoted one."""
    published = [
        revision
        for entry in log
        if entry["kind"] == "change"
        for name, _, revision in entry["pub"].get("published", ())
        if name == "role/support"
    ]
    return int(max(published))


def counted(stack: Stack, name: str) -> dict[str, int]:
    shown = stack.admin("GET", f"{ROUTE}/{name}")
    members = ("decided", "same", "newly_denied", "newly_allowed", "error")
    assert sum(each["count"] for each in shown["groups"]) == (
        shown["newly_denied"] + shown["newly_allowed"] + shown["error"]
    )
    return {member: shown[member] for member in members}


def tally(decided: list[dict[str, Any]], name: str, since: int) -> dict[str, int]:
    """The counts of a candidate, from the entries of the log."""
    by = {"decided": 0, "same": 0, "newly_denied": 0, "newly_allowed": 0, "error": 0}
    of = {"ALLOW": "newly_allowed", "DENY": "newly_denied", "ERROR": "error"}
    for pub in decided:
        if pub["facts"].get("revision", 0) >= since:
            told = [each["decision"] for each in pub.get("candidates", []) if each["name"] == name]
            by["decided"] += 1
            by[of[told[0]] if told else "same"] += 1
    return by
