"""`sluice redact`: erased to the end, and told to the person without the erased values."""

from __future__ import annotations

import io
import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.ground.process.api_client import ApiResponse, ControlApiClient, ServiceUnusable
from tests.deploy.commands.client.conftest import Operator, Said, environ_of, evaluate
from tests.support.documents import commands, paste
from tests.support.stack import Stack

COMMAND = (sys.executable, "-m", "deploy.command", "redact")
Redact = Callable[..., ApiResponse]


def used(stack: Stack, person: str, **changed: Any) -> Any:
    """An event of the person with a query, and an action reported about it."""
    event = evaluate(stack, user_id=person, query=f"of {person}", **changed)
    action = {"event_id": event["event_id"], "action_type": "sent", "detail": {"to": person}}
    stack.admin("POST", "/v1/audit/lineage", action)
    return event


def left(stack: Stack, person: str) -> int:
    return len(stack.admin("GET", f"/v1/audit/events?user_id={person}"))


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def put(text: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))

    return put


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Redact], None]:
    """Changes how the command's requests to erase are answered; the control API is the real one."""
    request = ControlApiClient.request

    def change(through: Redact) -> None:
        def changed(api: ControlApiClient, method: str, path: str, *args: Any, **kw: Any) -> Any:
            if (method, path) != ("POST", "/v1/audit/redact"):
                return request(api, method, path, *args, **kw)
            return through(lambda: request(api, method, path, *args, **kw), kw["body"])

        monkeypatch.setattr(ControlApiClient, "request", changed)

    return change


def test_a_user_is_erased_and_a_report_is_written_for_them(
    operator: Operator, stack: Stack, tmp_path: Path, stdin: Callable[[bytes], None]
) -> None:
    person, target = "ann-7c1e", tmp_path / "report.json"
    first = used(stack, person, session_id="r-1")
    used(stack, person, session_id="r-1")
    stdin(f"{person}\n".encode())
    said = operator.done(
        "redact", "--user", "-", "--reason", "request 1", "--yes", "-o", str(target)
    )
    assert left(stack, person) == 0
    report = json.loads(target.read_bytes())
    assert (report["complete"], report["entries"], report["sessions"]) == (True, 4, 1)
    assert (report["reason"], target.stat().st_mode & 0o777) == ("request 1", 0o600)
    listed = stack.admin("GET", "/v1/audit/redactions")
    assert report["redactions"] == [each for each in listed if each["reason"] == "request 1"][::-1]
    assert person not in said.out + said.err + target.read_text()
    for part in ("complete", "request 1", listed[0]["hash"], "stays:", "check:"):
        assert part in said.out
    shown = stack.admin("GET", f"/v1/audit/lineage/{first['event_id']}")
    assert (shown["event"]["user_id"], shown["event"]["query"]) == (None, None)
    assert shown["actions"][0]["detail"] is None
    assert stack.admin("GET", "/v1/audit/verify")["valid"] is True
    (tmp_path / "id").write_text(person)
    again = operator.done("redact", "--user-file", str(tmp_path / "id"), "--reason", "r", "--yes")
    assert again.out.startswith("nothing was erased: ")


