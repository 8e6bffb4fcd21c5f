"""`sluice verify FILE --recompute`: an insider with the key can rewrite a verdict and every hash,
but the recorded facts and policies still give the other one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from deploy.commands.verify import policy_check
from deploy.commands.verify.policy_check import DocumentCitations
from deploy.commands.verify.pool import Walked
from policies.ground.canonical import b64, encode
from policies.sets.policy_set import role_document
from policies.sets.role import compile_role
from policies.trail import checkpoint
from policies.trail.change import ObjectChange, change_record
from policies.trail.checkpoint import Checkpoint
from policies.trail.entry import StoredRow
from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.file import LogFileWriter
from policies.trail.log_file.lines import (
    CheckpointLine,
    FrontierLine,
    HeaderLine,
    PolicyLine,
    PurgeLine,
)
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.recompute import recomputer
from policies.trail.record import incarnation_record
from policies.trail.removal import Purged
from policies.trail.walk.range_result import Cited
from policies.trail.walk.range_walk import RangeWalk
from tests.deploy.commands.verify.world import KEY, MADE_AT, SIGNER, node_of, note, put, run
from tests.policies.trail.walk.world import line, tree_of
from tests.policies.world import FACTS, LOG, POLICY, RETRIEVAL, START, Log, decided

Capture = pytest.CaptureFixture[str]
VECTORS = Path(__file__).parents[3] / "vectors"


def file_of(
    rows: list[StoredRow], documents: list[bytes], origin: str = LOG, signed: str = LOG
) -> bytes:
    writer = LogFileWriter()
    keys = [{"key": KEY, "endorsement": None}]
    header = HeaderLine(LOG, origin, keys, 0, 0, len(rows), True, MADE_AT)
    made = [writer.line(header), *(writer.line(PolicyLine(each)) for each in documents)]
    made += [writer.joined(line(row) + b"\n", 1) for row in rows]
    last = checkpoint.sign(Checkpoint(signed, len(rows), tree_of(rows).root()), SIGNER)
    made.append(writer.joined(encode_line(CheckpointLine(last)), 0))
    return b"".join([*made, writer.end()])


def decisions() -> list[StoredRow]:
    log = Log()
    log.direct(decided(seed=0))
    log.direct(decided(RETRIEVAL._replace(source_id="payroll"), seed=1))
    return log.rows


def rewritten(rows: list[StoredRow]) -> list[StoredRow]:
    """The denial as an ALLOW, with every hash made to fit, as the owner of the key could."""
    made, prev = [], ""
    for row in rows:
        entry: dict[str, Any] = orjson.loads(row.entry)
        entry["prev"] = prev
        if entry["pub"]["response"]["decision"] == "DENY":
            entry["pub"]["response"] = orjson.loads(rows[0].entry)["pub"]["response"]
        raw = encode(entry)
        leaf = leaf_hash(raw)
        prev = b64(leaf)
        made.append(row._replace(entry=raw, hash=leaf))
    return made


def document() -> bytes:
    found = role_document([POLICY])
    assert found is not None
    return found


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_decisions_are_derived_again(jobs: str, tmp_path: Path, capsys: Capture) -> None:
    path = put(tmp_path, file_of(decisions(), [document()]))
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json", "--jobs", jobs)
    assert (answer.code, answer.reasons) == (0, []), answer.out
    assert answer.json["not_recomputable"] is not None
    text = run(capsys, path, "--key", KEY, "--recompute").out
    assert "decisions follow again from their facts and policies" in text


def test_a_rewritten_verdict_is_found_although_every_hash_fits(
    tmp_path: Path, capsys: Capture
) -> None:
    path = put(tmp_path, file_of(rewritten(decisions()), [document()]))
    assert run(capsys, path, "--key", KEY, "--json").code == 0
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert (answer.code, answer.reasons) == (1, ["decision_differs"])
    assert answer.json["findings"][0]["seq"] == 1


# -------------------------------------------------------------------------- documents left out


def changed(body: bytes) -> bytes:
    return body.replace(b"contracts", b"contractz")


@pytest.mark.parametrize(
    ("documents", "reasons"),
    [
        ([], ["document_missing"]),
        ([changed(document())], ["document_missing", "document_mismatch"]),
        ([document(), changed(document())], ["decision_differs", "document_mismatch"]),
    ],
    ids=["left out", "one byte changed", "one that nothing cites"],
)
def test_a_rewritten_verdict_is_not_silenced_by_an_unsigned_line(
    documents: list[bytes], reasons: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = put(tmp_path, file_of(rewritten(decisions()), documents))
    plain = run(capsys, path, "--key", KEY, "--json")
    of_documents = [each for each in reasons if each != "decision_differs"]
    assert (plain.code, plain.reasons) == (1, of_documents)
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert (answer.code, answer.reasons) == (1, reasons)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_altered_policy_document_is_found_without_recompute_too(
    jobs: str, tmp_path: Path, capsys: Capture
) -> None:
    path = put(tmp_path, file_of(decisions(), [changed(document())]))
    arguments = (path, "--key", KEY, "--json", "--jobs", jobs)
    plain, derived = run(capsys, *arguments), run(capsys, *arguments, "--recompute")
    assert (plain.code, plain.reasons) == (1, ["document_missing", "document_mismatch"])
    assert plain.json["findings"] == derived.json["findings"]
    text = run(capsys, path, "--key", KEY).out
    assert text.startswith("NOT VALID: ")
    assert "level         none: a signature proves nothing of a log with findings" in text


def test_a_log_that_records_why_documents_are_gone_is_valid_until_recomputed(
    tmp_path: Path, capsys: Capture
) -> None:
    log = Log()
    log.direct(incarnation_record(3, 5, 1, record_id="incarnation"))
    log.direct(decided(seed=1))
    path = put(tmp_path, file_of(log.rows, []))
    answer = run(capsys, path, "--key", KEY)
    assert answer.code == 0, answer.out
    assert "1 decision without theirs, which follow a restore of the log" in answer.out


def part_of(rows: list[StoredRow], first: int, oldest: int, ending: list[bytes]) -> bytes:
    """The rows from `first` on, without documents."""
    writer, keys = LogFileWriter(), [{"key": KEY, "endorsement": None}]
    header = HeaderLine(LOG, LOG, keys, oldest, first, len(rows), True, MADE_AT)
    made = [writer.line(header), writer.line(FrontierLine(first, tree_of(rows[:first]).hashes))]
    made += [writer.joined(line(row) + b"\n", 1) for row in rows[first:]]
    made.append(writer.joined(encode_line(CheckpointLine(note(len(rows), rows))), 0))
    made += [writer.joined(each, 0) for each in ending]
    return b"".join([*made, writer.end()])


def test_a_part_has_its_documents_too(tmp_path: Path, capsys: Capture) -> None:
    path = put(tmp_path, part_of(decisions(), 1, 0, []))
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert (answer.code, answer.reasons) == (1, ["document_missing"])


@pytest.mark.parametrize("cutoff", [START - 1, START + 1], ids=["on time", "late"])
@pytest.mark.parametrize("part", [False, True])
def test_only_a_late_decision_of_a_purged_time_may_lack_its_document(
    cutoff: int, part: bool, tmp_path: Path, capsys: Capture
) -> None:
    log = Log()
    log.direct(decided(seed=0))
    tree, last = tree_of(log.rows), log.rows[0].hash
    assert last is not None
    log.direct(Purged(1, tree.root(), tree.to_bytes(), last, cutoff, 1).record("purge"))
    log.shipped(decided(seed=1))  # decided at START
    ending = []
    if part:
        proof = tree_proofs.inclusion_proof(1, 3, node_of(log.rows))
        ending = [encode_line(PurgeLine(log.rows[1].entry.decode(), proof))]
    path = put(tmp_path, part_of(log.rows, 2 if part else 1, 1, ending))
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    if cutoff < START:
        assert (answer.code, answer.reasons) == (1, ["document_missing"])
        return
    assert (answer.code, answer.json["valid"], answer.json["not_recomputable"]) == (2, True, 1)
    [told] = answer.json["not_derived"]
    assert told == {
        "decisions": 1, "why": "are older than what retention removed, and came late"
    }  # fmt: skip
    text = run(capsys, path, "--key", KEY, "--recompute").out
    assert text.startswith("INCOMPLETE: ")
    assert "1 of these are older than what retention removed" in text


DAY = 86_400_000_000
NOW = ObjectChange({"version": 1}, {"version": 2})


@pytest.mark.parametrize(
    ("change", "what", "later", "code"),
    [
        (None, "policy.updated", 0, 2),
        (None, "policy.updated", 30 * DAY, 2),
        (None, "policy.updated", 1 - DAY, 2),
        (None, "policy.updated", -2 * DAY, 1),
        (None, "agent.updated", 0, 1),
        (NOW, "policy.updated", 0, 1),
    ],
    ids=["then", "later", "a day before", "long before", "of an agent", "of this version"],
)
def test_an_older_version_may_have_replaced_documents_without_keeping_them(
    change: ObjectChange | None,
    what: str,
    later: int,
    code: int,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    """Versions up to 0.1 recorded a change without digests. Its entry is signed as all are."""
    log, at = Log(), START + 3 * DAY
    records = [(at, decided()), (at + later, change_record(
        what, "pol_1", "key_1", {}, record_id="change", change=change
    ))]  # fmt: skip
    for time, record in sorted(records, key=lambda each: each[0]):
        log.direct(record, at=time)
    path = put(tmp_path, file_of(log.rows, []))
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert answer.code == code, answer.out
    if code == 2:
        why = "are of a version that kept no documents"
        assert answer.json["not_derived"] == [{"decisions": 1, "why": why}]
    else:
        assert answer.reasons == ["document_missing"]


def test_a_restore_may_have_lost_documents(tmp_path: Path, capsys: Capture) -> None:
    log = Log()
    log.direct(incarnation_record(3, 5, 1, record_id="incarnation"))
    log.direct(decided(seed=1))
    path = put(tmp_path, file_of(log.rows, []))
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert (answer.code, answer.reasons, len(answer.json["not_derived"])) == (2, [], 1)


def test_facts_that_an_incarnation_made_unknown_are_reported(
    tmp_path: Path, capsys: Capture
) -> None:
    """An insider with the log's key can write one, and then rewrite the facts behind it."""
    log = Log()
    log.direct(incarnation_record(3, 5, 1, record_id="incarnation"))
    log.direct(decided(seed=1))
    path = put(tmp_path, file_of(log.rows, [document()]))
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert (answer.code, answer.reasons) == (2, [])
    why = "follow a restore of the log, which lost the changes behind their facts"
    assert answer.json["not_derived"] == [{"decisions": 1, "why": why}]
    assert run(capsys, path, "--key", KEY, "--recompute").out.startswith("INCOMPLETE: ")


