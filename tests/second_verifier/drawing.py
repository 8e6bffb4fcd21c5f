"""Draws logs from a seed: entries of every kind, from several sources, some of them erased, purged
or continued as another incarnation, and a file of all that is left, or of a part."""

from __future__ import annotations

import copy
import hmac
import json
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from tests.second_verifier import encoding
from tests.second_verifier.drafts import LOG, Draft
from tests.second_verifier.entry_rules import MARKS, core_hash, hash_of_core
from tests.second_verifier.signers import Signer, base64

WORDS = ("ann@example.com", "who signs?", 'Müller \\ "x"', "\u202egpj.exe", "", "😀\n\t\x01", "7")
KINDS = ("decision", "decision", "lineage", "change", "gap", "heartbeat", "incarnation")
SHIPPED = ("decision", "lineage", "gap", "heartbeat")
REJECTED = "rejected_record"
CITED = json.loads((Path(__file__).parents[1] / "vectors/cited.json").read_bytes())
"""Golden decisions, and the documents that they cite."""
DOCUMENTS = tuple(str(each).encode() for each in CITED["documents"])


def draw(random: Random) -> Draft:
    """A log that holds."""
    draft = Draft(signers=[Signer.numbered(each) for each in range(random.choice((1, 1, 2)))])
    for seq in range(random.randint(0, 24)):
        _append(draft, _entry(random.choice((*KINDS, REJECTED)), seq, random), random)
    if len(draft.entries) > 2:
        _redact(draft, random)
    size = len(draft.entries)
    if size > 4 and random.random() < 0.35:
        _purge(draft, random)
        size = len(draft.entries)
    draft.start, draft.stop = draft.kept, size
    draft.checkpoints = {at for at in range(1, size + 1) if random.random() < 0.15} | {size}
    if draft.kept and random.random() < 0.7:
        draft.checkpoints.add(draft.kept)
    if size > 4 and random.random() < 0.4:
        draft.start = random.randint(draft.kept, max(draft.kept, size // 2))
        draft.stop = random.randint(draft.start + 1, size)
        if draft.stop < size:
            draft.checkpoints -= set(range(draft.stop, size))
    draft.checkpoints -= {0}
    draft.with_openings = random.random() < 0.85
    draft.witnesses = [Signer.numbered(10 + each) for each in range(random.choice((0, 0, 1, 3)))]
    _cite(draft)
    chain_sources(draft)
    return draft


def smallest() -> Draft:
    """A small log that was purged and goes on as another incarnation, of which one decision is
    left, with the document that it cites."""
    random = Random(0)
    draft = Draft(signers=[Signer.numbered(0)])
    for seq, kind in enumerate(("heartbeat", "heartbeat", "decision")):
        _append(draft, _entry(kind, seq, random), random)
    draft.entries[-1]["pub"] |= copy.deepcopy(CITED["decisions"][0]["pub"])
    purge = {"count": 2, "cutoff": "2026-01-01T01:00:00.000000Z", "size": 2}
    accepted = {"cited": None, "number": 0, "origin": "", "reason": "restored"}
    for kind, pub in ("purge", purge), ("incarnation", accepted):
        entry = {"v": 1, "kind": kind, "eid": kind, "masked": [], "pub": pub, "cm": {}}
        _append(draft, entry, random)
    draft.kept = draft.start = 2
    draft.stop = len(draft.entries)
    draft.checkpoints = {2, draft.stop}
    _cite(draft)
    chain_sources(draft)
    return draft


def _entry(kind: str, seq: int, random: Random) -> dict[str, Any]:
    entry: dict[str, Any] = {"v": 1, "kind": kind, "eid": f"{kind}-{seq}", "masked": [], "cm": {}}
    entry["pub"] = {"number": random.randint(-5, 5), "text": random.choice(WORDS)}
    if kind == "decision":
        entry["pub"] |= copy.deepcopy(random.choice(CITED["decisions"])["pub"])
    if kind == "incarnation":
        entry["pub"] = _restored(random)
    if kind == REJECTED:
        entry["pub"] = _rejected(random)
    if kind == "change":
        entry["pub"] |= {"what": "settings.updated", "target": "users"}
    if kind == REJECTED or (kind in SHIPPED and random.random() < 0.6):
        entry["src"] = {"id": f"sidecar-{random.randint(1, 2)}", "inst": "i1"}
    if kind in SHIPPED and "src" in entry and random.random() < 0.3:
        entry["marks"] = sorted(random.sample(sorted(MARKS), random.randint(1, 2)))
    return entry


def _append(draft: Draft, entry: dict[str, Any], random: Random) -> None:
    if "origin" in entry["pub"]:
        _accept(draft, entry["pub"], random)
    opened = {}
    for path in ("query", "user_id") if entry["kind"] == "decision" else ():
        value, salt = random.choice(WORDS), random.randbytes(32)
        opened[path] = [base64(salt), value]
        entry["cm"][path] = commitment(salt, path, value)
    draft.entries.append(entry)
    draft.openings.append(opened)


def _rejected(random: Random) -> dict[str, Any]:
    """What was refused: a core of any form, or too large to be kept."""
    core = {"text": random.choice(WORDS), "src": {"n": -1}}
    kept = core if random.random() < 0.7 else None
    return {"core": kept, "hash": hash_of_core(core), "key_id": "key_1", "reason": "foreign_agent"}


def _restored(random: Random) -> dict[str, Any]:
    """One of the two forms of an `incarnation` entry."""
    if random.random() < 0.7:
        return {"cited": None, "number": 0, "origin": "", "reason": random.choice(WORDS)}
    return {"doubted": ["role/analyst"], "held": 3, "reason": "restored", "seen": 5}


def _accept(draft: Draft, pub: dict[str, Any], random: Random) -> None:
    """Numbers an incarnation that an operator accepted, and cites a note of the one before."""
    size = len(draft.entries)
    before = draft.origin(size)
    number = int(before.partition("#")[2] or 0) + 1
    pub |= {"number": number, "origin": f"{LOG}#{number}"}
    if random.random() < 0.7:
        # The log that was lost: as long as this one or longer, and with another root.
        pub["cited"] = draft.signers[0].sign_note(before, size + 3, random.randbytes(32))


def _redact(draft: Draft, random: Random) -> None:
    first = random.randrange(len(draft.entries))
    last = random.randint(first, min(first + 3, len(draft.entries) - 1))
    for seq in range(first, last + 1):
        draft.openings[seq] = {}
    pub = {"by": "key_1", "reason": "request", "events": [[first, last]]}
    entry = {"v": 1, "kind": "redact", "eid": "redact-1", "masked": [], "pub": pub, "cm": {}}
    _append(draft, entry, random)


def _purge(draft: Draft, random: Random) -> None:
    """Retention removed a prefix; more entries may have followed."""
    size = random.randint(1, len(draft.entries) - 2)
    # `Draft` adds what follows from the entries before.
    pub = {"count": random.randint(1, size), "cutoff": "2026-01-01T01:00:00.000000Z", "size": size}
    entry = {"v": 1, "kind": "purge", "eid": "purge-1", "masked": [], "pub": pub, "cm": {}}
    _append(draft, entry, random)
    for seq in range(random.randint(0, 3)):
        _append(draft, _entry("heartbeat", 100 + seq, random), random)
    draft.kept = size


def _cite(draft: Draft) -> None:
    """Puts each document before the first entry of the file that cites it."""
    by_digest = {sha256(document).hexdigest(): document for document in DOCUMENTS}
    for seq in range(draft.start, draft.stop):
        facts = draft.entries[seq]["pub"].get("facts") or {}
        cited = [by_digest.pop(facts.get(name, ""), None) for name in ("role", "sources")]
        here = [document for document in cited if document is not None]
        if here:
            draft.documents[seq] = here


def commitment(salt: bytes, path: str, value: Any) -> str:
    """The commitment to a value, in base64."""
    parts = (path.encode(), encoding.write(value))
    message = b"audit/field/v1\0" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return base64(hmac.digest(salt, message, "sha256"))


def chain_sources(draft: Draft) -> None:
    """Numbers and chains the records of each source, as its spool does."""
    last: dict[str, tuple[int, str]] = {}
    for entry in draft.entries:
        if "src" in entry:
            src = entry["src"]
            n, prev = last.get(src["id"], (-1, ""))
            src |= {"n": n + 1, "prev": prev, "t": "2026-01-01T00:00:00.000000Z"}
            last[src["id"]] = (n + 1, core_hash(entry))
