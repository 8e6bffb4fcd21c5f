"""What `make` writes of files: a log that was purged and continued, a report, a monitor's state,
and the lines that an export has only of a damaged log or an interrupted answer."""

import hashlib
from typing import Any

from deploy.commands.report.evidence import Evidence, Item
from deploy.commands.verify.monitor import MonitorState
from policies.ground.signing import Signer
from policies.sets.policy_set import role_document
from policies.trail.checkpoint import Checkpoint, accepted_incarnation_record, origin_of, sign
from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.file import LogFileWriter
from policies.trail.log_file.lines import (
    CheckpointLine,
    DamagedLine,
    EntryLine,
    FrontierLine,
    HeaderLine,
    Line,
    PolicyLine,
    ProofLine,
    PurgeLine,
    TruncatedLine,
)
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from policies.trail.record import gap_record, heartbeat_record, incarnation_record, make_record
from policies.trail.removal import Purged
from tests.policies.world import POLICY, START, Log, decided

SIGNER = Signer(bytes(range(32)))
NAME = "sluice/epoch/default"
PURGED = 3
MADE_AT = "2026-01-02T00:00:00.000000Z"


def tree_of(log: Log, size: int) -> Frontier:
    """The tree of the log's first `size` entries."""
    tree = Frontier()
    for row in log.rows[:size]:
        tree.append(leaf_hash(row.entry))
    return tree


def continued_log() -> Log:
    """A log that lost entries and goes on as its incarnation 1, whose first entries were purged
    then; a sidecar that had nothing to decide; and one that lost records."""
    log = Log(NAME)
    for number in range(2):
        log.direct(decided(seed=number))
    log.direct(make_record("heartbeat", "heartbeat-2", b"{}"))
    lost = Checkpoint(NAME, 5, hashlib.sha256(b"what was lost").digest())
    why = "restored from the backup of 1 January"
    log.direct(
        accepted_incarnation_record(NAME, 1, sign(lost, SIGNER), why, record_id="incarnation-3")
    )
    log.direct(incarnation_record(3, 5, 1, record_id="incarnation-4"))
    tree = tree_of(log, PURGED)
    leaf = leaf_hash(log.rows[PURGED - 1].entry)
    purged = Purged(PURGED, tree.root(), b"".join(tree.hashes), leaf, START + 3_600_000_000, PURGED)
    log.direct(purged.record("purge-5"))
    log.shipped(heartbeat_record(7, record_id="heartbeat-6"))
    log.shipped(
        gap_record("bad frame", instance="i0", first=4, lost=2, record_id="gap-7"), instance="i2"
    )
    log.direct(decided(seed=8))
    return log


def _note(log: Log, size: int, number: int) -> str:
    root = tree_of(log, size).root()
    return sign(Checkpoint(origin_of(NAME, number), size, root), SIGNER)


def _keys() -> list[dict[str, Any]]:
    key = VerifierKey(origin_of(NAME, 1), ED25519, SIGNER.public).text()
    return [{"key": key, "endorsement": None}]


def continued() -> Any:
    """All that is left of that log as a file."""
    log, tree = continued_log(), tree_of(continued_log(), PURGED)
    size, origin = len(log.rows), origin_of(NAME, 1)
    lines: list[Line] = [
        HeaderLine(NAME, origin, _keys(), PURGED, PURGED, size, True, MADE_AT),
        FrontierLine(PURGED, tree.hashes),
        CheckpointLine(_note(log, PURGED, 0)),
        PolicyLine(role_document([POLICY]) or b""),
        *(EntryLine(row.entry, row.openings or b"{}") for row in log.rows[PURGED:]),
        CheckpointLine(_note(log, size, 1)),
    ]
    file = LogFileWriter()
    parts = [file.joined(encode_line(each), isinstance(each, EntryLine)) for each in lines]
    return {
        "seed": SIGNER.seed().hex(),
        "origins": {str(number): origin_of(NAME, number) for number in (0, 1, 2, 10)},
        "file": (b"".join(parts) + file.end()).decode(),
    }


