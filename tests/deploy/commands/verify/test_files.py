"""`sluice verify FILE`: what holds, what each kind of damage is called, and what is proven."""

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from policies.ground.canonical import b64
from policies.ground.signing import Signer
from policies.trail.entry import StoredRow
from policies.trail.log_file.lines import ErasureLine
from policies.trail.proofs import tree_proofs
from tests.deploy.commands.verify.world import (
    KEY,
    ROWS,
    SIGNER,
    SIZE,
    WITNESS_KEY,
    export,
    node_of,
    note,
    purged_rows,
    put,
    rotated_keys,
    run,
    witnessed,
)
from tests.policies.trail.walk.world import tree_of
from tests.policies.world import LOG

Capture = pytest.CaptureFixture[str]
STRANGER = Signer(bytes(range(9, 41)))


def test_a_whole_log_holds_and_is_signed(tmp_path: Path, capsys: Capture) -> None:
    answer = run(capsys, put(tmp_path, export()), "--key", KEY, "--json")
    assert answer.code == 0
    assert answer.json == {
        "valid": True,
        "level": "signed",
        "log": LOG,
        "origin": LOG,
        "completeness": {"first": 0, "from": 0, "to": SIZE, "to_end": True, "part": False},
        "claimed_keys": [KEY],
        "signed_by": {"key": b64(SIGNER.public), "how": "pinned"},
        "entries": SIZE,
        "findings": [],
        "more_findings": 0,
        "unproven_tail": 0,
        "not_recomputable": None,
        "not_derived": [],
        "documents": {"checked": True, "found": 1, "gone": []},
        "not_compared": [],
        "spools_followed": True,
        "erased": {"entries": 0, "behind_the_file": 0, "unproven": 0},
        "freshness": {
            "last_entry": "2026-01-01T00:00:00.031000Z",
            "made_at": "2026-01-01T00:30:00.000000Z",
            "silent_at_end": False,
            "silences": 0,
            "longest": [],
        },
    }


@pytest.mark.parametrize("form", ["public key", "file", "other name"])
def test_a_key_is_matched_by_its_bytes(form: str, tmp_path: Path, capsys: Capture) -> None:
    public = base64.b64encode(SIGNER.public).decode()
    key = {"public key": public, "file": put(tmp_path, f"{KEY}\n".encode(), "log.pub")}.get(form)
    if key is None:
        from policies.trail.proofs.signed_note import ED25519, VerifierKey

        key = VerifierKey("another", ED25519, SIGNER.public).text()
    assert run(capsys, put(tmp_path, export()), "--key", key, "--json").json["level"] == "signed"


@pytest.mark.parametrize("form", ["seed", "log.key", "rotated log.key", "PEM"])
def test_a_private_key_is_recognised_and_never_shown(
    form: str, tmp_path: Path, capsys: Capture
) -> None:
    seed = base64.b64encode(SIGNER.seed()).decode()
    texts = {
        "seed": seed,
        "log.key": f"{seed}\n",
        "rotated log.key": f'{seed}\n{{"from":"a","signature":"b","to":"c"}}\n',
        "PEM": f"-----BEGIN PRIVATE KEY-----\n{seed}\n-----END PRIVATE KEY-----\n",
    }
    key = texts[form] if form == "seed" else put(tmp_path, texts[form].encode(), "log.key")
    answer = run(capsys, put(tmp_path, export()), "--key", key)
    assert answer.code == 2
    assert "the key given is the log's private key" in answer.err
    assert "`sluice log-key`" in answer.err
    assert seed not in answer.out + answer.err


def test_without_a_key_the_result_is_unsigned_and_names_the_claimed_ones(
    tmp_path: Path, capsys: Capture
) -> None:
    answer = run(capsys, put(tmp_path, export()))
    assert answer.code == 0
    assert "unsigned" in answer.out
    assert KEY in answer.out


