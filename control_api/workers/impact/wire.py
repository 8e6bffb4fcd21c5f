"""What an impact run's process is told at its start, and what it answers: a line of JSON each.
Opens nothing."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from control_api.database_limits import DatabaseLimits
from control_api.store.queries.impact_runs import Reached
from policies.ground.canonical import b64, unb64

MAX_LINE = 64 * 1024 * 1024
"""Bytes of a line: two thousand groups, whose names may have 256 characters each, take a tenth."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run, from where it was left: the entries from `next_seq` up to `until` (exclusive) of the
    log named `log`. `counts` are empty at the beginning."""

    database_url: str
    limits: DatabaseLimits
    tenant_id: str
    impact_id: str
    log: str
    next_seq: int
    until: int
    last_leaf: bytes
    last_eid: str | None
    counts: bytes

    def to_line(self) -> bytes:
        wire = {name: getattr(self, name) for name in self.__slots__}
        wire |= {"limits": asdict(self.limits), "last_leaf": b64(self.last_leaf)}
        return orjson.dumps(wire | {"counts": self.counts.decode()}) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Job":
        wire: dict[str, Any] = orjson.loads(line)
        wire["limits"] = DatabaseLimits(**wire["limits"])
        wire["last_leaf"] = unb64(wire["last_leaf"])
        wire["counts"] = wire["counts"].encode()
        return cls(**wire)


@dataclass(frozen=True, slots=True)
class Message:
    """How far the run has come, if it has come further; `end` is `done`, or why it failed, None
    while it goes on."""

    reached: Reached | None = None
    end: str | None = None

    def to_line(self) -> bytes:
        wire: dict[str, Any] = {"end": self.end}
        if self.reached is not None:
            wire |= {
                "next_seq": self.reached.next_seq,
                "last_leaf": b64(self.reached.last_leaf),
                "last_eid": self.reached.last_eid,
                "counts": orjson.Fragment(self.reached.counts),
            }
        return orjson.dumps(wire) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Message":
        wire: Mapping[str, Any] = orjson.loads(line)
        if "next_seq" not in wire:
            return cls(None, wire["end"])
        counts, leaf = orjson.dumps(wire["counts"]), unb64(wire["last_leaf"])
        return cls(Reached(wire["next_seq"], leaf, wire["last_eid"], counts), wire["end"])


DONE = "done"
