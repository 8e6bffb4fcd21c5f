"""Everything that the compiled modules make of one seed's input, as text: decisions, records, what
is read back, what a verification finds, and every error with its message."""

from collections.abc import Callable, Iterator
from random import Random

import orjson

from policies.checks.finding import Facts
from policies.definitions.wildcard import matcher, shared_prefix
from policies.evaluate import Decision, admitted, evaluate, gather
from policies.ground.canonical import check, micros, rfc3339, unb64
from policies.retrieval import Retrieval, parse_retrieval
from policies.trail.entry import StoredRow, audit_event, index_of
from policies.trail.record import MAX_ENTRY, Record, decision_record
from policies.trail.record_fast_path import match_batch, match_record, read
from policies.trail.spool_chain import read_payload, spool_payload, src_member
from policies.trail.verify import LogHead, Verifier
from tests.compiled import draws
from tests.policies.world import Log


def outcomes(seed: int, count: int) -> Iterator[str]:
    """`count` decisions and records, and what else is made of them."""
    draw = Random(seed)
    records: list[Record] = []
    known, key = draws.policy_set(draw), draws.key(draw)
    for number in range(count):
        if number % 16 == 15:
            known, key = draws.policy_set(draw), draws.key(draw)
        try:
            retrieval = parse_retrieval(draws.body(draw))
            facts = gather(known, key, retrieval)
            yield f"{admitted(retrieval, facts)}"
            facts = facts._replace(session=draws.session(draw, retrieval.session_id))
            decision = evaluate(retrieval, facts)
            yield repr((retrieval, decision))
            given: Facts | None = facts if draw.random() < 0.95 else None
            record = decision_record(
                retrieval,
                decision,
                given,
                event_id=f"event-{seed}-{number}",
                salt=draw.randbytes(32),
                masking=None if draw.random() < 0.3 and given is not None else False,
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, both forms must agree
            yield described(error)
            continue
        yield repr(record)
        yield from _with_candidates(Random(f"{seed} {number}"), retrieval, decision, given)
        records.append(record)
        yield from _read_back(draw, record)
        yield from _small_functions(draw)
    for at in range(0, len(records), 8):
        yield from _verified(draw, records[at : at + 8])


def _with_candidates(
    draw: Random, retrieval: Retrieval, decision: Decision, facts: Facts | None
) -> Iterator[str]:
    """The record with what candidates decide otherwise, and read back."""
    candidates = draws.candidates(draw)
    if candidates:
        record = decision_record(
            retrieval, decision, facts, event_id="e", salt=bytes(32), candidates=candidates
        )
        yield repr(record)
        yield from _read_back(draw, record)


def described(error: BaseException) -> str:
    """An error's type, message and details. Not its cause: mypyc drops the `from` of a `raise`,
    which only a traceback in a log would show."""
    return f"{type(error).__name__}: {error} {getattr(error, 'details', None)!r}"


def _said(work: Callable[[], object]) -> str:
    try:
        return repr(work())
    except Exception as error:  # noqa: BLE001
        return described(error)


def _read_back(draw: Random, record: Record) -> Iterator[str]:
    """The record as a sidecar ships it, whole and damaged, by the fast and the slow reader."""
    n = draw.choice((0, 1, 2**40))
    prev = "A" * 43 + "=" if n else ""
    core = record.core(src_member("sidecar-1", "i1", n, prev, rfc3339(draws.START + n)))
    whole = spool_payload(core, record.openings)
    for raw in (whole, draws.damaged(draw, whole)):
        found = match_record(raw)
        if found is not None:
            yield _said(lambda found=found: read(found))  # type: ignore[misc]
        yield _said(lambda raw=raw: read_payload(orjson.loads(raw)))  # type: ignore[misc]
        body = b'{"instance":"i1","source":"sidecar-1","records":[%b,%b]}' % (whole, raw)
        batch = match_batch(body)
        shipped = [] if batch is None else batch.records
        yield _said(lambda shipped=shipped: [*map(read, shipped)])  # type: ignore[misc]


def _small_functions(draw: Random) -> Iterator[str]:
    """What is called with text and values from outside."""
    text = draw.choice((*draws.NAMES, *draws.TEXTS, rfc3339(draw.randrange(2**52)), "AAAA", "A==="))
    cut = text[: draw.randint(0, 30)]
    odd = draw.choice(draws.ODD)
    patterns = draw.sample(draws.PATTERNS, 3)
    yield _said(lambda: micros(cut))
    yield _said(lambda: unb64(cut))
    yield _said(lambda: check(odd))
    yield _said(lambda: check([{"a": odd}, odd]))
    yield _said(lambda: (matcher(patterns)(text), shared_prefix(sorted(patterns), text)))


def _verified(draw: Random, records: list[Record]) -> Iterator[str]:
    """The reports on a small log of these records, whole and with a fault in a row or the head."""
    log = Log()
    for record in records:
        if draw.random() < 0.5:
            log.direct(record)
        else:
            log.shipped(record, draw.choice(("sidecar-1", "sidecar-2")))
    yield _report(log.rows, log.head())
    for _ in range(4):
        rows, at = list(log.rows), draw.randrange(len(log.rows))
        rows[at] = _damaged_row(draw, rows[at])
        yield _report(rows, log.head())
        yield from _unchecked(rows[at])
    yield _report(log.rows[1:], log.head())
    yield _report([*log.rows, log.rows[0]], log.head())
    yield _report(log.rows, log.head(), expected=draw.randbytes(32))
    yield _report(log.rows, log.head()._replace(size=draw.randrange(9)))


def _unchecked(row: StoredRow) -> Iterator[str]:
    """What is made of an entry that nothing has checked: compiled functions check the types of
    their arguments, and say so in words of their own."""
    for work in (index_of, lambda entry: audit_event(entry, b"h", row.openings)):
        try:
            yield repr(work(orjson.loads(row.entry)))
        except TypeError as error:
            yield type(error).__name__
        except Exception as error:  # noqa: BLE001
            yield described(error)


def _damaged_row(draw: Random, row: StoredRow) -> StoredRow:
    part = draw.randrange(6)
    if part == 0 and row.openings is not None:
        return row._replace(openings=draws.damaged(draw, row.openings))
    if part == 1 and row.columns is not None:
        return row._replace(columns=row.columns._replace(ts=draw.randrange(2**50)))
    entry = draws.damaged(draw, row.entry)
    if draw.random() < 0.02:
        entry = b'{"%b":0}' % (b"x" * MAX_ENTRY)
    # Without the columns, more of the faults reach the checks behind them.
    if part == 2:
        return row._replace(entry=entry)
    return row._replace(entry=entry, hash=None, columns=None)


def _report(rows: list[StoredRow], head: LogHead, expected: bytes | None = None) -> str:
    verifier = Verifier("default")
    if expected is not None:
        verifier.expect(1, expected)
    told = _said(lambda: verifier.feed_all(rows))
    return f"{told} {verifier.finish(head)!r} {verifier.silences.longest()}"