def test_another_key_is_a_finding(tmp_path: Path, capsys: Capture) -> None:
    key = base64.b64encode(STRANGER.public).decode()
    answer = run(capsys, put(tmp_path, export()), "--key", key, "--json")
    assert answer.code == 1
    assert answer.reasons == ["signature_missing", "checkpoint_missing"]
    assert answer.json["level"] == "unsigned"
    # Perhaps an export of before a rotation: it is said plainly, and both keys may be pinned.
    (message, _) = (each["message"] for each in answer.json["findings"])
    assert f"is signed by another key than the pinned: by {b64(SIGNER.public)}, which" in message
    path = put(tmp_path, export())
    assert run(capsys, path, "--key", key, "--key", b64(SIGNER.public), "--json").code == 0


def test_a_checkpoint_by_a_key_that_the_file_does_not_claim_is_a_finding(
    tmp_path: Path, capsys: Capture
) -> None:
    path = put(tmp_path, export(notes={SIZE: note(SIZE, signer=STRANGER)}))
    answer = run(capsys, path, "--json")
    assert (answer.code, answer.reasons) == (1, ["signature_missing"])
    assert answer.json["unproven_tail"] == SIZE


def test_a_rotated_key_is_followed_both_ways(tmp_path: Path, capsys: Capture) -> None:
    successor, keys = rotated_keys()
    notes = {10: note(10), SIZE: note(SIZE, signer=successor)}
    path = put(tmp_path, export(notes=notes, keys=keys))
    first = run(capsys, path, "--key", KEY)
    assert first.code == 0
    assert "endorsed by the pinned key" in first.out
    later = run(capsys, path, "--key", base64.b64encode(successor.public).decode())
    assert later.code == 0
    assert "1 older checkpoints are signed by a key that a pinned key succeeded" in later.out
    # A former key may be stolen, so what it alone signed proves nothing.
    old = put(tmp_path, export(notes={SIZE: note(SIZE)}, keys=keys))
    only_former = run(capsys, old, "--key", base64.b64encode(successor.public).decode(), "--json")
    assert only_former.reasons == ["checkpoint_missing"]


def test_a_witness_raises_the_level(tmp_path: Path, capsys: Capture) -> None:
    path = put(tmp_path, export(notes={SIZE: witnessed(note(SIZE))}))
    answer = run(capsys, path, "--key", KEY, "--witness", WITNESS_KEY, "--json")
    assert (answer.code, answer.json["level"]) == (0, "witnessed")
    without = run(capsys, put(tmp_path, export()), "--key", KEY, "--witness", WITNESS_KEY, "--json")
    assert (without.code, without.reasons) == (1, ["quorum_missing"])
    assert without.json["level"] == "signed"


@pytest.mark.parametrize(
    ("notes", "reasons"),
    [
        ({SIZE: witnessed(note(SIZE))}, []),
        ({SIZE: note(SIZE)}, ["quorum_missing"]),
        ({}, ["quorum_missing"]),
    ],
    ids=["cosigned", "not cosigned", "no checkpoint"],
)
def test_a_witness_can_be_required_without_a_key(
    notes: dict[int, str], reasons: list[str], tmp_path: Path, capsys: Capture
) -> None:
    answer = run(capsys, put(tmp_path, export(notes=notes)), "--witness", WITNESS_KEY, "--json")
    assert (answer.code, answer.reasons) == (int(bool(reasons)), reasons)
    assert answer.json["level"] == "unsigned"


def test_a_tail_that_no_checkpoint_covers_is_counted(tmp_path: Path, capsys: Capture) -> None:
    path = put(tmp_path, export(notes={10: note(10)}))
    answer = run(capsys, path, "--key", KEY, "--json")
    assert (answer.code, answer.json["unproven_tail"]) == (0, SIZE - 10)
    assert f"the last {SIZE - 10} entries are covered by no checkpoint" in run(capsys, path).out


# --------------------------------------------------------------------------------------- parts


