"""A record: the content of an entry of the audit trail, before it has a position in a log.

Everything that doesn't depend on the position is encoded once, here; `core` and `entry` only join
bytes. A sidecar spools the record as a `core` (`FORMAT.md`, Entry); the control API appends it
as an `entry`. Knows the fields of every kind but `lineage`, `change` and `purge`, which have
modules of their own. Knows no clock: ids and times are arguments.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from policies.candidates import CandidateDecision
from policies.checks.finding import Facts
from policies.evaluate import Decision
from policies.ground.canonical import MAX_IDENTIFIER, encode
from policies.ground.errors import Invalid
from policies.ground.masking import masked_text
from policies.levels import Levels
from policies.retrieval import MAX_QUERY, Retrieval
from policies.sets.source_levels import at_effective_level
from policies.statement import StatementMark, masked_parameters
from policies.trail.commitment import commit
from policies.trail.fields import REQUEST, RESPONSE, STATEMENT, names

MAX_ENTRY = 64 * 1024
"""The most bytes that an entry of the log may have."""

REPORT_PREFIX = "report mode, forwarded: "
"""The start of the reason of a denial in spite of which a sidecar forwarded the request, because
its source is in mode `report`."""

# The members of each, and where a retrieval, a decision and a mark have them.
_REQUEST = tuple((name, Retrieval._fields.index(name)) for name in names(REQUEST))
_RESPONSE = tuple((name, Decision._fields.index(name)) for name in names(RESPONSE))
_STATEMENT = tuple((name, StatementMark._fields.index(name)) for name in names(STATEMENT))
_POSITION = 4096  # the most that ids, log, prev, seq, src and ts add to `pub` and `cm`
_sha256 = hashlib.sha256


class Record(NamedTuple):
    """A record's content as canonical bytes: `head` is the entry up to `kind`, `pub` the fields in
    clear, and `openings` the `{path: [salt, value]}` behind the commitments in `cm`.

    `decided` holds the retrieval, the decision and the user as recorded, from which a decision's
    bytes were made. With it, the record is indexed without being decoded; None for other kinds.
    """

    eid: str
    kind: str
    head: bytes
    pub: bytes
    openings: bytes = b"{}"
    masked: bytes = b"[]"
    decided: tuple[Retrieval, Decision, str] | None = None

    def core(self, src: bytes) -> bytes:
        """Return the record's core, which an enforcement point hashes and spools: the record and
        `src`, its place in the spool, without a position in the log."""
        return b'%b,"masked":%b,"pub":%b,"src":%b,"v":1}' % (self.head, self.masked, self.pub, src)

    def entry(self, log: str, seq: int, prev: str, ts: str) -> bytes:
        """Return the entry of a record that the control API made itself, hence without `src`. `seq`
        is its number in the log, and `prev` the base64 of the previous leaf hash, empty for the
        first entry."""
        return b'%b,"log":"%b","masked":%b,"prev":"%b","pub":%b,"seq":%d,"ts":"%b","v":1}' % (
            self.head,
            log.encode(),
            self.masked,
            prev.encode(),
            self.pub,
            seq,
            ts.encode(),
        )


def make_record(
    kind: str,
    eid: str,
    pub: bytes,
    cm: bytes = b"{}",
    openings: bytes = b"{}",
    masked: bytes = b"[]",
    decided: tuple[Retrieval, Decision, str] | None = None,
) -> Record:
    """Make a record. Raises `Invalid` if the entry would be larger than `MAX_ENTRY`."""
    # Refuse it here, before anything is recorded or answered: the log could not remove it again.
    size = len(cm) + len(pub) + len(masked) - 2
    if size > MAX_ENTRY - _POSITION:
        raise Invalid(
            f"the record has {size} bytes; an entry holds at most {MAX_ENTRY - _POSITION}"
        )
    head = b'{"cm":%b,"eid":"%b","kind":"%b"' % (cm, eid.encode(), kind.encode())
    return Record(eid, kind, head, pub, openings, masked, decided)


def decision_record(
    retrieval: Retrieval,
    decision: Decision,
    facts: Facts | None,
    *,
    event_id: str,
    salt: bytes,
    masking: bool | None = None,
    candidates: Sequence[CandidateDecision] = (),
) -> Record:
    """Return the record of one evaluation: its response, every input, and the facts used, so that
    the decision can be derived again. `facts` is None if the call was refused before any were
    gathered. `salt` is 32 random bytes, used for this record only. `masking` says if personal data
    is masked; by default, the tenant's setting in `facts` decides. `candidates` are the decisions
    of those candidates that decide otherwise (`policies.candidates`)."""
    if masking is None:
        # INVARIANT: without facts, mask. A record can't be taken back once it is written.
        masking = facts is None or facts.settings.pii_masking
    if facts is not None:
        retrieval = at_effective_level(retrieval, facts.sources)
    personal = {"user_id": retrieval.user_id}
    if retrieval.query is not None:
        personal["query"] = retrieval.query
    statement = retrieval.statement
    if statement is not None:
        _add_statement(personal, statement)
    masked = _mask(personal, retrieval) if masking else b"[]"
    if statement is not None and "query" in personal:
        # A statement may be longer than the text that a request may have.
        personal["query"] = _cut(personal["query"])
    cm, openings = commit(salt, personal)
    request = _request(retrieval)
    # Hash the commitments, not the values: otherwise a guess at the query could be tested against
    # this hash, which stays in the log after the opening is erased.
    context = retrieval.context_hash or _sha256(b"audit/context/v1\0" + request + cm).hexdigest()
    pub = b'"context_hash":"%b","facts":%b%b,"request":%b,"response":%b%b}' % (
        context.encode(),
        b"{}" if facts is None else _facts(facts, retrieval.levels),
        b',"masking":true' if masking else b"",
        request,
        encode(response_of(decision)),
        b"" if statement is None else b',"statement":' + encode(_given(statement, _STATEMENT)),
    )
    decided = (retrieval, decision, personal["user_id"])
    if candidates:
        named = b'{"candidates":%b,' % _candidates(tuple(candidates))
        # INVARIANT: a candidate never changes an answer, not even of a call whose facts barely fit
        # into an entry. What does not fit beside them is left out.
        with suppress(Invalid):
            return make_record("decision", event_id, named + pub, cm, openings, masked, decided)
    return make_record("decision", event_id, b"{" + pub, cm, openings, masked, decided)


def _add_statement(personal: dict[str, str], statement: StatementMark) -> None:
    # The digest too is committed to: a guess at the text could be tested against it.
    personal["statement_digest"] = statement.digest
    if statement.parameters is not None:
        personal["parameters"] = statement.parameters


# The same few candidates decide the same few things otherwise, again and again.
@lru_cache(maxsize=1024)
def _candidates(candidates: tuple[CandidateDecision, ...]) -> bytes:
    return encode([each.to_wire() for each in candidates])


def masked_user(user_id: str) -> str:
    """Return a user id as it is recorded with masking on. The result is still an identifier."""
    return masked_text(user_id).text[:MAX_IDENTIFIER]


def _mask(personal: dict[str, str], retrieval: Retrieval) -> bytes:
    """Mask the texts of `personal` in place; some are masked already in `retrieval`. Return
    canonical `[[path, rule]]`, one pair for each kind of personal data found."""
    ahead, statement = dict(retrieval.masked), retrieval.statement
    found: list[tuple[str, str]] = []
    for path, text in personal.items():
        if path == "parameters":
            done = None if statement is None else statement.masked
            masked = done or masked_parameters(text)
        elif path == "statement_digest":
            continue
        else:
            masked = ahead.get(text) or masked_text(text)
        found += [(path, label) for label in masked.labels]
        personal[path] = masked.text
    # A label may be longer than the text it replaces, and the limits hold for the recorded text.
    personal["user_id"] = personal["user_id"][:MAX_IDENTIFIER]
    if "query" in personal:
        personal["query"] = _cut(personal["query"])
    if any(path == "query" for path, _ in found):
        # INVARIANT: what is masked never leaves. A guess at it could be tested against the digest.
        personal.pop("statement_digest", None)
    return encode(sorted(found))


def _cut(query: str) -> str:
    # The limit is in bytes, so the cut may split a character: `ignore` drops the rest of it.
    return query.encode()[:MAX_QUERY].decode(errors="ignore")


def _request(retrieval: Retrieval) -> bytes:
    return encode(_given(retrieval, _REQUEST))


def response_of(decision: Decision) -> dict[str, Any]:
    """Return the decision as the `response` of an entry. Members that are None are left out, as
    `policy_id` and `policy_version` are if no policy decided (`default_deny`)."""
    return _given(decision, _RESPONSE)


def _given(values: tuple[Any, ...], places: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """Return a dict of those values that are not None. `places` are pairs of a member's name and
    its index in `values`."""
    given = {}
    for name, at in places:  # takes two thirds of the time of a comprehension
        value = values[at]
        if value is not None:
            given[name] = value
    return given


def _facts(facts: Facts, levels: Levels | None) -> bytes:
    # Join by hand, in the order of the names: agent and key were encoded once, when they were
    # compiled, since many decisions cite them.
    members = b'"key":%b,%b"require_agent_id":%b,"revision":%d' % (
        facts.key.wire,
        b"" if levels is None else _levels(levels),
        b"true" if facts.settings.require_agent_id else b"false",
        facts.revision,
    )
    if facts.settings.frozen_at is not None:
        members = b'"frozen_at":%d,%b' % (facts.settings.frozen_at, members)
    if facts.agent is not None:
        members = b'"agent":%b,%b' % (facts.agent.wire, members)
    if facts.role is not None:
        members += b',"role":"%b"' % facts.role.digest.encode()
    if facts.session is not None:
        members += b',"session":' + encode(facts.session.to_wire())
    if facts.sources is not None:
        members += b',"sources":"%b"' % facts.sources.digest.encode()
    return b"{%b}" % members


@lru_cache(maxsize=128)  # there are at most 125 of them
def _levels(levels: Levels) -> bytes:
    return b'"levels":%b,' % encode(levels.stated())


def heartbeat_record(revision: int, *, record_id: str) -> Record:
    """Return the record by which a sidecar that has nothing to decide says that it has this
    revision of the policy set in force."""
    return make_record("heartbeat", record_id, encode({"revision": revision}))


def gap_record(
    reason: str, *, instance: str | None, first: int | None, lost: int | None, record_id: str
) -> Record:
    """Return the record by which an enforcement point declares that it lost records: `lost` of
    them, from number `first` of the spool `instance`. Each of these is None if unknown."""
    pub = {"reason": reason, "instance": instance, "first": first, "lost": lost}
    return make_record("gap", record_id, encode(pub))


def log_heartbeat_record(*, record_id: str) -> Record:
    """Return the record that says that the log has had no entry for an hour. With it, a fresh
    checkpoint shows that nothing is missing at the end."""
    return make_record("heartbeat", record_id, b"{}")


def incarnation_record(held: int, seen: int, doubted: int, *, record_id: str) -> Record:
    """Return the record that says that the store was restored to an older state. The store holds
    revision `held` of the policy set, though revision `seen` was already signed; the newest state
    of `doubted` documents is lost. Log entries that were lost follow this one again, as far as
    enforcement points still have their records."""
    pub = {"reason": "the store was put back", "held": held, "seen": seen, "doubted": doubted}
    return make_record("incarnation", record_id, encode(pub))
