"""What the tests of the core share: one decision, one record, one small log."""

import asyncio
import hashlib
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar, cast

import orjson

from policies.candidates import CandidateDecision
from policies.checks.finding import Facts
from policies.definitions.model import Agent, Key, Policy, Session, TenantSettings
from policies.evaluate import evaluate, refuse
from policies.ground.canonical import b64, encode, rfc3339
from policies.ground.masking import MaskingTurns
from policies.retrieval import Retrieval
from policies.sets.role import compile_role
from policies.statement import StatementMark, parameters_text
from policies.trail.change import change_record
from policies.trail.core import PLACE
from policies.trail.entry import StoredRow, index_of
from policies.trail.lineage import ReportedAction, lineage_record, masked_texts, retrieval_lineage
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.record import (
    Record,
    decision_record,
    gap_record,
    make_record,
)
from policies.trail.spool_chain import (
    LogPosition,
    Place,
    core_hash,
    read_payload,
    refused,
    spool_payload,
    src_member,
)
from policies.trail.verify import LogHead

T = TypeVar("T")
TURNS = MaskingTurns(lambda: 0.0, partial(asyncio.sleep, 0), asyncio.Event)
"""Its time stands still, so it masks everything at once."""

LOG = "default"
START = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
POLICY = Policy("pol_reads", 3, "reads", "analyst", ("contracts",), ("payroll",), "high")
RETRIEVAL = Retrieval("analyst", "ann@example.com", "contracts", "low", query="who signs?")
FACTS = Facts(
    TenantSettings("default"),
    Key("key_1", "evaluate"),
    None,
    None,
    compile_role("analyst", [POLICY]),
    7,
)


def entry_from_core(core: dict[str, Any], *, log: str, seq: int, prev: str, ts: str) -> bytes:
    """The entry of a record from an enforcement point, encoded anew: its core with `log`, `seq`,
    `prev` and `ts`."""
    return encode({**core, "log": log, "seq": seq, "prev": prev, "ts": ts})


def salt(seed: int) -> bytes:
    return hashlib.sha256(b"salt %d" % seed).digest()


def decided(retrieval: Retrieval = RETRIEVAL, facts: Facts = FACTS, *, seed: int = 0) -> Record:
    """The record of a real decision."""
    return decision_record(
        retrieval, evaluate(retrieval, facts), facts, event_id=f"event-{seed}", salt=salt(seed)
    )


def full_facts() -> Facts:
    """Facts with every optional part."""
    return FACTS._replace(
        key=Key("key_1", "evaluate", "agt_a", ("analyst",), START),
        agent=Agent("agt_a", "approved", ("analyst", "auditor"), "key_1"),
        session=Session("s_1", "active", "analyst", "agt_a"),
    )


FULL = RETRIEVAL._replace(agent_id="agt_a", session_id="s_1", task_type="report")


DIFFERING = (
    CandidateDecision("strict", 3, "DENY", "no-low", "sensitivity"),
    CandidateDecision("tomorrow", 5, "ERROR", "evaluation_error", None),
)


def diverging(seed: int, retrieval: Retrieval = RETRIEVAL) -> Record:
    """The record of a decision that two candidates decide otherwise, or can't decide."""
    facts = full_facts()
    return decision_record(
        retrieval,
        evaluate(retrieval, facts),
        facts,
        event_id=f"event-{seed}",
        salt=salt(seed),
        candidates=DIFFERING,
    )


