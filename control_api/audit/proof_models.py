"""Defines the responses that prove something about the log, and about its checkpoints
(`FORMAT.md`).

Hashes are base64 here, as in the text forms of C2SP; `policies/trail/README.md` says how to check
them.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from control_api.edge.answers import Ok
from control_api.edge.field_descriptions import says


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """A signed checkpoint that is kept; `GET /v1/audit/checkpoint?size=` shows its note.
    `witnesses` counts the cosignatures as they arrived; `witness_names` are the witnesses that the
    service asks now and whose cosignatures are on the note."""

    size: int
    root: Annotated[str, says("The root of the log's Merkle tree, in base64.")]
    signed_at: Annotated[str, says("When the log's key signed it (RFC 3339, UTC).")]
    witnesses: int
    witness_names: Annotated[
        list[str],
        says(
            "The names of the witnesses whose cosignatures are on its note, of those that the "
            "service asks now."
        ),
    ]
    level: Literal["unsigned", "signed", "witnessed"]
    origin: Annotated[str, says("The name under which the checkpoint was signed.")]

    example: ClassVar[dict[str, Any]] = {
        "size": 1019,
        "root": "rE6r8lJ2OtDEFlyJGsRPjU2KGcJ3TqTbeWUUJzXNDEE=",
        "signed_at": "2026-01-31T12:00:00.000000Z",
        "witnesses": 1,
        "witness_names": ["witness.example"],
        "level": "signed",
        "origin": "sluice/0194bd6e/default",
    }


@dataclass(frozen=True, slots=True)
class SelfVerified:
    """The result of the scheduled verification of all logs: `damaged` if one does not verify,
    `pending` until every log was verified to its end. `finished_at` is when the oldest was."""

    state: Annotated[
        Literal["valid", "damaged", "pending"],
        says("Whether every log verifies: `valid`, `damaged` or `pending`."),
    ]
    finished_at: Annotated[
        str | None, says("When the oldest of the last complete verifications ended. `null` before.")
    ]

    example: ClassVar[dict[str, Any]] = {
        "state": "valid",
        "finished_at": "2026-01-31T12:00:00.000000Z",
    }


@dataclass(frozen=True, slots=True)
class Verification:
    """The progress of the service's own verification of the log, and its last result: the state is
    `pending` until it was at the log's end once. It is `queued` if it is to begin and no process
    has begun it yet.

    It has walked from entry `first`, where the log begins, to `reached`, of `total` entries. It
    was last at the log's end at `finished_at`, then of `finished_size` entries. `broken_at` and
    `broken_seq` are the id and the number of the first entry that fails; `reason` says how. Both
    are null if a count differs from the entries. All entries and all counts were right at
    `verified_at` or later, but for what `reason` says."""

    state: Annotated[
        Literal["pending", "valid", "damaged"],
        says("What is known of the log: `valid`, `damaged`, or `pending` at first."),
    ]
    running: Annotated[
        bool, says("Whether a walk over the log is under way, or is to begin (`queued`).")
    ]
    queued: Annotated[bool, says("Whether the walk is to begin, and no process has begun it yet.")]
    first: Annotated[int, says("The `seq` of the log's oldest entry.")]
    reached: Annotated[int, says("The walk has verified the entries before this one.")]
    total: Annotated[
        int, says("How many entries the log has now, those that were purged included.")
    ]
    started_at: Annotated[str | None, says("When it began (RFC 3339, UTC).")]
    finished_at: Annotated[
        str | None, says("When the walk was last at the log's end. `null` before.")
    ]
    finished_size: Annotated[int | None, says("How many entries the log had then. `null` before.")]
    broken_at: str | None
    broken_seq: Annotated[
        int | None,
        says(
            "The `seq` of the first entry that fails. `null` if none does, or if what fails is not "
            "an entry."
        ),
    ]
    reason: Annotated[
        str | None, says("What fails first: `code: sentence`. `null` if nothing does.")
    ]
    verified_at: Annotated[
        str | None,
        says(
            "All entries and counts were found right at this time or later, but for what `reason` "
            "says. `null` until then."
        ),
    ]

    example: ClassVar[dict[str, Any]] = {
        "state": "valid",
        "running": True,
        "queued": False,
        "first": 0,
        "reached": 40000,
        "total": 90210,
        "started_at": "2026-01-31T12:00:00.000000Z",
        "finished_at": "2026-01-31T11:00:00.000000Z",
        "finished_size": 90000,
        "broken_at": None,
        "broken_seq": None,
        "reason": None,
        "verified_at": "2026-01-31T10:40:00.000000Z",
    }


SoftwareVersion = Annotated[str, says("The software's version.")]


@dataclass(frozen=True, slots=True)
class Ready:
    """The service is ready; `version` is the software's version."""

    status: Ok
    version: SoftwareVersion
    self_verification: Annotated[
        SelfVerified, says("What the scheduled verification found, over all logs.")
    ]

    example: ClassVar[dict[str, Any]] = {
        "status": "ok",
        "version": "0.1.0",
        "self_verification": SelfVerified.example,
    }


