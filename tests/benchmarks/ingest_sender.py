"""The sidecars of one sender: their records, made before anything is measured, and their posts.

    python -m tests.benchmarks.ingest_sender < JSON of `port`, `source`, `keys`, `size`, `at_once`

Says `ready` when each tenant's log is begun, waits for a line, and posts until its input ends: one
tenant after another, batches as the shipper makes them. Then prints one JSON line: records, posts,
milliseconds a post. Every tenant gets the same records; a log of one knows nothing of another's.
"""

import http.client
import json
import os
import queue
import sys
import threading
import time
from typing import Any

import orjson

from policies.checks.finding import Facts
from policies.definitions.model import Agent, Key, Policy, Session, TenantSettings
from policies.evaluate import evaluate
from policies.ground.canonical import b64, rfc3339
from policies.ground.ids import uuid7
from policies.retrieval import Retrieval
from policies.sets.role import compile_role
from policies.trail.lineage import retrieval_lineage
from policies.trail.record import Record, decision_record
from policies.trail.spool_chain import core_hash, spool_payload, src_member
from sidecar.control.shipper import BATCH_BYTES

PATH = "/v1/sidecars/events"
FIRST = 8
"""Records in the batch that begins a log, before the measurement."""
BATCHES = 12
STEP = 10_000
"""Microseconds between two records of a busy agent."""
POLICY = Policy("pol_reads", 3, "reads", "analyst", ("contracts", "crm", "tickets"), (), "high")


class Records:
    """The content of one sidecar's spool: an agent's decisions in one session after another, every
    eighth followed by the lineage of an allowed retrieval."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._n, self._prev = 0, ""
        self._began = time.time_ns() // 1000
        self._last: tuple[str, bytes] | None = None

    def batch(self, most: int) -> tuple[bytes, int]:
        """A body, and the number of its last record."""
        payloads: list[bytes] = []
        size = 0
        while len(payloads) < most and size < BATCH_BYTES - 4096:
            payloads.append(self._next())
            size += len(payloads[-1]) + 1
        envelope = orjson.dumps({"instance": "i1", "source": self._source})
        return b'%b,"records":[%b]}' % (envelope[:-1], b",".join(payloads)), self._n - 1

    def _next(self) -> bytes:
        at = self._began + self._n * STEP
        record = self._record(uuid7(at, os.urandom(10)))
        src = src_member(self._source, "i1", self._n, self._prev, rfc3339(at))
        core = record.core(src)
        hashed = core_hash(core)
        self._n, self._prev = self._n + 1, b64(hashed)
        self._last = (record.eid, hashed) if record.kind == "decision" else None
        return spool_payload(core, record.openings)

    def _record(self, eid: str) -> Record:
        number = self._n
        if self._last is not None and number % 8 == 7:
            detail: dict[str, int | str] = {"status": 200, "bytes": 2048 + number}
            return retrieval_lineage(*self._last, detail, "completed", record_id=eid)
        session = f"{self._source}-session-{number // 20}"
        facts = Facts(
            TenantSettings("default"),
            Key("key_1", "evaluate", "agt_reads", ("analyst",), None),
            Agent("agt_reads", "approved", ("analyst",), "key_1"),
            Session(session, "active", "analyst", "agt_reads"),
            compile_role("analyst", [POLICY]),
            7,
        )
        asked = Retrieval(
            "analyst",
            f"user-{number % 10}@example.com",
            ("contracts", "crm", "tickets", "payroll")[number % 4],
            "low",
            agent_id="agt_reads",
            session_id=session,
            query=f"what does clause {number} of the contract with the supplier say?",
        )
        return decision_record(
            asked, evaluate(asked, facts), facts, event_id=eid, salt=os.urandom(32)
        )


class Sender:
    """Posts for some tenants, `at_once` at a time, but for each tenant one at a time, as a shipper
    does."""

    def __init__(self, port: int, keys: list[str], bodies: list[tuple[bytes, int]]) -> None:
        self._port = port
        self._bodies = bodies
        self._waiting: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        for key in keys:
            self._waiting.put((key, 0))
        self.over = threading.Event()
        self.records = 0
        self.took: list[float] = []
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def run(self, posts: int | None = None) -> None:
        """Post until the input ends, or for a number of posts."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self.over.is_set() and (posts is None or posts > 0):
            key, at = self._waiting.get()
            if at == len(self._bodies):
                self.wrong.append("no more records: the run was too long")
                return
            self._post(connection, key, at)
            self._waiting.put((key, at + 1))
            posts = None if posts is None else posts - 1
        connection.close()

    def _post(self, connection: http.client.HTTPConnection, key: str, at: int) -> None:
        body, last = self._bodies[at]
        first = self._bodies[at - 1][1] + 1 if at else 0
        headers = {"X-API-Key": key, "Content-Type": "application/json"}
        started = time.perf_counter()
        connection.request("POST", PATH, body, headers)
        answer = connection.getresponse()
        said = answer.read()
        with self._lock:
            self.took.append((time.perf_counter() - started) * 1000)
            self.records += last + 1 - first
            if answer.status != 200 or json.loads(said)["n"] != last:
                self.wrong.append(f"{answer.status} {said[:300]!r}")
                self.over.set()


def main() -> None:
    given: dict[str, Any] = json.loads(sys.stdin.readline())
    records = Records(given["source"])
    bodies = [records.batch(FIRST)] + [records.batch(given["size"]) for _ in range(BATCHES)]
    sender = Sender(given["port"], given["keys"], bodies)
    sender.run(len(given["keys"]))
    sender.records, sender.took = 0, []
    print("ready", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=sender.run) for _ in range(given["at_once"])]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    sender.over.set()
    for thread in threads:
        thread.join()
    took = [round(each, 1) for each in sorted(sender.took)]
    size = len(bodies[1][0]) / (bodies[1][1] + 1 - bodies[0][1])
    print(json.dumps({"records": sender.records, "took": took, "wrong": sender.wrong, "b": size}))


if __name__ == "__main__":
    main()