@pytest.mark.parametrize("first", [1, 7, 8, 20, SIZE - 1])
def test_a_part_is_proven_by_its_frontier_and_last_entry(
    first: int, tmp_path: Path, capsys: Capture
) -> None:
    for last in range(first + 1, SIZE, 5):
        path = put(tmp_path, export(ROWS[first:last], first=first, tail=note(SIZE)))
        answer = run(capsys, path, "--key", KEY, "--json")
        assert (answer.code, answer.json["entries"]) == (0, last - first), answer.out
        assert answer.json["unproven_tail"] == 0


def test_a_part_of_another_log_is_found(tmp_path: Path, capsys: Capture) -> None:
    tree = tree_of(ROWS[:7])
    tree.hashes[0] = bytes(32)
    path = put(tmp_path, export(ROWS[7:20], first=7, tail=note(SIZE), tree=tree))
    assert run(capsys, path, "--json").reasons == ["root_mismatch"]
    path = put(tmp_path, export(ROWS[7:], first=7, tree=tree))
    assert run(capsys, path, "--json").reasons == ["root_mismatch"]


# -------------------------------------------------------------------------- notes from outside


def test_a_checkpoint_from_outside_must_be_contained(tmp_path: Path, capsys: Capture) -> None:
    path = put(tmp_path, export(ROWS[:20]))
    for size, code, reasons in ((10, 0, []), (20, 0, []), (SIZE, 1, ["log_behind_checkpoint"])):
        known = put(tmp_path, note(size).encode(), "note")
        answer = run(capsys, path, "--key", KEY, "--checkpoint", known, "--json")
        assert (answer.code, answer.reasons) == (code, reasons)
    other = [*ROWS[:4], ROWS[4]._replace(hash=bytes(32)), *ROWS[5:]]
    fork = put(tmp_path, note(10, other).encode(), "fork")
    answer = run(capsys, path, "--key", KEY, "--checkpoint", fork, "--json")
    assert answer.reasons == ["root_mismatch"]


def test_a_checkpoint_that_can_t_be_compared_is_reported(tmp_path: Path, capsys: Capture) -> None:
    # The tree of 22 entries is known by its subtrees of 16, 4 and 2.
    for oldest, why in ((22, "lies inside the purged prefix"), (0, "lies before this part")):
        rows = purged_rows(22) if oldest else ROWS
        notes = {len(rows): note(len(rows), rows)}
        path = put(tmp_path, export(rows[22:], first=22, oldest=oldest, notes=notes))
        for size, code in ((0, 0), (16, 0), (20, 0), (22, 0), (21, 2), (8, 2), (25, 0)):
            known = put(tmp_path, note(size).encode(), "note")
            answer = run(capsys, path, "--key", KEY, "--checkpoint", known, "--json")
            assert (answer.code, answer.json["valid"]) == (code, True), (size, answer.out)
            assert [each["size"] for each in answer.json["not_compared"]] == [size] * (code == 2)
        shown = run(
            capsys, path, "--key", KEY, "--checkpoint", put(tmp_path, note(8).encode(), "n")
        )
        assert shown.code == 2
        assert shown.out.startswith("INCOMPLETE: ")
        assert f"the checkpoint given, of 8 entries, {why}" in shown.out
        other = [*ROWS[:4], ROWS[4]._replace(hash=bytes(32)), *ROWS[5:]]
        for size in (16, 20, 22):
            fork = put(tmp_path, note(size, other).encode(), "fork")
            answer = run(capsys, path, "--key", KEY, "--checkpoint", fork, "--json")
            assert (answer.code, answer.reasons) == (1, ["root_mismatch"])
    part = put(tmp_path, export(ROWS[:20], tail=note(SIZE)))
    known = put(tmp_path, note(25).encode(), "note")
    assert run(capsys, part, "--checkpoint", known).code == 2


