"""Which revisions of the policy set a batch of records shows to be in force at its enforcement
point. Reads as little of the records as possible: in most batches nothing has advanced, and one
record shows that.
"""

from collections.abc import Sequence

import orjson

from control_api.store.queries.acknowledgements import Acknowledged
from policies.trail.spool_chain import Spooled

MAX_REVISION = 2**53


def advances(records: Sequence[Spooled], first_seq: int, newest: int | None) -> list[Acknowledged]:
    """For each revision after `newest` that the records show: the first record at it. The records
    get consecutive places in the log, from `first_seq`."""
    # A source's revision grows, so that of its last record tells whether any is new. It may fall if
    # the sidecar gets another store; what it then acknowledges counts from the old one's end on.
    reached = -1 if newest is None else newest
    last = (revision_of(record) for record in reversed(records))
    if next((revision for revision in last if revision >= 0), -1) <= reached:
        return []
    advanced: list[Acknowledged] = []
    for seq, record in enumerate(records, first_seq):
        revision = revision_of(record)
        if revision > reached:
            advanced.append(Acknowledged(revision, seq, record.columns.ts))
            reached = revision
    return advanced


def revision_of(record: Spooled) -> int:
    """The revision at which a record was decided, or beat; -1 if it says none."""
    kind = record.columns.kind
    if kind not in ("decision", "heartbeat"):
        return -1
    pub = orjson.loads(record.members[2])
    revision = (pub["facts"] if kind == "decision" else pub).get("revision", -1)
    # Any key of scope `sidecar` can send any number.
    return revision if type(revision) is int and 0 <= revision < MAX_REVISION else -1
