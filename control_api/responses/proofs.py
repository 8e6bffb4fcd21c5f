"""Responses that prove something about the log. Hashes are base64 here, as in the text forms of
C2SP; `policies/trail/README.md` says how to check them."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

# An `orjson.Fragment`: stored bytes that are sent as they are, and read as an object.
Json = Annotated[Any, WithJsonSchema({"type": "object"})]
_ROOT = "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="
_LOG = "sluice/0194bd6e/default"
_NOTE = f"{_LOG}\n1019\n{_ROOT}\n\n— {_LOG} …\n"


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """That an entry is in the log: the entry, its number, the openings that are still stored, the
    hashes from the leaf's sibling up, and the checkpoint that they lead to (RFC 9162)."""

    entry: Json
    index: int
    openings: Json
    hashes: list[str]
    checkpoint: str

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
    """That the log's first `from` entries are the beginning of its `to` entries, those of the
    checkpoint (RFC 9162, section 2.1.4)."""

    from_: Annotated[int, Field(alias="from")]
    to: int
    hashes: list[str]
    checkpoint: str

    def to_wire(self) -> dict[str, Any]:
        """`from` is a keyword of Python, so that no field can have its name."""
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
    """An operator's word that a log goes on although it is behind a checkpoint of its own: since
    then its checkpoints have the name `origin`. The entry `event_id` cites the last one before."""

    number: int
    origin: str
    event_id: str
    accepted_at: str

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
    witnesses: list[str]
    incarnation: AcceptedIncarnation | None

    example: ClassVar[dict[str, Any]] = {
        "log_key": _ROOT,
        "log_key_history": [],
        "witnesses": [],
        "incarnation": None,
    }
