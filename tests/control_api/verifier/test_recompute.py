"""`sluice verify FILE --recompute`: an insider with the key can rewrite a verdict and every hash,
but the recorded facts and policies still give the other one."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64, encode
from policies.sets.policy_set import role_document
from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.lines import CheckpointLine, HeaderLine, PolicyLine
from policies.trail.log_file.writer import LogFileWriter
from policies.trail.merkle_tree import leaf_hash
from policies.trail.stored_entry import StoredRow
from tests.control_api.verifier.world import KEY, MADE_AT, note, put, run
from tests.policies.trail.walk.world import line
from tests.policies.world import LOG, POLICY, RETRIEVAL, Log, decided

Capture = pytest.CaptureFixture[str]


def file_of(rows: list[StoredRow], documents: list[bytes]) -> bytes:
    writer = LogFileWriter()
    keys = [{"key": KEY, "endorsement": None}]
    header = HeaderLine(LOG, LOG, keys, 0, 0, len(rows), True, MADE_AT)
    made = [writer.line(header), *(writer.line(PolicyLine(each)) for each in documents)]
    made += [writer.joined(line(row) + b"\n", 1) for row in rows]
    made.append(writer.joined(encode_line(CheckpointLine(note(len(rows), rows))), 0))
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


def test_a_decision_without_its_policies_is_counted(tmp_path: Path, capsys: Capture) -> None:
    path = put(tmp_path, file_of(decisions(), []))
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert (answer.code, answer.json["not_recomputable"]) == (0, 2)


def test_a_rewritten_verdict_is_found_although_every_hash_fits(
    tmp_path: Path, capsys: Capture
) -> None:
    path = put(tmp_path, file_of(rewritten(decisions()), [document()]))
    assert run(capsys, path, "--key", KEY, "--json").code == 0
    answer = run(capsys, path, "--key", KEY, "--recompute", "--json")
    assert (answer.code, answer.reasons) == (1, ["decision_differs"])
    assert answer.json["findings"][0]["seq"] == 1