@pytest.mark.parametrize(
    ("signed", "code", "reasons"),
    [(f"{LOG}#1", 2, []), (LOG, 1, ["document_missing"])],
    ids=["a checkpoint", "the header alone"],
)
def test_only_a_signed_origin_excuses_facts_by_an_incarnation(
    signed: str, code: int, reasons: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = put(tmp_path, file_of(decisions(), [], f"{LOG}#1", signed))
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert (answer.code, answer.reasons) == (code, reasons)


def test_more_documents_than_can_be_kept_are_reported(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_check, "MOST_BYTES", 10)
    monkeypatch.setattr(recomputer, "MAX_DOCUMENTS", 0)
    log, other = Log(), replace(POLICY, name="others")
    for number in range(2):
        log.direct(decided(seed=number))
    log.direct(decided(facts=FACTS._replace(role=compile_role("analyst", [other])), seed=3))
    path = put(tmp_path, file_of(log.rows, [document(), role_document([other]) or b""]))
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert (answer.code, answer.reasons, len(answer.json["not_derived"])) == (2, [], 1)


def test_an_unreadable_time_excuses_no_missing_document() -> None:
    # The service writes none such, but who rewrites a log may.
    row = decisions()[0]
    entry = orjson.loads(row.entry)
    entry |= {"marks": ["time_doubtful"], "src": {"id": "s", "inst": "i", "n": 0, "prev": ""}}
    entry["src"]["t"] = "0 of no month"
    walk, line = RangeWalk(), b'{"entry":%b,"openings":{}}' % encode(entry)
    cited = Cited({orjson.loads(row.entry)["pub"]["facts"]["role"]: (0, 0)}, 0)
    found = DocumentCitations()
    walked = Walked(line, walk.result()._replace(cited=cited))
    assert not list(found.cited(walked, with_openings=True))
    findings, excused = found.conclude(START)
    assert ([each.reason for each in findings], excused) == (["document_missing"], [])


def test_each_missing_document_of_a_decision_is_a_finding(tmp_path: Path, capsys: Capture) -> None:
    golden = orjson.loads((VECTORS / "cited.json").read_bytes())
    log = Log()
    for each in (0, 1, 3):
        pub = golden["decisions"][each]["pub"]
        log.direct(decided(seed=each)._replace(pub=encode(pub)))
    role, _, sources = (each.encode() for each in golden["documents"])
    for documents, found in (
        ([role, sources], []),
        ([role], [(1, "document_missing")]),
        ([], [(0, "document_missing"), (1, "document_missing")]),
    ):
        answer = run(capsys, put(tmp_path, file_of(log.rows, documents)), "--recompute", "--json")
        assert sorted((each["seq"], each["reason"]) for each in answer.json["findings"]) == found
