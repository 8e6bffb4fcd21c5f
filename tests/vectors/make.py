"""New golden vectors: `python -m tests.vectors.make NAME...` writes `NAME.json`, once.

It refuses to overwrite: what is written here is what every log in the world was hashed by. A change
of the format is a new file beside the old one, and a new `v`. No test runs this.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from policies.ground.canonical import b64, encode, rfc3339
from policies.ground.ids import prefixed, uuid7
from policies.ground.keys import key_digest, make_key
from policies.ground.signing import Signer, receipt_message
from policies.sets.policy_set import role_document
from policies.trail.change import (
    MAX_SHOWN,
    Hold,
    ObjectChange,
    PublishedAs,
    change_record,
    hold_placed,
    hold_released,
)
from policies.trail.checkpoint import Checkpoint, key_id, sign
from policies.trail.commitment import commitment, field_salt
from policies.trail.core import REJECTED, record_hash
from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.file import LogFileWriter
from policies.trail.log_file.lines import (
    CheckpointLine,
    EntryLine,
    ErasureLine,
    FrontierLine,
    HeaderLine,
    Line,
    PolicyLine,
    ProofLine,
)
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs import signed_note, tree_proofs
from policies.trail.proofs.signed_note import COSIGNATURE, ED25519, Note, VerifierKey
from policies.trail.proofs.tree_proofs import TlogProof
from policies.trail.removal import redact_record
from tests.policies.world import (
    POLICY,
    Log,
    candidate_log,
    decided,
    every_kind,
    judged_log,
    log_core,
    masked_log,
    statement_log,
)
from tests.policies.world import salt as salt_of
from tests.vectors.make_cited import cited
from tests.vectors.make_files import (
    asked_part,
    continued,
    monitor_state,
    purged_part,
    rare_lines,
    report,
)

HERE = Path(__file__).parent
PROOF_SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 256, 257)
TREE_SIZES = (*range(10), 255, 256)


def encodings() -> Any:
    values: dict[str, object] = {
        "null": None,
        "booleans": [True, False],
        "integers": [0, -1, 2**53 - 1, -(2**53 - 1)],
        "empty": [{}, [], ""],
        "keys are sorted by byte": {"b": 1, "a": 2, "a.b": 3, "a-b": 4, "a_b": 5, "a:b": 6, "0": 7},
        "keys are sorted at every depth": {"b": {"d": 1, "c": 2}, "a": [{"f": 1, "e": 2}]},
        "quote, backslash, slash": 'a"b\\c/d',
        "control characters": "\b\t\n\f\r\x00\x01\x1f",
        "DEL and C1 stand as they are": "\x7f\x80\x9f",
        "line separators stand as they are": "\u2028\u2029",
        "no escape beyond what must be": "<script>&'é",
        "no normalisation": ["caf\u00e9", "cafe\u0301"],
        "the last of the first plane and beyond": "\ud7ff\ue000\uffff\U00010000\U0010ffff",
    }
    return [
        {"name": name, "value": value, "utf8": encode(value).hex()}
        for name, value in values.items()
    ]


def commitments() -> Any:
    record_salt = bytes(range(32))
    values = {
        "user_id": "ann@example.com",
        "query": 'who signs "Müller" \\ 😀?\n',
        "detail": '{"to":"bob","score":0.5}',
        "detail.note": "",
        "long": "x" * 257,
    }
    made = []
    for path, value in values.items():
        salt = field_salt(record_salt, path)
        cm = commitment(salt, path, encode(value))
        made.append({"path": path, "value": value, "salt": salt.hex(), "commitment": cm.hex()})
    return {"record_salt": record_salt.hex(), "fields": made}


def log() -> Any:
    return written(every_kind())


def masked() -> Any:
    return written(masked_log())


def candidates() -> Any:
    return written(candidate_log())


def statements() -> Any:
    return written(statement_log())


def judged() -> Any:
    return written(judged_log())


def written(made: Log) -> Any:
    entries = []
    for row in made.rows:
        assert row.hash is not None
        assert row.openings is not None
        entry = {"utf8": row.entry.decode(), "leaf": row.hash.hex()}
        if "src" in orjson.loads(row.entry):
            told = orjson.loads(row.entry)
            if told["kind"] != REJECTED:
                entry["core"] = log_core(row.entry).decode()
            entry["core_hash"] = record_hash(told).hex()
        entries.append(entry | {"openings": orjson.loads(row.openings)})
    head = made.head()
    return {
        "log": made.log,
        "entries": entries,
        "root": made.tree.root().hex(),
        "head": [head.size, head.last_leaf.hex(), head.last_ts, head.frontier.hex()],
    }


def tree() -> Any:
    frontier, made = Frontier(), []
    for size in range(TREE_SIZES[-1] + 1):
        if size in TREE_SIZES:
            hashes = [each.hex() for each in frontier.hashes]
            made.append({"size": size, "frontier": hashes, "root": frontier.root().hex()})
        frontier.append(hashlib.sha256(b"\0entry %d" % size).digest())
    return {"leaf": "SHA-256(0x00 || 'entry ' || n in decimal digits)", "trees": made}


def ids() -> Any:
    entropy = hashlib.sha256(b"entropy").digest()
    times = (0, 1_645_557_742_000_000, 1_767_225_600_123_456, (2**48 - 1) * 1000)
    return {
        "entropy": entropy.hex(),
        "uuid7": [{"micros": at, "id": uuid7(at, entropy)} for at in times],
        "prefixed": [
            {"entropy": each.hex(), "id": prefixed("pol_", each)}
            for each in (bytes(16), bytes([0] * 15 + [61]), entropy[:16], b"\xff" * 16)
        ],
        "times": [
            {"micros": at, "rfc3339": rfc3339(at)}
            for at in (-62_135_596_800_000_000, -1, *times[:3], 253_402_300_799_999_999)
        ],
    }


def keys() -> Any:
    entropies = (bytes(32), hashlib.sha256(b"key").digest(), b"\xff" * 32)
    made = [(each.hex(), make_key(each)) for each in entropies]
    return [{"entropy": e, "key": key, "sha256": key_digest(key).hex()} for e, key in made]


def receipt() -> Any:
    signer = Signer(bytes(range(32)))
    message = receipt_message('te"nant', "sidecar-1", "i1", 41, bytes(range(32)))
    return {
        "seed": signer.seed().hex(),
        "public": signer.public.hex(),
        "tenant": 'te"nant',
        "source": "sidecar-1",
        "instance": "i1",
        "n": 41,
        "hash": b64(bytes(range(32))),
        "message": message.hex(),
        "signature": signer.sign(message).hex(),
    }


def checkpoint() -> Any:
    signer = Signer(bytes(range(32)))
    made = Checkpoint("sluice/epoch/default", 1000, bytes(range(32, 64)))
    return {
        "seed": signer.seed().hex(),
        "origin": made.origin,
        "size": made.size,
        "root": made.root.hex(),
        "key_id": key_id(made.origin, signer.public).hex(),
        "note": sign(made, signer),
    }


def proofs() -> Any:
    leaves = [hashlib.sha256(b"\0entry %d" % size).digest() for size in range(max(PROOF_SIZES))]

    def node(level: int, place: int) -> bytes:
        tree = Frontier()
        for leaf in leaves[place << level : (place + 1) << level]:
            tree.append(leaf)
        return tree.root()

    inclusions = [
        {
            "index": at,
            "size": size,
            "hashes": [x.hex() for x in tree_proofs.inclusion_proof(at, size, node)],
        }
        for size in PROOF_SIZES
        for at in sorted({0, size // 2, size - 1})
    ]
    consistencies = [
        {
            "from": old,
            "to": size,
            "hashes": [x.hex() for x in tree_proofs.consistency_proof(old, size, node)],
        }
        for size in PROOF_SIZES
        for old in sorted({1, (size + 1) // 2, size & -size, size})
    ]
    return {
        "leaf": "SHA-256(0x00 || 'entry ' || n in decimal digits)",
        "inclusion": inclusions,
        "consistency": consistencies,
    }


def cosigned() -> Any:
    made, at = every_kind(), 3
    leaves = [row.hash for row in made.rows if row.hash is not None]
    log, witness = Signer(bytes(range(32))), Signer(bytes(range(32, 64)))
    names = (made.log, "witness.example/one")
    keys = (
        VerifierKey(names[0], ED25519, log.public),
        VerifierKey(names[1], COSIGNATURE, witness.public),
    )
    text = Checkpoint(made.log, len(leaves), made.tree.root()).text()
    signed = signed_note.sign(text, names[0], log)
    line = signed_note.cosign(text, names[1], witness, 1_767_225_600)
    note = Note(text, (signed, line)).render()

    def node(level: int, place: int) -> bytes:
        tree = Frontier()
        for leaf in leaves[place << level : (place + 1) << level]:
            tree.append(leaf)
        return tree.root()

    hashes = tuple(tree_proofs.inclusion_proof(at, len(leaves), node))
    return {
        "log_seed": log.seed().hex(),
        "witness_seed": witness.seed().hex(),
        "verifier_keys": [key.text() for key in keys],
        "signed_at": 1_767_225_600,
        "cosigned_message": signed_note.cosigned_message(text, 1_767_225_600).decode(),
        "note": note,
        "entry": "number 3 of `log.json`",
        "proof": TlogProof(at, hashes, note, made.rows[at].entry).text(),
    }


def changes() -> Any:
    before = {"name": "reads", "allowed_sources": ["contracts"], "session_ttl_minutes": None}
    after = {**before, "allowed_sources": ["contracts", "payroll"], "session_ttl_minutes": 60}
    published = (PublishedAs("role/analyst", "ab" * 32, 7), PublishedAs("key/key_1", None, 8))
    cases = {
        "created": ObjectChange(None, before),
        "changed": ObjectChange(before, after, published=published),
        "deleted": ObjectChange(before, None),
        "hidden": ObjectChange(before, after, ("session_ttl_minutes",)),
        "too large to show": ObjectChange(None, {"name": "x" * MAX_SHOWN}),
        "no object": None,
    }
    return [
        {
            "name": name,
            "before": None if change is None else change.before,
            "after": None if change is None else change.after,
            "pub": change_record(
                "policy.updated", "pol_1", "key_9", {"version": 2}, record_id="c", change=change
            ).pub.decode(),
        }
        for name, change in cases.items()
    ]


def erasure() -> Any:
    return written(_erased_log())


def _erased_log() -> Log:
    """A log in which a session and a user were held, and three decisions and the user's hold were
    erased after the holds had been released."""
    made, by, why = Log(), "key_1", "litigation 2026-9"
    for number in range(4):
        made.direct(decided(seed=number))
    at = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
    session = Hold("hld_1", "session", "s_1", why, by, at + 4000)
    user = Hold("hld_2", "user", "ann@example.com", why, by, at + 5000)
    for number, hold in enumerate((session, user), 4):
        made.direct(hold_placed(hold, record_id=f"hold-{number}", salt=salt_of(number)))
    for number, hold in enumerate((session, user), 6):
        time = at + 1000 * number
        made.direct(hold_released(hold, by, time, "settled", record_id=f"release-{number}"))
    erased = (0, 1, 3, 5)
    made.direct(redact_record(by, "erasure request 2026-114", erased, record_id="redact-8"))
    for seq in erased:
        made.rows[seq] = made.rows[seq]._replace(openings=b"{}")
    return made


def log_file() -> Any:
    """A whole file and a part of the log of `log.json`. The part ends before the checkpoint."""
    made, signer = every_kind(), Signer(bytes(range(32)))
    size, first, until = len(made.rows), 3, len(made.rows) - 1
    leaves = [leaf_hash(row.entry) for row in made.rows]
    note = CheckpointLine(sign(Checkpoint(made.log, size, made.tree.root()), signer))
    entries = [EntryLine(row.entry, row.openings or b"{}") for row in made.rows]
    key = {"key": VerifierKey(made.log, ED25519, signer.public).text(), "endorsement": None}
    whole = HeaderLine(made.log, made.log, [key], 0, 0, size, True, "2026-01-02T00:00:00.000000Z")
    before = Frontier()
    for leaf in leaves[:first]:
        before.append(leaf)

    def node(level: int, place: int) -> bytes:
        tree = Frontier()
        for leaf in leaves[place << level : (place + 1) << level]:
            tree.append(leaf)
        return tree.root()

    document = PolicyLine(role_document([POLICY]) or b"")
    proof = ProofLine(tree_proofs.inclusion_proof(until - 1, size, node))
    part: list[Line] = [
        whole._replace(first=first, until=until, with_openings=False),
        FrontierLine(first, before.hashes),
        document,
        *(EntryLine(each.entry, None) for each in entries[first:until]),
        proof,
        note,
    ]
    return {
        "seed": signer.seed().hex(),
        "whole": _file([whole, document, *entries, note]),
        "part": _file(part),
    }


def erased_part() -> Any:
    """A part of the log of `erasure.json` that ends before its erasure."""
    made, signer, until = _erased_log(), Signer(bytes(range(32))), 6
    leaves = [leaf_hash(row.entry) for row in made.rows]
    size = len(leaves)
    key = {"key": VerifierKey(made.log, ED25519, signer.public).text(), "endorsement": None}

    def node(level: int, place: int) -> bytes:
        tree = Frontier()
        for leaf in leaves[place << level : (place + 1) << level]:
            tree.append(leaf)
        return tree.root()

    lines: list[Line] = [
        HeaderLine(made.log, made.log, [key], 0, 0, until, True, "2026-01-02T00:00:00.000000Z"),
        PolicyLine(role_document([POLICY]) or b""),
        *(EntryLine(row.entry, row.openings or b"{}") for row in made.rows[:until]),
        ProofLine(tree_proofs.inclusion_proof(until - 1, size, node)),
        CheckpointLine(sign(Checkpoint(made.log, size, made.tree.root()), signer)),
        ErasureLine(
            made.rows[-1].entry.decode(), tree_proofs.inclusion_proof(size - 1, size, node)
        ),
    ]
    return {"seed": signer.seed().hex(), "part": _file(lines)}


def _file(lines: list[Line]) -> str:
    file = LogFileWriter()
    parts = [file.joined(encode_line(each), isinstance(each, EntryLine)) for each in lines]
    return (b"".join(parts) + file.end()).decode()


MAKERS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        *(encodings, commitments, log, masked, tree, ids, keys, receipt, checkpoint),
        *(proofs, cosigned, changes, erasure, log_file, erased_part),
        *(continued, purged_part, asked_part, report, monitor_state, rare_lines),
        *(candidates, judged, cited, statements),
    )
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MAKERS]
    taken = [name for name in names if (HERE / f"{name}.json").exists()]
    if not names or unknown or taken:
        print(f"known are {', '.join(MAKERS)}; never overwritten: {taken}", file=sys.stderr)
        return 2
    for name in names:
        with (HERE / f"{name}.json").open("x", encoding="utf-8") as file:
            json.dump(MAKERS[name](), file, indent=1, ensure_ascii=True)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