class Log:
    """A log as the control API writes it: entries, columns, openings and head."""

    def __init__(self, log: str = LOG) -> None:
        self.log, self.rows, self.tree = log, list[StoredRow](), Frontier()
        self.prev, self.ts = "", ""
        self.ends: dict[tuple[str, str], tuple[int, str]] = {}

    def direct(self, record: Record, *, at: int | None = None) -> bytes:
        """Append a record of the control API's own."""
        ts = rfc3339(START + len(self.rows) * 1000 if at is None else at)
        return self._put(record.entry(self.log, len(self.rows), self.prev, ts), record.openings, ts)

    def shipped(
        self,
        record: Record,
        source: str = "sidecar-1",
        instance: str = "i1",
        *,
        at: int | None = None,
        marks: Iterable[str] = (),
        refused_for: str | None = None,
    ) -> bytes:
        """Append a record that a sidecar made at `at`. If it is refused, with its reason, the key
        `key_1` delivered it."""
        n, prev = self.ends.get((source, instance), (0, ""))
        ts = rfc3339(START + len(self.rows) * 1000)
        t = rfc3339(START + n if at is None else at)
        core = record.core(src_member(source, instance, n, prev, t))
        self.ends[source, instance] = (n + 1, b64(core_hash(core)))
        if refused_for is not None or marks:
            read = read_payload(orjson.loads(spool_payload(core, record.openings)))
            read = read._replace(marks=tuple(marks))
            if refused_for is not None:
                place, spool = Place(n, prev, t), (source, instance)
                eid = f"rejected-{len(self.rows)}"
                read = refused(read.core, place, spool, refused_for, "key_1", eid)
            position = (encode(self.log), len(self.rows), self.prev.encode(), ts.encode())
            return self._put(read.entry(LogPosition(*position)), read.openings, ts)
        entry = entry_from_core(
            orjson.loads(core), log=self.log, seq=len(self.rows), prev=self.prev, ts=ts
        )
        return self._put(entry, record.openings, ts)

    def _put(self, entry: bytes, openings: bytes, ts: str) -> bytes:
        leaf = leaf_hash(entry)
        columns = index_of(orjson.loads(entry))
        self.rows.append(StoredRow(len(self.rows), entry, leaf, columns, openings))
        self.tree.append(leaf)
        self.prev, self.ts = b64(leaf), ts
        return leaf

    def head(self) -> LogHead:
        last = self.rows[-1].hash if self.rows else b""
        assert last is not None
        return LogHead(len(self.rows), last, self.ts, self.tree.to_bytes())


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise AssertionError("it waits")


def every_kind() -> Log:
    """A small log with every kind that is written today, records of two sidecars among the control
    API's, and an entry of each later kind as `FORMAT.md` describes it."""
    log = Log()
    leaf = log.direct(decided(seed=0))
    log.direct(
        lineage_record(
            ReportedAction("event-0", leaf, "email_sent", {"to": "bob", "score": 0.5}, "ok"),
            record_id="lineage-1",
            salt=salt(1),
            masked=None,
        )
    )
    log.direct(
        change_record(
            "policy.updated", "pol_reads", "key_1", {"from": 2, "to": 3}, record_id="change-2"
        )
    )
    full = decided(FULL, full_facts(), seed=3)
    log.shipped(full)
    core = log_core(log.rows[-1].entry)
    detail: dict[str, int | str] = {"status": 200, "bytes": 512, "sha256": "00" * 32}
    log.shipped(
        retrieval_lineage("event-3", core_hash(core), detail, "delivered", record_id="lineage-4")
    )
    log.shipped(decided(RETRIEVAL._replace(source_id="payroll"), seed=5), "sidecar-2", "i7")
    log.shipped(
        gap_record("bad frame", instance="i0", first=4, lost=None, record_id="gap-6"), instance="i2"
    )
    for n, (kind, pub) in enumerate(LATER.items(), len(log.rows)):
        log.direct(make_record(kind, f"{kind}-{n}", orjson.dumps(pub, option=orjson.OPT_SORT_KEYS)))
    log.direct(decided(RETRIEVAL._replace(query=None), seed=11))
    return log


def masked_log() -> Log:
    """What masking writes: with and without findings, shipped and direct, and a lineage action."""
    facts = full_facts()._replace(settings=TenantSettings("default", pii_masking=True))
    log = Log()
    leaf = log.direct(decided(FULL._replace(query="card 4111 1111 1111 1111"), facts, seed=0))
    log.shipped(decided(FULL, facts, seed=1))
    log.shipped(decided(FULL._replace(user_id="ann"), facts, seed=2))
    action = ReportedAction(
        "event-0", leaf, "email_sent", {"to": "bob@example.com", "score": 0.5}, "ok"
    )
    masked = at_once(masked_texts(TURNS, action))
    log.direct(lineage_record(action, record_id="lineage-3", salt=salt(3), masked=masked))
    return log