def purged_part() -> Any:
    """Two parts of what is left of that log, neither of which has its `purge` entry."""
    log = continued_log()
    size, purge = len(log.rows), PURGED + 2
    leaves = [leaf_hash(row.entry) for row in log.rows]

    def node(level: int, place: int) -> bytes:
        tree = Frontier()
        for leaf in leaves[place << level : (place + 1) << level]:
            tree.append(leaf)
        return tree.root()

    brought = PurgeLine(
        log.rows[purge].entry.decode(), tree_proofs.inclusion_proof(purge, size, node)
    )
    files = {}
    for name, first, until in (("before", PURGED, purge), ("behind", purge + 1, size)):
        lines: list[Line] = [
            HeaderLine(NAME, origin_of(NAME, 1), _keys(), PURGED, first, until, True, MADE_AT),
            FrontierLine(first, tree_of(log, first).hashes),
            *[PolicyLine(role_document([POLICY]) or b"")] * (until == size),
            *(EntryLine(row.entry, row.openings or b"{}") for row in log.rows[first:until]),
            *[ProofLine(tree_proofs.inclusion_proof(until - 1, size, node))] * (until < size),
            CheckpointLine(_note(log, size, 1)),
            brought,
        ]
        file = LogFileWriter()
        parts = [file.joined(encode_line(each), isinstance(each, EntryLine)) for each in lines]
        files[name] = (b"".join(parts) + file.end()).decode()
    return {"seed": SIGNER.seed().hex(), **files}


def asked_part() -> Any:
    """The beginning of that log, up to its newest checkpoint then, as a part that was asked for
    with its end, and as all that the log had; and the checkpoint that followed."""
    log, until = continued_log(), PURGED
    key = VerifierKey(NAME, ED25519, SIGNER.public).text()
    keys = [{"key": key, "endorsement": None}]
    files = {}
    for name, part in (("part", True), ("whole", False)):
        lines: list[Line] = [
            HeaderLine(NAME, NAME, keys, 0, 0, until, True, MADE_AT, part),
            PolicyLine(role_document([POLICY]) or b""),
            *(EntryLine(row.entry, row.openings or b"{}") for row in log.rows[:until]),
            CheckpointLine(_note(log, until, 0)),
        ]
        file = LogFileWriter()
        parts = [file.joined(encode_line(each), isinstance(each, EntryLine)) for each in lines]
        files[name] = (b"".join(parts) + file.end()).decode()
    return {"seed": SIGNER.seed().hex(), "key": key, "later": _note(log, until + 1, 0), **files}


def report() -> Any:
    """A report on that log's decision, and on two entries behind the checkpoint or without
    openings."""
    log, size = continued_log(), len(continued_log().rows) - 1
    leaves = [leaf_hash(row.entry) for row in log.rows[:size]]

    def node(level: int, place: int) -> bytes:
        tree = Frontier()
        for leaf in leaves[place << level : (place + 1) << level]:
            tree.append(leaf)
        return tree.root()

    items = [
        Item(log.rows[seq].entry, openings, tree_proofs.inclusion_proof(seq, size, node))
        for seq, openings in ((3, b"{}"), (6, None))
    ]
    items.append(Item(log.rows[size].entry, log.rows[size].openings, None))
    export = {"entries": 6, "from": PURGED, "made_at": MADE_AT, "sha256": "00" * 32, "to": size + 1}
    made = Evidence(
        NAME,
        origin_of(NAME, 1),
        {"agent": "agt_a", "from": "2026-01-01T00:00:00.000000Z"},
        export,
        _keys(),
        _note(log, size, 1),
        items,
    )
    return {"seed": SIGNER.seed().hex(), "report": made.to_bytes().decode()}


def monitor_state() -> Any:
    """What a monitor that has verified that log keeps."""
    log, size = continued_log(), len(continued_log().rows)
    state = MonitorState(
        NAME,
        origin_of(NAME, 1),
        tree_of(log, size),
        leaf_hash(log.rows[-1].entry),
        log.ts,
        (SIGNER.public,),
        _note(log, size, 1),
        {(b"sidecar-1", b"i1"): (0, b"A" * 43 + b"=")},
        (2,),
    )
    return {"state": state.to_bytes().decode()}


def rare_lines() -> Any:
    """Lines of an export that neither `log_file.json` nor `erased_part.json` has."""
    lines: dict[str, Line] = {
        "a line feed in the entry": DamagedLine(7, b'{"a":\n1}', b"{}"),
        "no entry, no openings": DamagedLine(0, None, None),
        "empty": DamagedLine(2**53 - 1, b"", b""),
        "an interrupted answer": TruncatedLine("the service stops; continue with `from=7`"),
    }
    return {name: encode_line(line).decode() for name, line in lines.items()}