def test_a_true_part_and_a_later_checkpoint_can_t_be_compared(
    tmp_path: Path, capsys: Capture
) -> None:
    # The log had 20 or 24 entries when the parts were made, and 30 when the checkpoint was.
    later = put(tmp_path, note(30).encode(), "note")
    parts = {
        "its end is proven": export(ROWS[:20], tail=note(24)),
        "cut at a checkpoint": export(ROWS[:20], notes={20: note(20)}, tail=note(24)),
        "from the middle to the log's end": export(ROWS[8:20], first=8),
        "from the middle": export(ROWS[8:20], first=8, tail=note(24)),
    }
    for name, part in parts.items():
        answer = run(capsys, put(tmp_path, part), "--key", KEY, "--checkpoint", later, "--json")
        assert (answer.code, answer.reasons) == (2, []), name
        why = {"size": 30, "why": "lies behind this part of the log"}
        assert answer.json["not_compared"] == [why], name
        shown = run(capsys, put(tmp_path, part), "--key", KEY, "--checkpoint", later)
        assert shown.out.startswith("INCOMPLETE: "), name
    # A whole log, and one whose beginning was purged, without the entry that says so.
    for oldest, uncovered in ((0, []), (8, ["purge_uncovered"])):
        whole = export(ROWS[oldest:20], first=oldest, oldest=oldest)
        answer = run(capsys, put(tmp_path, whole), "--key", KEY, "--checkpoint", later, "--json")
        assert (answer.code, answer.reasons) == (1, [*uncovered, "log_behind_checkpoint"])


def test_the_json_names_what_the_file_covers_and_who_signed_it(
    tmp_path: Path, capsys: Capture
) -> None:
    path = put(tmp_path, export(ROWS[8:20], first=8, oldest=3, tail=note(24)))
    public = b64(SIGNER.public)
    said = run(capsys, path, "--json").json
    assert (said["log"], said["origin"]) == (LOG, LOG)
    covers = {"first": 3, "from": 8, "to": 20, "to_end": False, "part": False}
    assert said["completeness"] == covers
    assert said["claimed_keys"] == [KEY]
    assert said["signed_by"] == {"key": public, "how": "claimed, not pinned"}
    said = run(capsys, path, "--key", KEY, "--json").json
    assert said["signed_by"] == {"key": public, "how": "pinned"}
    bare = run(capsys, put(tmp_path, export(ROWS[:20], notes={})), "--json").json
    assert (bare["signed_by"], bare["completeness"]["to_end"]) == (None, True)


def test_a_checkpoint_from_before_an_incarnation_is_reported(
    tmp_path: Path, capsys: Capture
) -> None:
    path = put(tmp_path, export(origin="default#1"))
    known = put(tmp_path, note(10).encode(), "note")
    answer = run(capsys, path, "--checkpoint", known, "--json")
    assert answer.reasons == ["incarnation"]


# -------------------------------------------------------------------------------------- damage


def drop(at: int) -> Callable[[list[StoredRow]], None]:
    return lambda rows: rows.__delitem__(at)


def rewrite(at: int, old: bytes, new: bytes) -> Callable[[list[StoredRow]], None]:
    def change(rows: list[StoredRow]) -> None:
        assert old in rows[at].entry
        rows[at] = rows[at]._replace(entry=rows[at].entry.replace(old, new, 1))

    return change


def openings(at: int, new: bytes) -> Callable[[list[StoredRow]], None]:
    return lambda rows: rows.__setitem__(at, rows[at]._replace(openings=new))