# An `orjson.Fragment`: stored bytes that are sent as they are, and read as an object.
Json = Annotated[Any, WithJsonSchema({"type": "object"})]
_ROOT = "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="
_LOG = "sluice/0194bd6e/default"
_NOTE = f"{_LOG}\n1019\n{_ROOT}\n\n— {_LOG} …\n"

ProvenCheckpoint = Annotated[
    str,
    says(
        "The signed checkpoint that the hashes lead to (C2SP `tlog-checkpoint`), with its "
        "cosignatures."
    ),
]


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """The proof that an entry is in the log: the entry, its number, the openings that are still
    stored, the hashes from the leaf's sibling up, and the checkpoint that they lead to
    (RFC 9162)."""

    entry: Annotated[Json, says("The entry, byte for byte as it was hashed.")]
    index: Annotated[int, says("The entry's number in the log, from 0: its `seq`.")]
    openings: Annotated[
        Json,
        says(
            "What is still stored of the values that the entry commits to: for each path, salt and "
            "value."
        ),
    ]
    hashes: list[str]
    checkpoint: ProvenCheckpoint

    example: ClassVar[dict[str, Any]] = {
        "entry": {
            "cm": {"user_id": _ROOT},
            "eid": "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d",
            "kind": "decision",
            "log": _LOG,
            "masked": [],
            "prev": _ROOT,
            "pub": {},
            "seq": 17,
            "ts": "2026-01-31T12:00:00.000000Z",
            "v": 1,
        },
        "index": 17,
        "openings": {"user_id": [_ROOT, "u-1001"]},
        "hashes": [_ROOT],
        "checkpoint": _NOTE,
    }


@dataclass(frozen=True, slots=True)
class ConsistencyProof:
    """The proof that the log's first `from` entries are the beginning of its first `to` entries,
    which `checkpoint` signs (RFC 9162, section 2.1.4)."""

    from_: Annotated[int, Field(alias="from", description="The size from which growth is proven.")]
    to: Annotated[int, says("The size of the checkpoint.")]
    hashes: list[str]
    checkpoint: ProvenCheckpoint

    def to_wire(self) -> dict[str, Any]:
        """Return the response's fields, with `from_` as `from`, which is a Python keyword and so
        can't name a field."""
        return {
            "from": self.from_,
            "to": self.to,
            "hashes": self.hashes,
            "checkpoint": self.checkpoint,
        }

    example: ClassVar[dict[str, Any]] = {
        "from": 1000,
        "to": 1019,
        "hashes": [_ROOT],
        "checkpoint": _NOTE,
    }


@dataclass(frozen=True, slots=True)
class AcceptedIncarnation:
    """An operator's decision that a log goes on although it contradicts one of its checkpoints. The
    later checkpoints have the name `origin`; the entry `event_id` cites the last one before."""

    number: Annotated[int, says("Its place among the log's incarnations; the first is 0.")]
    origin: Annotated[str, says("The name under which checkpoints are signed since then.")]
    event_id: Annotated[str, says("The id of the log's entry, which `GET /v1/audit/proof` proves.")]
    accepted_at: Annotated[str, says("When the operator accepted it (RFC 3339, UTC).")]

    example: ClassVar[dict[str, Any]] = {
        "number": 1,
        "origin": f"{_LOG}#1",
        "event_id": "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d",
        "accepted_at": "2026-01-31T12:00:00.000000Z",
    }


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The public key that signs the log now, and the endorsements of each key by the one before it,
    oldest first: signatures over `sluice/key-rotation/v1`. `witnesses` are the verifier keys (C2SP)
    of those who are asked to cosign. `incarnation` is the newest; null in a log's first."""

    log_key: str
    log_key_history: list[dict[str, str]]
    witnesses: Annotated[
        list[str], says("The verifier keys (C2SP) of the witnesses that are asked to cosign.")
    ]
    incarnation: Annotated[
        AcceptedIncarnation | None,
        says(
            "Set if an operator accepted that the log goes on although it is behind a checkpoint "
            "of its own; `null` in a log's first incarnation."
        ),
    ]

    example: ClassVar[dict[str, Any]] = {
        "log_key": _ROOT,
        "log_key_history": [],
        "witnesses": [],
        "incarnation": None,
    }
