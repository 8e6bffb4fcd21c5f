"""What a report contains: its entries, its page, and what it says when there is nothing."""

import html
import json
import re
import stat
from pathlib import Path

import pytest

from deploy.commands.report import page as report_page
from deploy.commands.report.rows import changed, shown
from policies.ground.distribution import install_command
from tests.deploy.commands.report.made import Capture, made, report, seqs
from tests.deploy.commands.verify.world import KEY, ROWS, SIZE, export, note, put, run
from tests.policies.world import FULL, Log, decided, full_facts

AGENT = ("--agent", "agt_a")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("--event event-3", [3, 4]),  # with what was released
        ("--event event-0", [0, 1]),
        ("--event none", []),
        ("--agent agt_a --from 2026-01-02", []),
        # A change counts if it is within the range, and lineage with its event.
        ("--session s_1 --from 2026-01-01T00:00Z --to 2026-01-01T00:00:00.000001Z",
         [3, 4, 6, 13, 15]),
        ("--user ann --from 2026-01-01T00:00:00.0015Z --to 2026-01-01T01:00:00.010+01:00",
         [2, 7, 8]),
    ],
)  # fmt: skip
def test_a_report_holds_the_entries_of_its_subject(
    asked: str, expected: list[int], tmp_path: Path, capsys: Capture
) -> None:
    wire, _ = made(tmp_path, capsys, *asked.split())
    assert seqs(wire) == expected


@pytest.mark.parametrize("by", ["session s_1", "agent agt_a", "user ann@example.com"])
def test_a_report_holds_all_decisions_of_its_subject_and_changes_in_between(
    by: str, tmp_path: Path, capsys: Capture
) -> None:
    name, value = by.split()
    wire, page = made(tmp_path, capsys, f"--{name}", value)
    entries = [json.loads(row.entry) for row in ROWS]
    decisions = [
        each["seq"]
        for each, row in zip(entries, ROWS, strict=True)
        if each["kind"] == "decision"
        and (name == "user" or each["pub"]["request"].get(f"{name}_id") == value)
    ]
    found = seqs(wire)
    assert set(decisions) <= set(found)
    assert found == sorted(found)
    kinds = {entries[seq]["kind"] for seq in set(found) - set(decisions)}
    assert kinds == {"lineage", "gap", "redact", "purge", "incarnation"} | (
        {"change"} if name == "user" else set()
    )
    stored = {row.seq: (row.entry, row.openings) for row in ROWS}
    for seq, each in zip(found, wire["entries"], strict=True):
        assert (each["entry"].encode(), each["openings"].encode()) == stored[seq]
    assert "reads" in page
    assert "pol_reads" in page
    assert "version <bdi>3</bdi>" in page
    assert "00" * 32 in page  # the digest of what was released
    assert "sluice verify report.json --key log.pub" in page
    assert "sluice verify EXPORT --key log.pub --recompute" in page
    # By which policies, and where.
    facts = [entries[seq]["pub"]["facts"] for seq in decisions]
    roles = {each["role"] for each in facts if each and each["role"]}
    assert roles
    assert all(f"<bdi>{role}</bdi>" in page for role in roles)
    by_sidecars = [entries[seq]["src"]["id"] for seq in decisions if "src" in entries[seq]]
    decider = by_sidecars[0] if by_sidecars else "the control API"
    assert f"decided by <bdi>{decider}</bdi>" in page


def test_the_same_export_gives_the_same_bytes(tmp_path: Path, capsys: Capture) -> None:
    made(tmp_path, capsys, *AGENT)
    files = [tmp_path / "out" / name for name in ("report.html", "report.json")]
    before = [each.read_bytes() for each in files]
    made(tmp_path, capsys, *AGENT)
    assert [each.read_bytes() for each in files] == before
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == sorted(
        each.name for each in files
    )


def test_an_empty_selection_is_reported(tmp_path: Path, capsys: Capture) -> None:
    path, out = put(tmp_path, export()), tmp_path / "out"
    answer = report(capsys, path, "--session", "s_none", "--key", KEY, "-o", str(out))
    assert answer.code == 0
    assert answer.out.startswith("No entry matches")
    assert "No entry of the export matches" in (out / "report.html").read_text()
    assert run(capsys, str(out / "report.json"), "--key", KEY).code == 0


def test_entries_after_the_checkpoint_are_marked(tmp_path: Path, capsys: Capture) -> None:
    content = export(notes={14: note(14)})
    wire, page = made(tmp_path, capsys, *AGENT, content=content)
    proven = [each["proof"] is not None for each in wire["entries"]]
    assert proven == [seq < 14 for seq in seqs(wire)]
    assert "in no checkpoint yet" in page
    answer = run(capsys, str(tmp_path / "out/report.json"), "--key", KEY, "--json")
    assert (answer.code, answer.json["unproven_tail"]) == (2, proven.count(False))


