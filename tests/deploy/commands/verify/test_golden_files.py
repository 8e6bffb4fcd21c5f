"""The golden files: made again byte for byte, and judged by both verifiers."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.verify.monitor import MonitorState
from policies.trail.log_file.coding import encode_line, parse_line
from tests.deploy.commands.verify.world import put, run
from tests.policies.test_vectors import vector
from tests.second_verifier.export_file import ExportFile
from tests.second_verifier.findings import Broken
from tests.second_verifier.notes import read_key, read_note
from tests.second_verifier.openings import check_openings
from tests.second_verifier.tree import Tree, included, leaf_hash
from tests.second_verifier.verifier import Pins, verify
from tests.vectors import make_files

NAMES = ("continued", "purged_part", "asked_part", "report", "monitor_state", "rare_lines")
LOG = "sluice/epoch/default"


@pytest.mark.parametrize("name", NAMES)
def test_golden_files_are_made_with_the_same_bytes(name: str) -> None:
    assert getattr(make_files, name)() == vector(name)


def test_a_continued_log_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = vector("continued")["file"].encode()
    key = json.loads(raw.partition(b"\n")[0])["keys"][0]["key"]
    answer = run(capsys, put(tmp_path, raw), "--key", key, "--json")
    assert (answer.code, answer.json["level"]) == (0, "signed")
    second = verify(BytesIO(raw), Pins((read_key(key).public,)))
    assert (second.valid, second.level, second.entries) == (True, "signed", 6)
    notes = [read_note(line["checkpoint"]) for line in _lines(raw) if "checkpoint" in line]
    assert [note.origin for note in notes] == [LOG, f"{LOG}#1"]
    accepted = next(line["entry"] for line in _lines(raw) if "entry" in line)
    assert accepted["pub"]["origin"] == vector("continued")["origins"]["1"] == notes[1].origin
    assert read_note(accepted["pub"]["cited"]).origin == LOG


@pytest.mark.parametrize("name", ["before", "behind"])
def test_a_part_of_a_purged_log_brings_its_purge_along(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = vector("purged_part")[name].encode()
    key = json.loads(raw.partition(b"\n")[0])["keys"][0]["key"]
    answer = run(capsys, put(tmp_path, raw), "--key", key, "--json")
    assert (answer.code, answer.json["level"]) == (0, "signed"), answer.out
    second = verify(BytesIO(raw), Pins((read_key(key).public,)))
    assert (second.valid, second.level) == (True, "signed")
    purge, note = _lines(raw)[-2], read_note(_lines(raw)[-3]["checkpoint"])
    entry = purge["purge"].encode()
    path = [b64decode(each) for each in purge["proof"]]
    assert included(leaf_hash(entry), json.loads(entry)["seq"], note.size, path, note.root)


def test_the_entries_of_a_report_are_in_its_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = vector("report")["report"].encode()
    wire = json.loads(raw)
    note = read_note(wire["checkpoint"])
    assert note.signed_by(read_key(wire["keys"][0]["key"]).public)
    for item in wire["entries"]:
        entry, proof = json.loads(item["entry"]), item["proof"]
        if item["openings"] is not None:
            assert check_openings(item["openings"].encode(), entry["cm"], entry["seq"]) == []
        assert (proof is None) == (entry["seq"] >= note.size)
        if proof is not None:
            hashes = [b64decode(each) for each in proof]
            leaf = leaf_hash(item["entry"].encode())
            assert included(leaf, entry["seq"], note.size, hashes, note.root)
    path = put(tmp_path, raw)
    # Incomplete: one of its entries came after the checkpoint.
    assert run(capsys, path, "--key", wire["keys"][0]["key"], "--json").code == 2


def test_a_saved_state_matches_its_checkpoint() -> None:
    text = vector("monitor_state")["state"]
    wire = json.loads(text)
    assert MonitorState.from_wire(wire).to_bytes().decode() == text
    note = read_note(wire["checkpoint"])
    tree = Tree(wire["size"], [b64decode(each) for each in wire["frontier"]])
    assert (note.origin, note.size, note.root) == (wire["origin"], tree.size, tree.root())


@pytest.mark.parametrize("name", vector("rare_lines"))
def test_rare_lines_are_read_by_both(name: str) -> None:
    line = vector("rare_lines")[name].encode()
    assert encode_line(parse_line(line[:-1])) == line
    header = vector("continued")["file"].encode().partition(b"\n")[0] + b"\n"
    read = ExportFile(BytesIO(header + line)).lines()
    if "damaged" in json.loads(line):
        assert next(read).value == json.loads(line)
    else:
        with pytest.raises(Broken) as broken:
            next(read)
        assert broken.value.finding.reason == "file_truncated"


def test_the_purge_entry_matches_what_precedes_the_file() -> None:
    lines = _lines(vector("continued")["file"].encode())
    pub = next(each["entry"]["pub"] for each in lines if each.get("entry", {}).get("seq") == 5)
    tree = Tree(3, [b64decode(each) for each in pub["frontier"]])
    assert (pub["size"], pub["frontier"]) == (3, lines[1]["frontier"])
    assert b64decode(pub["root"]) == tree.root()
    first = next(each["entry"] for each in lines if "entry" in each)
    assert pub["last"] == first["prev"] == pub["frontier"][-1]


def _lines(raw: bytes) -> list[Any]:
    assert hashlib.sha256(raw[: raw.rindex(b'{"end"')]).hexdigest() in raw.decode()
    return [json.loads(line) for line in raw.splitlines()]