DAMAGES = {
    "an entry changed": (rewrite(5, b"DENY", b"DONT"), "chain_broken", 6),
    "not canonical": (rewrite(5, b'{"cm"', b'{ "cm"'), "not_canonical", 5),
    "not JSON": (rewrite(5, b'{"cm"', b'{"cm'), "not_an_entry", 5),
    "an entry removed": (drop(5), "entries_missing", 5),
    "the first removed": (drop(0), "entries_missing", 0),
    "an entry twice": (lambda rows: rows.insert(5, rows[5]), "wrong_seq", 6),
    "two swapped": (lambda rows: rows.insert(5, rows.pop(6)), "entries_missing", 5),
    "an opening removed": (openings(3, b"{}"), "opening_missing", 3),
    "openings of another": (openings(3, ROWS[0].openings or b""), "opening_mismatch", 3),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_each_damage_is_named(name: str, jobs: str, tmp_path: Path, capsys: Capture) -> None:
    change, reason, seq = DAMAGES[name]
    rows = list(ROWS)
    change(rows)
    path = put(tmp_path, export(rows, notes={len(rows): note(SIZE)} if name == "" else {}))
    answer = run(capsys, path, "--json", "--jobs", jobs)
    assert answer.code == 1
    assert (answer.json["findings"][0]["reason"], answer.json["findings"][0]["seq"]) == (
        reason,
        seq,
    )
    assert answer.reasons == [reason]


def test_a_changed_last_entry_is_found_by_the_checkpoint(tmp_path: Path, capsys: Capture) -> None:
    rows = list(ROWS)
    rewrite(SIZE - 1, b'"decision"', b'"decisiom"')(rows)
    answer = run(capsys, put(tmp_path, export(rows)), "--json")
    assert answer.reasons == ["root_mismatch"]
    assert answer.json["findings"][0]["seq"] == SIZE - 1


def test_a_repeated_id_is_named(tmp_path: Path, capsys: Capture) -> None:
    from tests.policies.world import Log, decided

    log = Log()
    for seed in (1, 2, 1, 3):
        log.direct(decided(seed=seed))
    path = put(tmp_path, export(log.rows, notes={}))
    answer = run(capsys, path, "--json")
    assert [(each["seq"], each["reason"]) for each in answer.json["findings"]] == [
        (2, "duplicate_id")
    ]
    assert "event-1" in answer.json["findings"][0]["message"]


def test_a_broken_chain_names_both_entries_that_may_have_been_changed(
    tmp_path: Path, capsys: Capture
) -> None:
    rows = list(ROWS)
    rewrite(5, b"DENY", b"DONT")(rows)
    path = put(tmp_path, export(rows, notes={}))
    out = run(capsys, path).out
    both = "entry 5, or the `prev` of 6, was changed: "
    assert f"chain_broken: {both}seq 6: `prev` is not the hash of the entry before" in out
    assert f"integrity     BROKEN: {both}" in out
    shown = out[out.index("where the chain breaks, `before` or `here`:") :].splitlines()[1:4]
    assert [line.split()[0] for line in shown] == ["before", "here", "after"]
    assert [line.split()[2] for line in shown] == ["5", "6", "7"]
    # Programs read the place and the message as ever.
    assert run(capsys, path, "--json").json["findings"] == [
        {
            "seq": 6,
            "reason": "chain_broken",
            "message": "seq 6: `prev` is not the hash of the entry before",
        }
    ]


def test_damage_of_the_first_entry_names_no_entry_before_it(
    tmp_path: Path, capsys: Capture
) -> None:
    rows = list(ROWS)
    rewrite(0, b'"prev":""', b'"prev":"' + b"A" * 43 + b'="')(rows)
    out = run(capsys, put(tmp_path, export(rows, notes={}))).out
    assert "chain_broken: the `prev` of entry 0 was changed: seq 0: " in out


# -------------------------------------------------------------------------------------- erasure


def test_a_redact_entry_excuses_missing_openings(tmp_path: Path, capsys: Capture) -> None:
    from policies.ground.canonical import encode
    from policies.trail.record import make_record
    from tests.policies.trail.walk.world import mixed_log

    for events, reasons in (([[3, 3]], []), ([[0, 2], [4, 9]], ["opening_missing"])):
        log = mixed_log()
        pub = {"by": "key_1", "reason": "asked", "events": events}
        log.direct(make_record("redact", "redact-1", encode(pub)))
        log.rows[3] = log.rows[3]._replace(openings=b"{}")
        answer = run(capsys, put(tmp_path, export(log.rows, notes={})), "--json")
        assert answer.reasons == reasons


@pytest.mark.parametrize("proven", [True, False])
def test_an_erasure_behind_a_part_excuses_missing_openings(
    proven: bool, tmp_path: Path, capsys: Capture
) -> None:
    from policies.ground.canonical import encode
    from policies.trail.record import make_record
    from tests.policies.trail.walk.world import mixed_log

    log = mixed_log()
    pub = {"by": "key_1", "reason": "asked", "events": [[3, 3]]}
    log.direct(make_record("redact", "redact-1", encode(pub)))
    rows = [*log.rows[:3], log.rows[3]._replace(openings=b"{}"), *log.rows[4:10]]
    proof = tree_proofs.inclusion_proof(SIZE, SIZE + 1, node_of(log.rows)) if proven else None
    erasure = ErasureLine(log.rows[SIZE].entry.decode(), proof)
    tail = note(SIZE + 1, log.rows) if proven else None
    notes = None if proven else {10: note(10)}
    part = export(rows, notes=notes, tail=tail, whole=log.rows, erasures=[erasure])
    answer = run(capsys, put(tmp_path, part), "--key", KEY, "--json")
    assert (answer.code, answer.json["level"]) == (0, "signed"), answer.out
    counted = {"entries": 1, "behind_the_file": 1, "unproven": int(not proven)}
    assert answer.json["erased"] == counted
    assert ("no checkpoint covers yet" in run(capsys, put(tmp_path, part)).out) == (not proven)
    part = export(rows, notes=notes, tail=tail, whole=log.rows)
    answer = run(capsys, put(tmp_path, part), "--key", KEY, "--json")
    assert answer.reasons == ["opening_missing"]


# ------------------------------------------------------------------------------------- the file


def test_a_file_that_ends_within_or_between_lines_is_reported(
    tmp_path: Path, capsys: Capture
) -> None:
    whole = export(ROWS[:2])
    path = tmp_path / "log.jsonl"
    ends = [at + 1 for at, byte in enumerate(whole[:-1]) if byte == ord("\n")]
    for size in sorted({*ends, *(each - 1 for each in ends), *range(0, len(whole), 67)}):
        path.write_bytes(whole[:size])
        answer = run(capsys, str(path), "--json")
        if size < ends[0]:
            assert (answer.code, answer.out) == (2, "")
            assert "is not an export of a log" in answer.err
        else:
            assert (answer.code, answer.reasons) == (1, ["file_truncated"]), size
    path.write_bytes(whole[:-1])
    assert run(capsys, str(path), "--json").reasons == ["file_truncated"]


@pytest.mark.deep(stands_in="test_a_file_that_ends_within_or_between_lines_is_reported")
def test_every_truncation_is_reported(tmp_path: Path, capsys: Capture) -> None:
    whole = export(ROWS[:2])
    path = tmp_path / "log.jsonl"
    header = whole.index(b"\n")
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        answer = run(capsys, str(path), "--json")
        if size <= header:
            assert (answer.code, answer.out) == (2, "")
            assert "is not an export of a log" in answer.err
        else:
            assert answer.code == 1
            assert answer.reasons == ["file_truncated"]
    path.write_bytes(whole)
    assert run(capsys, str(path), "--json").code == 0


def test_every_truncation_of_gzip_is_reported(tmp_path: Path, capsys: Capture) -> None:
    whole = gzip.compress(export(ROWS[:4]))
    path = tmp_path / "log.jsonl.gz"
    for size in range(0, len(whole), 17):
        path.write_bytes(whole[:size])
        answer = run(capsys, str(path))
        assert answer.code in (1, 2), size
        assert answer.code == 2 or "file_truncated" in answer.out
    path.write_bytes(whole)
    assert run(capsys, str(path)).code == 0


def test_damaged_gzip_is_reported(tmp_path: Path, capsys: Capture) -> None:
    whole = bytearray(gzip.compress(export()))
    whole[len(whole) // 2] ^= 0xFF
    answer = run(capsys, put(tmp_path, bytes(whole)))
    assert answer.code in (1, 2)


def test_zstd_is_read_where_the_library_is(tmp_path: Path, capsys: Capture) -> None:
    zstandard = pytest.importorskip("zstandard")
    content = zstandard.ZstdCompressor().compress(export())
    assert run(capsys, put(tmp_path, content), "--key", KEY, "--json").code == 0
    answer = run(capsys, put(tmp_path, content[: len(content) // 2]), "--json")
    assert answer.code in (1, 2)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'{"end":true', b'{"end":tru', "file_malformed"),
        (b'"entries":', b'"entries":1', "file_malformed"),
        (b'"sha256":"', b'"sha256":"0', "file_digest_mismatch"),
        (b'{"checkpoint":"', b'{"checkpoint":"x', "checkpoint_unreadable"),
        (b'{"checkpoint":', b'{"other":', "file_malformed"),
    ],
)
def test_a_damaged_line_is_reported(
    old: bytes, new: bytes, reason: str, tmp_path: Path, capsys: Capture
) -> None:
    head, found, tail = export().rpartition(old)
    assert found
    answer = run(capsys, put(tmp_path, head + new + tail), "--json")
    assert answer.code == 1
    assert answer.reasons[0] == reason


def test_lines_after_the_end_are_reported(tmp_path: Path, capsys: Capture) -> None:
    answer = run(capsys, put(tmp_path, export() + b'{"checkpoint":"x"}\n'), "--json")
    assert answer.reasons == ["file_malformed"]


HOSTILE = {
    "empty": b"",
    "another file": b"%PDF-1.7\n",
    "a huge first line": b"x" * (20 * 2**20),
    "a huge header": b'{"format":"sluice-log/1","keys":[' + b"[]," * (5 * 2**20) + b"[]]}\n",
    "deeply nested": b"[" * 2**20 + b"\n",
    "a line feed alone": b"\n",
    "gzip of a gzip": gzip.compress(gzip.compress(b"x")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_not_an_export_is_refused(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    answer = run(capsys, put(tmp_path, HOSTILE[name]))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("sluice verify: ")
    assert len(answer.err) < 500


@pytest.mark.parametrize(
    "line",
    [b"x" * (18 * 2**20), b'{"entry":' + b"[" * 2**20 + b',"openings":{}}',
     b'{"entry":,"openings":}', b"\0" * 1000, b'{"entry":{},"openings":{}}', b"[" * 5000],
    ids=["huge", "deep", "nothing", "zeros", "empty", "brackets"],
)  # fmt: skip
def test_a_hostile_line_is_a_finding(line: bytes, tmp_path: Path, capsys: Capture) -> None:
    whole = export()
    at = whole.index(b"\n") + 1
    for content in (whole[:at] + line + b"\n" + whole[at:], whole[:at] + line):
        answer = run(capsys, put(tmp_path, content), "--json")
        assert answer.code == 1
        assert not answer.err


def test_a_missing_file_is_refused(tmp_path: Path, capsys: Capture) -> None:
    answer = run(capsys, str(tmp_path / "none"))
    assert answer.code == 2
    assert "No such file" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [[], ["x", "--url", "http://x"], ["x", "--jobs", "0"], ["x", "--key", "nokey"],
     ["x", "--witness", KEY], ["x", "--quorum", "1"], ["x", "--store", "file:///x"],
     ["--url", "http://x"], ["x", "--checkpoint", "missing"]],
)  # fmt: skip
def test_unusable_arguments_of_verify_are_refused_with_a_message(
    arguments: list[str], capsys: Capture
) -> None:
    answer = run(capsys, *arguments)
    assert answer.code == 2
    assert "sluice verify" in answer.err


def test_the_findings_of_a_file_are_json(tmp_path: Path, capsys: Capture) -> None:
    rows = list(ROWS)
    drop(5)(rows)
    found = json.loads(run(capsys, put(tmp_path, export(rows, notes={})), "--json").out)
    assert found["findings"] == [
        {
            "seq": 5,
            "reason": "entries_missing",
            "message": "seq 5: 1 entry before entry 6 is missing",
        }
    ]
