"""Counts the results of a tenant's candidates for the decisions of a batch, in step with the log. A
candidate is a set of policies that is evaluated beside the active one, and never decides.

    counts.add(pub, index)                for each decision of a batch, in memory
    counts.save(connection, tenant_id)    in the transaction that appends the batch

INVARIANT: the candidates are those of the log's head, which is locked, or is still where this batch
begins. They only change together with an entry of the log, so a batch that goes behind that head
counts for exactly the candidates that there are. A batch that is sent again is not appended again,
and so not counted again.

An entry counts as decided by a candidate if the policy set that it was decided by has the
candidate: if `facts.revision` is the candidate's `revision` or later. Its results for other
candidates, or for another revision of one, are not counted.
"""

import hashlib
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection

from control_api.store.schema.log import candidate_counts
from policies.definitions.model import Candidate
from policies.ground.canonical import encode
from policies.trail.entry import Index

DECIDED = "decided"
MAX_EXAMPLES = 5


class CandidateGroup(NamedTuple):
    """A group of decisions that are counted together: those of one candidate with the same outcome,
    role, source, and policy names before and after. For the outcome `DECIDED`, all but the
    candidate is empty."""

    name: str
    revision: int
    outcome: str
    agent_role: str = ""
    source_id: str = ""
    policy_name_before: str = ""
    policy_name_after: str = ""

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the group, which is part of its row's key. Empty for `DECIDED`, so that
        its row can be found without it."""
        if self.outcome == DECIDED:
            return b""
        return hashlib.sha256(encode(list(self[2:]))).digest()


class _Counted:
    """The decisions of a group: their number, the earliest and the latest time, and the first ids
    as examples."""

    __slots__ = ("examples", "first", "last", "many")

    def __init__(self, ts: int) -> None:
        self.many, self.first, self.last = 0, ts, ts
        self.examples: list[str] = []

    def add(self, ts: int) -> None:
        self.many += 1
        self.first, self.last = min(self.first, ts), max(self.last, ts)


class BatchCandidates:
    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        self._candidates = candidates
        self._groups: dict[CandidateGroup, _Counted] = {}

    def add(self, pub: bytes, index: Index) -> None:
        """Count one `decision` entry. `pub` is the part of the entry that is recorded in clear,
        rather than as commitments."""
        decoded = orjson.loads(pub)
        # Only our own services are known to write an integer there.
        revision = decoded["facts"].get("revision")
        if type(revision) is not int:
            return  # decided without the policy set: stale, or unreadable
        items: list[dict[str, Any]] = decoded.get("candidates") or []
        differing = {(each["name"], each["revision"]): each for each in items}
        for candidate in self._candidates:
            if revision < candidate.revision:
                continue
            self._counted(CandidateGroup(*candidate, DECIDED), index.ts)
            if (item := differing.get(candidate)) is not None:
                self._differs(candidate, item, index)

    def _differs(self, candidate: Candidate, item: dict[str, Any], index: Index) -> None:
        outcome = _OUTCOMES.get((index.decision, item["decision"]))
        if outcome is None:
            return  # the same decision: no enforcement point of ours says so
        group = CandidateGroup(
            *candidate,
            outcome,
            index.agent_role or "",
            index.source_id or "",
            index.policy_name or "",
            item["policy_name"],
        )
        counted = self._counted(group, index.ts)
        if len(counted.examples) < MAX_EXAMPLES:
            counted.examples.append(index.eid)

    def _counted(self, group: CandidateGroup, ts: int) -> _Counted:
        counted = self._groups.get(group)
        if counted is None:
            counted = self._groups[group] = _Counted(ts)
        counted.add(ts)
        return counted

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows to add, without the tenant, in order of their keys."""
        rows = [
            (
                *group[:2],
                group.digest,
                *group[2:],
                counted.many,
                counted.first,
                counted.last,
                " ".join(counted.examples),
            )
            for group, counted in self._groups.items()
        ]
        return sorted(rows)

    def save(self, connection: Connection, tenant_id: str) -> None:
        """Add the rows to those stored on SQLite. On PostgreSQL they are part of the batch's one
        statement."""
        if rows := self.rows():
            values = [(tenant_id, *row) for row in rows]
            connection.exec_driver_sql(_UPSERT, values)


_OUTCOMES: dict[tuple[str | None, str], str] = {
    ("ALLOW", "DENY"): "newly_denied",
    ("DENY", "ALLOW"): "newly_allowed",
    ("ALLOW", "ERROR"): "error",
    ("DENY", "ERROR"): "error",
}


_EXAMPLES = (
    # A row that has few examples takes those of the next batch too; readers take the first ones.
    "CASE WHEN candidate_counts.examples = '' THEN excluded.examples"
    " WHEN length(candidate_counts.examples) - length(replace(candidate_counts.examples, ' ', ''))"
    f" >= {MAX_EXAMPLES - 1} THEN candidate_counts.examples"
    " ELSE candidate_counts.examples || ' ' || excluded.examples END"
)
ON_CONFLICT = (
    "ON CONFLICT (tenant_id, name, revision, group_digest) DO UPDATE SET"
    " counted = candidate_counts.counted + excluded.counted,"
    " first_ts = CASE WHEN excluded.first_ts < candidate_counts.first_ts"
    " THEN excluded.first_ts ELSE candidate_counts.first_ts END,"
    " last_ts = CASE WHEN excluded.last_ts > candidate_counts.last_ts"
    " THEN excluded.last_ts ELSE candidate_counts.last_ts END,"
    f" examples = {_EXAMPLES}"
)
"""The SQL clause that adds a row to the stored one with the same key, in syntax that both databases
accept."""
_NAMES = ", ".join(column.name for column in candidate_counts.c)
_MARKS = ", ".join("?" for _ in candidate_counts.c)
_UPSERT = f"INSERT INTO candidate_counts ({_NAMES}) VALUES ({_MARKS}) {ON_CONFLICT}"  # noqa: S608
