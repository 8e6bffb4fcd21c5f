"""Times in arguments: every command that takes one reads it as the others do."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.commands.client.client import moment
from deploy.commands.policy.__main__ import main as policy
from deploy.commands.report.gathering import parse as report
from policies.ground.canonical import micros, rfc3339
from policies.ground.clock import ACCEPTED, UnreadableTime, read_time, read_time_text
from policies.trail.verdict.outcome import Unusable
from tests.deploy.commands.client.conftest import Operator, evaluate
from tests.support.stack import Stack

NOW = micros("2026-11-03T10:00:00.000000Z")
TIMES = {
    "30s": "2026-11-03T09:59:30.000000Z",
    "30m": "2026-11-03T09:30:00.000000Z",
    "1h": "2026-11-03T09:00:00.000000Z",
    "7d": "2026-10-27T10:00:00.000000Z",
    "4w": "2026-10-06T10:00:00.000000Z",
    "2026-11-01": "2026-11-01T00:00:00.000000Z",
    "2026-11-01T09:00Z": "2026-11-01T09:00:00.000000Z",
    "2026-11-01t09:00:00.25+02:00": "2026-11-01T07:00:00.250000Z",
}
NO_TIMES = (
    *("", "7", "d", "7y", "1e3d", "-1h", "9999999d", "999999w", "٣d", "yesterday", "1h "),
    *("03:00", "2026-02-30", "2026-11-01T25:00Z", "2026-11-01T09:00", "2026-11", "1969-12-31"),
    "2026-W44",
)


@pytest.mark.parametrize("text", TIMES)
def test_a_time_is_read_in_every_common_form(text: str) -> None:
    assert read_time_text(text, NOW) == TIMES[text]
    assert rfc3339(read_time(text, NOW)) == TIMES[text]


@pytest.mark.parametrize("text", NO_TIMES)
def test_an_unreadable_time_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(UnreadableTime) as refused:
        read_time(text, NOW)
    assert str(refused.value) == f"`{text}` is not a time; expected {ACCEPTED}"


def test_events_changes_and_exports_accept_times_in_every_common_form(
    operator: Operator, stack: Stack, tmp_path: Path
) -> None:
    evaluate(stack, session_id="timed")
    words = ("events", "--session", "timed", "--json")
    assert len(operator.done(*words, "--from", "1h").json) == 1
    assert len(operator.done(*words, "--from", "2026-01-01").json) == 1
    assert operator.done(*words, "--to", "1h").json == []
    stack.admin("POST", "/v1/agents", {"agent_id": "agt_timed", "agent_role": "support"})
    changes = ("changes", "--object", "agt_timed", "--json")
    assert len(operator.done(*changes, "--from", "30m").json) == 1
    assert operator.done(*changes, "--to", "30m").json == []
    target = tmp_path / "log.ndjson"
    assert operator.done("export", "-o", str(target), "--from", "1h", "--json").json["entries"] > 0


@pytest.mark.parametrize(
    "words",
    [("events", "--from"), ("events", "--to"), ("changes", "--from"), ("changes", "--to"),
     ("export", "-o", "absent/log", "--from"), ("export", "-o", "absent/log", "--to")],
)  # fmt: skip
def test_an_unreadable_time_is_refused_before_any_request(
    operator: Operator, words: tuple[str, ...]
) -> None:
    said = operator(*words, "soon", SLUICE_URL="http://127.0.0.1:1")
    assert said.code == 2
    assert f"`soon` is not a time; expected {ACCEPTED}" in said.err


def test_reports_and_policy_commands_take_the_same_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["log.ndjson", "--agent", "a", "-o", "out"]
    _, asked = report([*given, "--from", "7d", "--to", "2026-11-01"], NOW)
    assert (asked.begin, asked.until) == (micros(TIMES["7d"]), micros(TIMES["2026-11-01"]))
    with pytest.raises(Unusable, match="--from: `soon` is not a time; expected how long ago"):
        report([*given, "--from", "soon"], NOW)
    (tmp_path / "key").write_text("slc_x")
    for words in (["who", "kb", "--at", "soon"], ["impact", str(tmp_path), "--since", "soon"]):
        (tmp_path / "p.yaml").write_text("")
        assert policy([*words, "--key-file", str(tmp_path / "key")]) == 2
    assert moment("2026-11-01") == TIMES["2026-11-01"]
