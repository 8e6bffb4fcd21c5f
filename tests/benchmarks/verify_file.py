"""What `sluice verify FILE` costs beside its floor: SHA-256 over the same bytes and one
`orjson.loads` a line. As a rival, `sha256sum`, which only says that the file is the same.

    python -m tests.benchmarks.verify_file [ENTRIES]        300,000 unless given
    python -m tests.benchmarks.verify_file memory ENTRIES   memory, from a pipe, without a file

Two thirds of the entries come from three sidecars, with their own chains; all have openings. They
are measured with the facts that a decision on a registered agent's session records, and without,
as a call is recorded that is refused before any are gathered. Times are CPU seconds of the
processes, so that what else the machine does counts little.
"""

import itertools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from policies.definitions.model import Agent, Key, Session
from policies.ground.canonical import b64, rfc3339
from policies.ground.signing import Signer
from policies.sets.policy_set import role_document
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.log_file.file import LogFileWriter
from policies.trail.log_file.lines import CheckpointLine, HeaderLine, PolicyLine
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from policies.trail.record import Record
from policies.trail.spool_chain import core_hash, src_member
from tests.benchmarks.make_log import KINDS, records
from tests.benchmarks.measure import Figure
from tests.policies.world import FULL, POLICY, decided, full_facts
from tests.support.stack import ROOT

LOG, START = "default", 1_767_225_600_000_000
SIGNER = Signer(bytes(32))
KEY = VerifierKey(LOG, ED25519, SIGNER.public).text()
DOCUMENTS = (role_document([POLICY]) or b"",)
"""What `decisions` cite."""
BATCH = 1000
ROUNDS = 3


def decisions(count: int) -> Iterator[Record]:
    """Decisions of 50 agents in 200 sessions, with the facts they rest on."""
    made = []
    for number in range(min(KINDS, count)):
        agent, session = f"agt_{number % 50}", f"s_{number % 200}"
        known = full_facts()
        facts = known._replace(
            agent=Agent(agent, "approved", ("analyst", "auditor"), "key_1"),
            key=Key("key_1", "evaluate", agent, ("analyst",)),
            session=Session(session, "active", "analyst", agent),
        )
        query = f"which clauses bind the lender after closing {number}?"
        asked = FULL._replace(agent_id=agent, session_id=session, query=query)
        made.append(decided(asked, facts, seed=number))
    for number, record in zip(range(count), itertools.cycle(made), strict=False):
        eid = f"019aa37e-fdfb-756d-b791-{number:012x}"
        head = record.head.replace(
            b'"eid":"%b"' % record.eid.encode(), b'"eid":"%b"' % eid.encode()
        )
        yield record._replace(eid=eid, head=head)


def export(
    entries: int, made: Iterable[Record], documents: Iterable[bytes] = ()
) -> Iterator[bytes]:
    """The bytes of a file of so many entries, which are the records `made` and cite `documents`."""
    writer, tree, prev = LogFileWriter(), Frontier(), ""
    header = [{"key": KEY, "endorsement": None}]
    made_at = rfc3339(START)
    yield writer.line(HeaderLine(LOG, LOG, header, 0, 0, entries, True, made_at))
    for each in documents:
        yield writer.line(PolicyLine(each))
    chains = {f"sidecar-{n}": (0, "") for n in range(3)}
    lines: list[bytes] = []
    for seq, record in enumerate(made):
        ts = rfc3339(START + seq * 500)
        entry = record.entry(LOG, seq, prev, ts)
        if seq % 3:
            source = f"sidecar-{seq % 5 % 3}"
            n, before = chains[source]
            src = src_member(source, "spool-1", n, before, ts)
            chains[source] = (n + 1, b64(core_hash(record.core(src))))
            head, found, tail = entry.rpartition(b',"ts":')
            entry = b'%b,"src":%b%b%b' % (head, src, found, tail)
        leaf = leaf_hash(entry)
        prev = b64(leaf)
        tree.append(leaf)
        lines.append(b'{"entry":%b,"openings":%b}\n' % (entry, record.openings))
        if len(lines) == BATCH or seq == entries - 1:
            yield writer.joined(b"".join(lines), len(lines))
            note = checkpoint.sign(Checkpoint(LOG, tree.size, tree.root()), SIGNER)
            yield writer.line(CheckpointLine(note))
            lines.clear()
    yield writer.end()


# SHA-256 over all bytes, and each line decoded once. A program of its own, which imports no more.
_FLOOR = """\
import hashlib, orjson, sys
digest = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    while chunk := file.read(1024 * 1024):
        chunk += file.readline()
        digest.update(chunk)
        for line in chunk.splitlines():
            orjson.loads(line)
"""
FLOOR = [sys.executable, "-c", _FLOOR]
VERIFY = [sys.executable, "-m", "deploy.commands.verify", "--key", KEY, "--json"]


def taken(command: list[str]) -> tuple[float, float]:
    """CPU and clock seconds of a command."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.monotonic() - started


def rates(
    entries: int, made: Iterable[Record], documents: Iterable[bytes], content: str
) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        with path.open("wb") as file:
            file.writelines(export(entries, made, documents))
        name = str(path)
        runs = [(taken([*FLOOR, name]), taken([*VERIFY, name])) for _ in range(ROUNDS)]
        empty = Path(folder) / "empty.jsonl"
        empty.write_bytes(b"".join(export(1, records(0, 1))))
        # What both take for a file of one entry is the start of Python.
        start, idle = (
            min(taken([*command, str(empty)])[0] for _ in range(ROUNDS))
            for command in (VERIFY, FLOOR)
        )
        base = min(run[0][0] for run in runs) - idle
        ours = min(run[1][0] for run in runs) - start
        yield Figure(
            f"verify a file of {entries:,} entries {content}, one process",
            f"{entries / ours:,.0f}/s; floor {entries / base:,.0f}/s; start {start:.2f} s",
            base / ours,
            ">= 0.6",
            base / ours >= 0.6,
        )
        one = min(run[1][1] for run in runs)
        two = min(taken([*VERIFY, "--jobs", "2", name])[1] for _ in range(ROUNDS))
        yield Figure(
            "the same by the clock, --jobs 2", f"{entries / two:,.0f}/s", one / two, "", True
        )
        rival = min(taken(["sha256sum", name])[0] for _ in range(ROUNDS))
        yield Figure("sha256sum of the file", f"{entries / rival:,.0f}/s", rival / ours, "", True)


def memory(entries: int) -> Figure:
    """The most memory that the verifier takes for a log that comes through a pipe."""
    reader = subprocess.Popen([*VERIFY, "-"], cwd=ROOT, stdin=subprocess.PIPE)
    assert reader.stdin is not None
    for piece in export(entries, decisions(entries), DOCUMENTS):
        reader.stdin.write(piece)
    reader.stdin.close()
    assert reader.wait() == 0
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    measure = f"verify {entries:,} entries: resident memory"
    return Figure(measure, f"{used:.0f} MiB", used / 100, "<= 1", used <= 100)


if __name__ == "__main__":
    if sys.argv[1:2] == ["memory"]:
        print(memory(int(sys.argv[2])).row())
    else:
        count = int(sys.argv[1]) if sys.argv[1:] else 300_000
        for figure in itertools.chain(
            rates(count, decisions(count), DOCUMENTS, "with facts"),
            rates(count, records(0, count), (), "without facts"),
        ):
            print(figure.row(), flush=True)
