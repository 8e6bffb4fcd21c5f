"""The golden bytes of `tests/vectors`, each computed again without the code under test."""

import base64
import hashlib
import hmac
import json
import shutil
import subprocess
import sys
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from policies.ground.canonical import check, encode, micros, rfc3339
from policies.ground.ids import prefixed, uuid7
from policies.ground.keys import key_digest, make_key, well_formed
from policies.ground.signing import Signer, receipt_message, verify
from policies.trail.change import ObjectChange, PublishedAs, change_record
from policies.trail.checkpoint import Checkpoint, read, sign
from policies.trail.commitment import commitment, field_salt, opening_matches
from policies.trail.entry import StoredRow, index_of
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.spool_chain import core_hash
from policies.trail.verify import LogHead, Verifier
from tests.policies.world import (
    candidate_log,
    entry_from_core,
    every_kind,
    judged_log,
    masked_log,
    naive_root,
    statement_log,
)
from tests.vectors.make import MAKERS

VECTORS = Path(__file__).parents[1] / "vectors"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def vector(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_bytes())


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def stdlib(value: object) -> bytes:
    """Canonical bytes by the standard library's `json`, which agrees within the profile."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("each", vector("encodings"), ids=lambda each: each["name"])
def test_encodings_equal_the_golden_ones(each: Any) -> None:
    assert encode(each["value"]).hex() == each["utf8"]
    assert stdlib(each["value"]).hex() == each["utf8"]
    assert orjson.loads(bytes.fromhex(each["utf8"])) == each["value"]
    check(each["value"])


@pytest.mark.parametrize("each", vector("commitments")["fields"], ids=lambda each: each["path"])
def test_commitments_equal_the_golden_ones(each: Any) -> None:
    record_salt = bytes.fromhex(vector("commitments")["record_salt"])
    path, value = each["path"], encode(each["value"])
    salt = field_salt(record_salt, path)
    assert salt.hex() == each["salt"]
    assert commitment(salt, path, value).hex() == each["commitment"]
    by_hmac = hmac.digest(record_salt, b"audit/field-salt/v1\0" + path.encode(), "sha256")
    assert by_hmac.hex() == each["salt"]
    message = b"audit/field/v1\0" + u32(len(path)) + path.encode() + u32(len(value)) + value
    assert hmac.digest(by_hmac, message, "sha256").hex() == each["commitment"]


def test_masked_records_equal_the_golden_ones() -> None:
    log, made = vector("masked"), masked_log()
    assert [row.entry.decode() for row in made.rows] == [each["utf8"] for each in log["entries"]]
    told = [json.loads(each["utf8"]) for each in log["entries"]]
    assert all(entry["pub"]["masking"] is True for entry in told)
    assert [entry["masked"] for entry in told] == [
        [["query", "CARD"], ["user_id", "EMAIL"]],
        [["user_id", "EMAIL"]],
        [],
        [["detail", "EMAIL"]],
    ]
    for each, entry in zip(log["entries"], told, strict=True):
        assert each["leaf"] == hashlib.sha256(b"\0" + each["utf8"].encode()).hexdigest()
        assert all(
            opening_matches(entry["cm"], path, opening)
            for path, opening in each["openings"].items()
        )
        assert "ann@" not in str(each["openings"])


def test_decisions_of_candidates_are_recorded_like_the_golden_ones() -> None:
    log, made = vector("candidates"), candidate_log()
    assert [row.entry.decode() for row in made.rows] == [each["utf8"] for each in log["entries"]]
    for each in log["entries"]:
        assert each["leaf"] == hashlib.sha256(b"\0" + each["utf8"].encode()).hexdigest()
        assert stdlib(json.loads(each["utf8"])) == each["utf8"].encode()
        assert json.loads(each["utf8"])["pub"]["candidates"] == [
            {
                "check": "sensitivity",
                "decision": "DENY",
                "name": "strict",
                "policy_name": "no-low",
                "revision": 3,
            },
            {
                "decision": "ERROR",
                "name": "tomorrow",
                "policy_name": "evaluation_error",
                "revision": 5,
            },
        ]
    verifier = Verifier(log["log"])
    for row in made.rows:
        assert verifier.feed(row)
    assert verifier.finish(made.head()).valid


def test_decisions_about_what_statements_read_equal_the_golden_ones() -> None:
    log, made = vector("statements"), statement_log()
    assert [row.entry.decode() for row in made.rows] == [each["utf8"] for each in log["entries"]]
    told = [json.loads(each["utf8"]) for each in log["entries"]]
    for each, entry in zip(log["entries"], told, strict=True):
        assert each["leaf"] == hashlib.sha256(b"\0" + each["utf8"].encode()).hexdigest()
        assert stdlib(entry) == each["utf8"].encode()
        assert each["openings"].keys() == entry["cm"].keys()
        for path, opening in each["openings"].items():
            assert opening_matches(entry["cm"], path, opening)
    statements = [entry["pub"]["statement"] for entry in told]
    assert len({each["id"] for each in statements}) == 1
    assert [each.get("look") for each in statements] == ["bind", "held", "bind", None, "bind"]
    assert [each["openings"].get("parameters", [None, None])[1] for each in log["entries"]] == [
        '["bob@example.com",{"base64":"AAAABw=="},null]',
        '["bob@example.com",{"base64":"AAAABw=="},null]',
        '["[EMAIL]",{"bytes":4},null]',
        None,
        '[{"bytes":20000},{"bytes":20000},"a \\"text\\"\\n",""]',
    ]
    verifier = Verifier(log["log"])
    for row in made.rows:
        assert verifier.feed(row)
    assert verifier.finish(made.head()).valid


def test_refused_and_marked_records_equal_the_golden_ones() -> None:
    log, made = vector("judged"), judged_log()
    assert [row.entry.decode() for row in made.rows] == [each["utf8"] for each in log["entries"]]
    chains: dict[str, str] = {}
    for seq, each in enumerate(log["entries"]):
        entry = json.loads(each["utf8"])
        assert stdlib(entry) == each["utf8"].encode()
        assert each["leaf"] == hashlib.sha256(b"\0" + each["utf8"].encode()).hexdigest()
        instance, pub = entry["src"]["inst"], entry["pub"]
        # The next record continues the chain behind what was refused.
        assert entry["src"]["prev"] == chains.get(instance, "")
        core = {name: entry[name] for name in ("v", "kind", "eid", "src", "pub", "cm", "masked")}
        core = pub["core"] if entry["kind"] == "rejected_record" else core
        if core is not None:
            raw = stdlib(core)
            hashed = hashlib.sha256(b"audit/src/v1\0" + u32(len(raw)) + raw).digest()
            assert each["core_hash"] == hashed.hex()
        if entry["kind"] == "rejected_record":
            assert each["core_hash"] == base64.b64decode(pub["hash"]).hex()
            assert each["openings"] == entry["cm"] == {}
        chains[instance] = base64.b64encode(bytes.fromhex(each["core_hash"])).decode()
        doubtful = "time_doubtful" in entry.get("marks", ())
        listed = doubtful or entry["kind"] == "rejected_record"
        expected = entry["ts"] if listed else entry["src"]["t"]
        assert index_of(entry).ts == micros(expected), seq
    assert [json.loads(each["utf8"]).get("marks") for each in log["entries"]] == [
        *(None, None, ["time_doubtful"], ["agent_foreign", "time_doubtful"], ["agent_foreign"]),
        *(None, None),
    ]
    verifier = Verifier(log["log"])
    for row in made.rows:
        assert verifier.feed(row)
    assert verifier.finish(made.head()).valid


def test_the_log_equals_the_golden_one() -> None:
    log = vector("log")
    assert [row.entry.decode() for row in every_kind().rows] == [
        entry["utf8"] for entry in log["entries"]
    ]


def test_leaves_chain_and_root_of_the_log_equal_the_golden_ones() -> None:
    log, prev, leaves = vector("log"), "", []
    for seq, stored in enumerate(log["entries"]):
        raw = stored["utf8"].encode()
        entry = json.loads(raw)
        assert stdlib(entry) == raw
        assert (entry["seq"], entry["prev"], entry["log"]) == (seq, prev, log["log"])
        leaf = hashlib.sha256(b"\0" + raw).digest()
        assert leaf_hash(raw) == leaf
        assert stored["leaf"] == leaf.hex()
        prev = base64.b64encode(leaf).decode()
        leaves.append(leaf)
    assert naive_root(leaves).hex() == log["root"]
    assert log["head"][:2] == [len(leaves), leaves[-1].hex()]
    kinds = {json.loads(entry["utf8"])["kind"] for entry in log["entries"]}
    assert kinds == {
        "decision", "lineage", "change", "redact", "purge", "gap", "heartbeat", "incarnation",
    }  # fmt: skip


def test_cores_and_their_hashes_equal_the_golden_ones() -> None:
    sourced = [entry for entry in vector("log")["entries"] if "core" in entry]
    assert len(sourced) == 4
    for stored in sourced:
        core, entry = stored["core"].encode(), json.loads(stored["utf8"])
        members = {name: entry[name] for name in ("v", "kind", "eid", "src", "pub", "cm", "masked")}
        assert stdlib(members) == core
        expected = hashlib.sha256(b"audit/src/v1\0" + u32(len(core)) + core).digest()
        assert core_hash(core) == expected
        assert stored["core_hash"] == expected.hex()
        place = {name: entry[name] for name in ("log", "seq", "prev", "ts")}
        assert entry_from_core(json.loads(core), **place) == stored["utf8"].encode()


def test_openings_of_the_log_open_their_commitments() -> None:
    for stored in vector("log")["entries"]:
        cm = json.loads(stored["utf8"])["cm"]
        assert cm.keys() == stored["openings"].keys()
        for path, (salt, value) in stored["openings"].items():
            assert opening_matches(cm, path, [salt, value])
            message = b"audit/field/v1\0" + u32(len(path)) + path.encode()
            message += u32(len(stdlib(value))) + stdlib(value)
            expected = hmac.digest(base64.b64decode(salt), message, "sha256")
            assert base64.b64encode(expected).decode() == cm[path]


def test_the_log_verifies() -> None:
    log = vector("log")
    verifier = Verifier(log["log"])
    for seq, stored in enumerate(log["entries"]):
        raw = stored["utf8"].encode()
        assert verifier.feed(
            StoredRow(
                seq,
                raw,
                bytes.fromhex(stored["leaf"]),
                index_of(orjson.loads(raw)),
                encode(stored["openings"]),
            )
        )
    size, last, ts, frontier = log["head"]
    report = verifier.finish(LogHead(size, bytes.fromhex(last), ts, bytes.fromhex(frontier)))
    assert report.valid, report
    assert report.root_hash == log["root"]
    assert (report.total, report.events) == (12, 4)


def test_trees_equal_the_golden_ones() -> None:
    trees = {each["size"]: each for each in vector("tree")["trees"]}
    assert trees.keys() == {*range(10), 255, 256}
    leaves = [hashlib.sha256(b"\0entry %d" % n).digest() for n in range(256)]
    for size, stored in trees.items():
        frontier = Frontier()
        for leaf in leaves[:size]:
            frontier.append(leaf)
        assert [each.hex() for each in frontier.hashes] == stored["frontier"]
        assert frontier.root().hex() == stored["root"] == naive_root(leaves[:size]).hex()
        # Each hash of the frontier is the tree of its own stretch.
        start = 0
        for at in reversed(range(size.bit_length())):
            if size >> at & 1:
                subtree = naive_root(leaves[start : start + (1 << at)])
                assert subtree.hex() == stored["frontier"][(size >> at).bit_count() - 1]
                start += 1 << at


def test_ids_and_times_equal_the_golden_ones() -> None:
    ids = vector("ids")
    entropy = bytes.fromhex(ids["entropy"])
    for each in ids["uuid7"]:
        assert uuid7(each["micros"], entropy) == each["id"]
        parsed = UUID(each["id"])
        assert (parsed.version, parsed.int >> 80) == (7, each["micros"] // 1000)
    for each in ids["prefixed"]:
        raw = bytes.fromhex(each["entropy"])
        assert prefixed("pol_", raw) == each["id"]
        number = 0
        for digit in each["id"][4:]:
            number = number * 62 + ALPHABET.index(digit)
        assert number == int.from_bytes(raw, "big")
    for each in ids["times"]:
        assert rfc3339(each["micros"]) == each["rfc3339"]
        assert micros(each["rfc3339"]) == each["micros"]
        moment = datetime.fromisoformat(each["rfc3339"])
        assert moment.strftime("%H:%M:%S.%fZ") == each["rfc3339"][11:]


def test_keys_equal_the_golden_ones() -> None:
    for each in vector("keys"):
        key = make_key(bytes.fromhex(each["entropy"]))
        assert key == each["key"]
        assert well_formed(key)
        assert key_digest(key).hex() == each["sha256"] == hashlib.sha256(key.encode()).hexdigest()
        assert key.startswith("slc_")
        body, sum_ = 0, 0
        for digit in key[4:47]:
            body = body * 62 + ALPHABET.index(digit)
        for digit in key[47:]:
            sum_ = sum_ * 62 + ALPHABET.index(digit)
        assert body == int(each["entropy"], 16)
        assert sum_ == zlib.crc32(key[:47].encode())


def test_the_receipt_equals_the_golden_one() -> None:
    stored = vector("receipt")
    hash_ = base64.b64decode(stored["hash"])
    message = receipt_message(
        stored["tenant"], stored["source"], stored["instance"], stored["n"], hash_
    )
    assert message.hex() == stored["message"]
    names = {"tenant": "tenant", "source": "source", "inst": "instance", "n": "n", "hash": "hash"}
    fields = {name: stored[key] for name, key in names.items()}
    assert message == b"audit/receipt/v1\0" + stdlib(fields)
    signer = Signer(bytes.fromhex(stored["seed"]))
    assert signer.public.hex() == stored["public"]
    assert signer.sign(message).hex() == stored["signature"]
    by_hand = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(stored["seed"]))
    assert by_hand.sign(message).hex() == stored["signature"]
    assert verify(signer.public, bytes.fromhex(stored["signature"]), message)


def test_the_checkpoint_equals_the_golden_one() -> None:
    stored = vector("checkpoint")
    signer = Signer(bytes.fromhex(stored["seed"]))
    root = bytes.fromhex(stored["root"])
    made = Checkpoint(stored["origin"], stored["size"], root)
    assert sign(made, signer) == stored["note"]
    assert read(stored["note"], stored["origin"], (signer.public,)) == made
    # By hand: C2SP `signed-note` and `tlog-checkpoint`.
    key = Ed25519PrivateKey.from_private_bytes(signer.seed())
    name = stored["origin"].encode()
    id_ = hashlib.sha256(name + b"\n\x01" + key.public_key().public_bytes_raw()).digest()[:4]
    assert id_.hex() == stored["key_id"]
    body = b"%b\n%d\n%b\n" % (name, stored["size"], base64.b64encode(root))
    signature = base64.b64encode(id_ + key.sign(body))
    assert stored["note"].encode() == body + b"\n\xe2\x80\x94 %b %b\n" % (name, signature)


def test_a_vector_is_never_overwritten(tmp_path: Path) -> None:
    root = VECTORS.parents[1]
    before = {path.name: path.read_bytes() for path in VECTORS.glob("*.json")}
    made = subprocess.run(
        [sys.executable, "-m", "tests.vectors.make", *(Path(name).stem for name in before)],
        cwd=root,
        capture_output=True,
        check=False,
    )
    assert made.returncode == 2
    assert {path.name: path.read_bytes() for path in VECTORS.glob("*.json")} == before


@pytest.mark.parametrize("name", MAKERS)
def test_the_code_makes_exactly_the_stored_vector(name: str) -> None:
    made = json.dumps(MAKERS[name](), indent=1, ensure_ascii=True) + "\n"
    assert made == (VECTORS / f"{name}.json").read_text()


@pytest.mark.deep(stands_in="test_the_code_makes_exactly_the_stored_vector")
def test_the_script_makes_exactly_the_stored_vectors(tmp_path: Path) -> None:
    root = VECTORS.parents[1]
    shutil.copytree(root / "policies", tmp_path / "policies")
    scripts = ("vectors/make.py", "vectors/make_cited.py", "vectors/make_files.py")
    for name in ("__init__.py", "policies/__init__.py", "policies/world.py", *scripts):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / "tests" / name, tmp_path / "tests" / name)
    names = sorted(path.name for path in VECTORS.glob("*.json"))
    subprocess.run(
        [sys.executable, "-m", "tests.vectors.make", *(Path(name).stem for name in names)],
        cwd=tmp_path,
        check=True,
    )
    for name in names:
        assert (tmp_path / "tests/vectors" / name).read_bytes() == (VECTORS / name).read_bytes()


def test_changes_equal_the_golden_ones() -> None:
    for case in vector("changes"):
        pub = json.loads(case["pub"])
        assert stdlib(pub) == case["pub"].encode()
        if case["name"] == "no object":
            assert pub.keys() == {"what", "target", "by", "detail"}
            continue
        for side in ("before", "after"):
            shown = case[side]
            digest = None if shown is None else hashlib.sha256(stdlib(shown)).hexdigest()
            assert pub[f"{side}_sha256"] == digest
        published = [PublishedAs(*each) for each in pub.get("published", ())]
        change = ObjectChange(case["before"], case["after"], pub.get("hidden", ()), published)
        made = change_record(
            pub["what"], pub["target"], pub["by"], pub["detail"], record_id="c", change=change
        )
        assert made.pub == case["pub"].encode()