def candidate_log() -> Log:
    """A small log with such decisions, shipped and direct."""
    log = Log()
    log.direct(diverging(0))
    log.shipped(diverging(1, FULL))
    return log


SQL = "SELECT title FROM contracts JOIN payroll USING (id) WHERE mail = $1 AND n = $2"
MARK = StatementMark(
    "019b7634-ac00-7000-8000-000000000001",
    hashlib.sha256(SQL.encode()).hexdigest(),
    "50fde20626009aba",
    "bind",
    parameters_text(["bob@example.com", b"\0\0\0\x07", None]),
)
STATED = FULL._replace(query=SQL, source_type="postgres", statement=MARK)


def statement_log() -> Log:
    """Decisions about what statements read: two of one statement, one of them denied at a later
    look; one that is masked; one whose text can't be read, without facts; and one in which there
    was no room for each parameter."""
    log, facts = Log(), full_facts()
    later = MARK._replace(look="held")
    log.shipped(decided(STATED, facts, seed=0))
    log.shipped(decided(STATED._replace(source_id="payroll", statement=later), facts, seed=1))
    masking = facts._replace(settings=TenantSettings("default", pii_masking=True))
    log.shipped(decided(STATED, masking, seed=2))
    unread = STATED._replace(query="SELEC 1", statement=StatementMark(MARK.id, "00" * 32))
    denied = refuse("unreadable_request", "it is no SQL")
    log.shipped(
        decision_record(unread, denied, None, event_id="event-3", salt=salt(3), masking=False)
    )
    large = parameters_text(["x" * 20_000, b"\xff" * 20_000, 'a "text"\n', ""])
    log.direct(decided(STATED._replace(statement=MARK._replace(parameters=large)), facts, seed=4))
    return log


def judged_log() -> Log:
    """Records that were delivered with a time far from their arrival, or refused: in the middle of
    a spool's chain, as its first record, and too large to be kept."""
    log, impostor = Log(), FULL._replace(agent_id="agt_b")
    log.shipped(decided(FULL, full_facts(), seed=0))
    log.shipped(decided(impostor, full_facts(), seed=1), refused_for="agent_foreign")
    log.shipped(decided(seed=2), at=START + 2_000_000_000_000_000, marks=["time_doubtful"])
    log.shipped(decided(impostor, seed=3), at=0, marks=["agent_foreign", "time_doubtful"])
    log.shipped(decided(impostor, seed=4), marks=["agent_foreign"])
    large = encode({"reason": "x" * 58_000, "instance": None, "first": None, "lost": None})
    log.shipped(make_record("gap", "gap-5", large), instance="i2", refused_for="event_id")
    log.shipped(decided(seed=6), instance="i2")
    return log


LATER: dict[str, dict[str, Any]] = {
    "redact": {"by": "key_1", "openings": [["event-0", "query"]], "why": "request"},
    "purge": {"count": 0, "cutoff": rfc3339(START), "frontier": [], "last": "", "size": 0},
    "heartbeat": {},
    "incarnation": {"checkpoint": None, "why": "restored"},
}


def log_core(entry: bytes) -> bytes:
    """The core of an entry that came from a sidecar, as it was in the spool."""
    core = {name: value for name, value in orjson.loads(entry).items() if name not in PLACE}
    return orjson.dumps(core, option=orjson.OPT_SORT_KEYS)


def naive_root(leaves: Iterable[bytes]) -> bytes:
    """MTH of RFC 9162, section 2.1.1, word for word, over leaf hashes."""
    listed = list(leaves)
    if not listed:
        return hashlib.sha256(b"").digest()
    if len(listed) == 1:
        return listed[0]
    k = 1
    while k * 2 < len(listed):
        k *= 2
    return hashlib.sha256(b"\x01" + naive_root(listed[:k]) + naive_root(listed[k:])).digest()