@pytest.mark.parametrize(("first", "last"), [(1, 20), (5, 6), (7, 30), (8, 16), (13, SIZE - 1)])
def test_a_part_of_a_log_gives_proofs_too(
    first: int, last: int, tmp_path: Path, capsys: Capture
) -> None:
    content = export(ROWS[first:last], first=first, tail=note(SIZE))
    wire, _ = made(tmp_path, capsys, "--user", "ann@example.com", content=content)
    assert all(each["proof"] for each in wire["entries"])
    assert wire["entries"]
    path = str(tmp_path / "out/report.json")
    assert run(capsys, path, "--key", KEY, "--json").json["level"] == "signed"


def test_an_export_that_does_not_verify_gives_no_report(tmp_path: Path, capsys: Capture) -> None:
    rows = [*ROWS[:5], ROWS[5]._replace(entry=ROWS[5].entry.replace(b"DENY", b"DONT")), *ROWS[6:]]
    path, out = put(tmp_path, export(rows)), tmp_path / "out"
    answer = report(capsys, path, *AGENT, "--key", KEY, "-o", str(out))
    assert answer.code == 1
    assert "NOT VALID" in answer.out
    assert not out.exists()


@pytest.mark.parametrize(
    "arguments",
    [["--agent", "a", "--user", "b"], [], ["--agent", "a", "--from", "yesterday"],
     ["--agent", "a", "--from", "2026-02-30"],
     ["--agent", "a", "--from", "2026-01-02", "--to", "2026-01-01"]],
)  # fmt: skip
def test_unusable_arguments_are_refused_with_a_message(
    arguments: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = put(tmp_path, export())
    answer = report(capsys, path, *arguments, "-o", str(tmp_path / "out"))
    assert answer.code == 2
    assert "sluice report" in answer.err
    assert not (tmp_path / "out").exists()


def test_a_user_is_not_searched_where_openings_are_missing(tmp_path: Path, capsys: Capture) -> None:
    path = put(tmp_path, export(openings=False))
    answer = report(capsys, path, "--user", "ann", "-o", str(tmp_path / "out"))
    assert (answer.code, "names no user" in answer.err) == (2, True)


def hostile(query: str) -> bytes:
    log = Log()
    log.shipped(decided(FULL._replace(query=query), full_facts()))
    return export(log.rows, notes={1: note(1, log.rows)})


HOSTILE = (
    "</td></table><script>document.title='run'</script><img src=x onerror=alert(1)>\u202eabc\0\n"
)


def test_hostile_values_are_text(tmp_path: Path, capsys: Capture) -> None:
    _, page = made(tmp_path, capsys, *AGENT, content=hostile(HOSTILE))
    assert "<script" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert "\0" not in page
    for mark in ("U+202E", "U+0000", "U+000A", "&lt;script&gt;"):
        assert mark in page
    # Were markup to get in all the same, the page's own policy lets none of it run.
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', page)
    directives = [each.split() for each in html.unescape(policy).split(";")]
    assert ["default-src", "'none'"] in directives
    others = {name for name, *sources in directives if sources != ["'none'"]}
    assert others == {"style-src"}
    assert "<title>Audit report</title>" in page


@pytest.mark.parametrize(
    "character", ["\u200b", "\u2066", "\u00a0", "\u00ad", "\u2028", "\x1b", "\x7f", "\ufeff",
                  "\u3164", "\ue000", "\U000e0041"],
)  # fmt: skip
def test_invisible_characters_are_shown_by_number(character: str) -> None:
    assert character not in shown(f"a{character}b")
    assert f"U+{ord(character):04X}" in shown(f"a{character}b")
    assert shown("naïve Ω 名") == "<bdi>naïve Ω 名</bdi>"


def test_a_change_is_described_by_its_old_and_new_values() -> None:
    pub = {
        "after": {"status": "approved", "roles": ["a"], "updated_at": "2"},
        "after_sha256": "bb",
        "before": {"status": "draft", "roles": ["a"], "updated_at": "1"},
        "before_sha256": "aa",
        "detail": {"reason": "<b>", "status": "approved"},
        "published": [["agent/agt_a", "cc", 4], ["key/k", None, 5], "?"],
    }
    text = [html.unescape(re.sub(r"<[^>]+>", "", line)) for line in changed(pub)]
    assert text == [
        "status: draft → approved",
        "reason: <b>",
        "published at revision 4: agent/agt_a, SHA-256 cc",
        "key/k gone at revision 5",
        "?",
        "SHA-256 before: aa",
        "SHA-256 after: bb",
    ]
    removed = {"before": {"name": "n"}, "after": None, "before_sha256": "aa", "after_sha256": None}
    assert changed(removed)[0] == "removed: <bdi>name</bdi>: <bdi>n</bdi>"
    assert changed({"what": "enrolment.refused", "detail": {}}) == []


def test_the_page_shows_the_wheel_that_made_it_and_installs_one_from_a_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_page, "wheel_digest", lambda: "ab" * 32)
    _, page = made(tmp_path, capsys, *AGENT)
    assert f"wheel with the SHA-256 <code>{'ab' * 32}</code>" in page
    assert f"<pre>{install_command()}\nsluice verify report.json" in page