def test_the_commands_in_the_report_confirm_it(
    operator: Operator, stack: Stack, tmp_path: Path
) -> None:
    used(stack, "bo-31f0", session_id="r-2")
    said = operator.done("redact", "--session", "r-2", "--reason", "r-2", "--yes", "--json")
    assert said.json["target"] == {"session_id": "r-2"}
    log = tmp_path / "log.ndjson"
    operator.done("export", "-o", str(log))
    verified = subprocess.run(
        [sys.executable, "-m", "deploy.command", "verify", str(log)],
        env=environ_of(operator),
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    entries = [json.loads(line) for line in log.read_bytes().splitlines()]
    openings = {each["entry"]["seq"]: each["openings"] for each in entries if "entry" in each}
    named = [
        seq
        for entry in said.json["redactions"]
        for first, last in entry["events"]
        for seq in range(first, last + 1)
    ]
    assert len(named) == said.json["entries"] == 2
    assert [openings[seq] for seq in named] == [{}, {}]


def test_events_are_erased_by_their_ids(operator: Operator, stack: Stack) -> None:
    events = [used(stack, "cy-55aa")["event_id"] for _ in range(3)]
    words = ("redact", "--reason", "events", "--yes", "--json", "--event")
    said = operator.done(*words, *events[:2])
    assert (said.json["target"], said.json["entries"]) == ({"event_ids": events[:2]}, 4)
    assert left(stack, "cy-55aa") == 1
    assert operator(*words, *(f"e-{number}" for number in range(1001))).code == 2


def test_an_erasure_repeats_while_more_is_left(
    operator: Operator, stack: Stack, answers: Callable[[Redact], None]
) -> None:
    events = [used(stack, "di-9d02")["event_id"] for _ in range(3)]
    left_over, asked = list(events), []

    def piecemeal(send: Callable[[], ApiResponse], body: dict[str, Any]) -> ApiResponse:
        asked.append(dict(body))
        # One event a request, as if that were all that one erases.
        body_before = dict(body)
        body.clear()
        body.update(event_ids=[left_over.pop(0)], reason=body_before["reason"])
        response = send()
        body.clear()
        body.update(body_before)
        return replace(response, body={**response.body, "more": bool(left_over)})

    answers(piecemeal)
    said = operator.done("redact", "--user", "di-9d02", "--reason", "many", "--yes", "--json")
    assert asked == [{"user_id": "di-9d02", "reason": "many"}] * 3
    assert (said.json["entries"], len(said.json["redactions"])) == (6, 3)
    assert [each["seq"] for each in said.json["redactions"]] == sorted(
        each["seq"] for each in said.json["redactions"]
    )
    assert left(stack, "di-9d02") == 0


def test_an_erasure_whose_answer_is_lost_is_reported(
    operator: Operator, stack: Stack, tmp_path: Path, answers: Callable[[Redact], None]
) -> None:
    used(stack, "ed-10b7")

    def lost(send: Callable[[], ApiResponse], body: dict[str, Any]) -> ApiResponse:
        send()
        raise ServiceUnusable("the connection broke")

    answers(lost)
    target = tmp_path / "report.json"
    words = ("redact", "--user", "ed-10b7", "--reason", "lost", "--yes", "-o", str(target))
    said = operator(*words)
    assert (said.code, "the connection broke" in said.err) == (1, True)
    report = json.loads(target.read_bytes())
    assert (report["complete"], report["entries"]) == (False, 2)
    assert "NOT COMPLETE" in said.out


def test_an_erasure_ends_if_a_request_erases_nothing_more(
    operator: Operator, answers: Callable[[Redact], None]
) -> None:
    def stuck(send: Callable[[], ApiResponse], body: dict[str, Any]) -> ApiResponse:
        response = send()
        return replace(response, body={**response.body, "more": True})

    answers(stuck)
    said = operator("redact", "--user", "gone", "--reason", "r", "--yes")
    assert (said.code, "erases none of it" in said.err) == (1, True)


def test_a_hold_refuses_an_erasure_and_leaves_no_report(
    operator: Operator, stack: Stack, tmp_path: Path
) -> None:
    used(stack, "flo-4b6d", session_id="r-3")
    held = {"object_type": "session", "object_id": "r-3", "reason": "litigation"}
    hold = stack.admin("POST", "/v1/audit/holds", held)
    target = tmp_path / "report.json"
    words = ("redact", "--user", "flo-4b6d", "--reason", "r", "--yes", "-o", str(target))
    said = operator(*words)
    assert (said.code, hold["hold_id"] in said.err, target.exists()) == (1, True, False)
    assert left(stack, "flo-4b6d") == 1
    stack.admin("POST", f"/v1/audit/holds/{hold['hold_id']}/release", {"reason": "settled"})
    operator.done(*words)
    assert left(stack, "flo-4b6d") == 0


def on_terminal(operator: Operator, words: list[str], typed: bytes) -> Said:
    """The command as a process whose standard input is a terminal."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        done = subprocess.run(
            [*COMMAND, *words],
            env=environ_of(operator),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return Said(done.returncode, done.stdout, done.stderr)


def test_an_erasure_on_a_terminal_needs_a_confirmation(
    operator: Operator, stack: Stack, tmp_path: Path
) -> None:
    used(stack, "gil-8e21")
    target = tmp_path / "report.json"
    words = ["--user", "-", "--reason", "asked", "-o", str(target)]
    said = on_terminal(operator, words, b"gil-8e21\nno\n")
    assert (said.code, "not confirmed" in said.err, target.exists()) == (2, True, False)
    assert left(stack, "gil-8e21") == 1
    said = on_terminal(operator, words, b"gil-8e21\nyes\n")
    assert said.code == 0, said.err
    assert json.loads(target.read_bytes())["entries"] == 2
    assert left(stack, "gil-8e21") == 0


@pytest.mark.parametrize(
    ("given", "words", "complaint"),
    [
        (b"", "--user - --yes", "does not hold one id"),
        (b"a\nb\n", "--user - --yes", "does not hold one id"),
        (b"\xff", "--user - --yes", "not UTF-8"),
        (b"x" * 5000, "--user - --yes", "does not hold one id"),
        (b"", "--user-file /nowhere/id --yes", "can't be read"),
        (b"yes\n", "--user u", "give --yes"),
        (b"", "--user u --yes -o /nowhere/report", "can't be created"),
        (b"", "--yes", "required"),
        (b"", "--user u --session s --yes", "not allowed with"),
    ],
)
def test_unusable_arguments_erase_nothing(
    operator: Operator,
    stdin: Callable[[bytes], None],
    given: bytes,
    words: str,
    complaint: str,
) -> None:
    stdin(given)
    said = operator("redact", "--reason", "r", *shlex.split(words))
    assert (said.code, complaint in said.err) == (2, True), said.err


def test_a_report_does_not_overwrite_a_file(
    operator: Operator, stack: Stack, tmp_path: Path
) -> None:
    used(stack, "hal-02c9")
    target = tmp_path / "report.json"
    target.write_text("another report")
    said = operator("redact", "--user", "hal-02c9", "--reason", "r", "--yes", "-o", str(target))
    assert (said.code, target.read_text()) == (2, "another report")
    assert left(stack, "hal-02c9") == 1


@pytest.mark.deep(
    stands_in="tests/deploy/commands/client/test_incident.py::test_each_command_of_the_readme_is_done"
)
def test_the_readme_s_command_erases_a_person(
    operator: Operator, stack: Stack, tmp_path: Path
) -> None:
    used(stack, "ida-6f5e")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "sluice"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    environ = environ_of(operator, PATH=path, PERSON="ida-6f5e")
    done = paste(commands("deploy/README.md", "erasure"), tmp_path, environ)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "report.json").read_bytes())["complete"] is True
    assert left(stack, "ida-6f5e") == 0
