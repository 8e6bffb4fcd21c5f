"""Derives the decisions of a log again, one entry at a time, by the same `policies.evaluate`.

    recomputer = Recomputer(documents)          documents(digest) -> bytes, or None
    for entry in entries:                       decoded, in order, of every kind
        finding = recomputer.feed(entry)
    recomputer.counts

Every decision has one of these results:

    recomputed          the same response follows, and the changes before it agree with its facts
    outside             made outside of the ten checks: nothing to derive it from
    document_missing    its policies are gone: a finding, unless what was lost with a restored store
    facts_unknown       the changes behind its facts were not walked
    a finding           another response follows, or the facts contradict something

Memory is bounded. To hide a rewritten verdict, its facts have to be rewritten too, then the changes
that those facts contradict, and the documents, which are addressed by their digests.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from policies.evaluate import evaluate
from policies.sets.policy_set import agent_name, role_name, session_name
from policies.sets.role import Role
from policies.sets.source_levels import SOURCES, SourceLevels
from policies.trail.findings import Finding, Reason
from policies.trail.recompute.document_history import FREEZE, DocumentHistory, Held
from policies.trail.recompute.facts import RecordedFacts, difference, read_facts, read_role
from policies.trail.record import REPORT_PREFIX, response_of

MAX_DOCUMENTS = 256
MAX_SEEN = 16_384
"""The most facts that are remembered for comparison with later decisions, and the most sessions."""

Documents = Callable[[str], bytes | None]
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)


@dataclass(slots=True)
class RecomputeCounts:
    """The number of decisions by their result (see this module). `not_recomputable` is the sum of
    `document_missing` and `facts_unknown`. `restored` counts those of `document_missing` that
    follow an `incarnation` entry, which excuses them; `facts_restored` those of `facts_unknown`
    that follow one."""

    recomputed: int = 0
    outside: int = 0
    findings: int = 0
    restored: int = 0
    document_missing: int = 0
    facts_unknown: int = 0
    facts_restored: int = 0

    @property
    def not_recomputable(self) -> int:
        return self.document_missing + self.facts_unknown


class _Contradiction(Exception):
    """the recorded facts contradict each other, or what was recorded before"""


class Recomputer:
    """Derives the decisions of one log, or of a part of it, in order. `documents` is a function
    that returns the document with a digest, None if there is none."""

    def __init__(self, documents: Documents) -> None:
        self.counts = RecomputeCounts()
        self._documents = documents
        self._history = DocumentHistory()
        self._restored = False
        self._compiled: OrderedDict[str, Role | SourceLevels | Reason] = OrderedDict()
        self._same: OrderedDict[tuple[str, int], str | None] = OrderedDict()
        self._owners: OrderedDict[str, tuple[str, str | None]] = OrderedDict()

    def has_document(self, digest: str) -> bool:
        """Return whether the document with this digest is already compiled, so that the next
        decision that cites it needs no look-up."""
        return digest in self._compiled

    def take_counts(self) -> RecomputeCounts:
        """Return the counts since the last call, and set them to zero."""
        counts, self.counts = self.counts, RecomputeCounts()
        return counts

    def feed(self, entry: Mapping[str, Any]) -> Finding | None:
        """Take in the next entry, decoded. Return a finding if the entry is wrong, None otherwise;
        in both cases the next entry may follow."""
        kind = entry["kind"]
        if kind == "change":
            # No version has written one: it would only keep the facts behind it from being held
            # against the changes.
            if not self._history.change(entry):
                self.counts.findings += 1
                message = "what the change published can't be read"
                return Finding(entry["seq"], Reason.FACTS_CONTRADICT, message, entry["eid"])
        elif kind == "incarnation":
            # The store went back: revisions, sessions and documents begin anew.
            self._history.restart()
            self._restored = True
            self._same.clear()
            self._owners.clear()
        elif kind == "decision":
            return self._decision(entry)
        return None

    def _decision(self, entry: Mapping[str, Any]) -> Finding | None:
        try:
            finding = self._derive(entry)
        except _Contradiction as error:
            finding = (Reason.FACTS_CONTRADICT, str(error))
        except _UNREADABLE as error:
            finding = (Reason.FACTS_CONTRADICT, f"the facts can't be read: {error!r:.100}")
        if finding is None:
            return None
        if finding[0] is not Reason.DOCUMENT_MISSING:  # those are counted by themselves
            self.counts.findings += 1
        return Finding(entry["seq"], *finding, entry["eid"])

    def _derive(self, entry: Mapping[str, Any]) -> tuple[Reason, str] | None:
        pub = entry["pub"]
        if not pub["facts"]:
            return self._outside(pub["response"])
        recorded = read_facts(entry)
        role = self._document(recorded.role, read_role)
        sources = self._document(recorded.sources, SourceLevels)
        for found, digest in ((role, recorded.role), (sources, recorded.sources)):
            if isinstance(found, Reason):
                return found, f"the document `{digest}` does not have this digest"
        if not isinstance(role, Role | None) or not isinstance(sources, SourceLevels | None):
            raise _Contradiction("a document is cited as one of another kind")
        # INVARIANT: first of all, since what contradicts the changes must not be remembered. One
        # record that a stolen key forged would make every true decision beside it contradictory.
        verified = self._hold_against_changes(recorded)
        self._require_consistent(recorded, role, pub["response"])
        if fault := recorded.level_fault(sources):
            raise _Contradiction(fault)
        for digest, document in ((recorded.role, role), (recorded.sources, sources)):
            if digest is not None and document is None:
                return self._missing(digest)
        decision = evaluate(recorded.retrieval, recorded.facts(role, sources))
        response = dict(pub["response"])
        # A source in mode `report` forwards what is denied, and the record says so.
        if recorded.sourced and decision.decision == "DENY":
            response["reason"] = response["reason"].removeprefix(REPORT_PREFIX)
        if differs := difference(response, response_of(decision)):
            return Reason.DECISION_DIFFERS, differs
        if verified:
            self.counts.recomputed += 1
        else:
            self.counts.facts_unknown += 1
            # To hide rewritten facts, an insider with the log's key needs no more than such an
            # entry: what follows it is not proven.
            self.counts.facts_restored += self._restored
        return None

    def _missing(self, digest: str) -> tuple[Reason, str] | None:
        """Count a decision whose document is missing, and return its fault, or None if a restore of
        the store excuses it. Documents are kept as long as decisions cite them: without this
        finding, a rewritten verdict would pass."""
        self.counts.document_missing += 1
        if self._restored:
            # The store went back, and a sidecar may have decided by what was lost with it.
            self.counts.restored += 1
            return None
        return Reason.DOCUMENT_MISSING, f"the document `{digest}` that it cites is missing"

    def _outside(self, response: Mapping[str, Any]) -> tuple[Reason, str] | None:
        """Return the fault of a decision that was made without facts, because of a stale policy set
        or an unreadable request. Such a decision can only be a denial; then return None."""
        if response["decision"] != "DENY" or "check" in response or "policy_id" in response:
            return Reason.DECISION_DIFFERS, "without facts, only a denial without a policy follows"
        self.counts.outside += 1
        return None

    def _document(
        self, digest: str | None, read: Callable[[bytes], Role | SourceLevels]
    ) -> Role | SourceLevels | Reason | None:
        """Return the compiled document with this digest; None if there is none; or a `Reason` if
        its bytes don't match the digest."""
        if digest is None:
            return None
        if digest in self._compiled:
            self._compiled.move_to_end(digest)
            return self._compiled[digest]
        body = self._documents(digest)
        if body is None:
            return None  # not remembered: in a file, a document may come after its first decision
        sound = hashlib.sha256(body).hexdigest() == digest
        found = self._compiled[digest] = read(body) if sound else Reason.DOCUMENT_MISMATCH
        if len(self._compiled) > MAX_DOCUMENTS:
            self._compiled.popitem(last=False)
        return found

    def _require_consistent(
        self, recorded: RecordedFacts, role: Role | None, response: Mapping[str, Any]
    ) -> None:
        """Compare the facts with the request and with the facts of earlier decisions. Raises
        `_Contradiction`."""
        asked, agent, session = recorded.retrieval, recorded.agent, recorded.session
        if role is not None and role.name != asked.agent_role:
            raise _Contradiction(f"the policies are those of role `{role.name}`")
        if agent is not None and agent.agent_id != asked.agent_id:
            raise _Contradiction(f"the call names another agent than `{agent.agent_id}`")
        if session is not None and session.session_id != asked.session_id:
            raise _Contradiction(f"the call names another session than `{session.session_id}`")
        if session is None and asked.session_id is not None and response["decision"] == "ALLOW":
            raise _Contradiction("a call was allowed in a session that it had not claimed")
        if session is not None:
            owner = (session.agent_role, session.agent_id)
            if _remembered(self._owners, session.session_id, owner) != owner:
                raise _Contradiction(f"session `{session.session_id}` had another owner before")
        # A sidecar's documents are all of one revision. A control API beside others may read one a
        # moment before it learns of its revision.
        if recorded.sourced:
            for name, value in (*_documents_of(recorded), (FREEZE, _freeze(recorded))):
                known = _remembered(self._same, (name, recorded.revision), value)
                if known != value:
                    raise _Contradiction(
                        f"`{name}` was {_short(known)} for another decision at revision "
                        f"{recorded.revision}, and is {_short(value)} here"
                    )

    def _hold_against_changes(self, recorded: RecordedFacts) -> bool:
        """Compare the facts with the changes that the log recorded before. Return True if they
        agree, and False if those changes are not known; raise `_Contradiction` if they disagree."""
        key = f"key/{recorded.key.key_id}", recorded.key_digest
        wanted = [*_documents_of(recorded), key]
        results = [self._held(name, value, recorded) for name, value in wanted]
        # Of these two the usual case leaves no entry, so an unknown one says nothing.
        self._held(FREEZE, _freeze(recorded), recorded)
        session = recorded.session
        if session is not None and session.state == "active":
            self._held(session_name(session.session_id), None, recorded)
        return Held.UNKNOWN not in results

    def _held(self, name: str, value: str | None, recorded: RecordedFacts) -> Held:
        held = self._history.holds(name, value, recorded.revision, recorded.time)
        if held is Held.CONTRADICTS:
            raise _Contradiction(
                f"`{name}` is recorded as {_short(value)}, which was not in force at revision "
                f"{recorded.revision} by the changes before"
            )
        return held


def _documents_of(recorded: RecordedFacts) -> list[tuple[str, str | None]]:
    """Return the name and digest of each document from which the facts come, except the key's."""
    named: list[tuple[str, str | None]] = []
    # The policies of a role that the agent may not act in decide nothing, and a sidecar that has
    # its own agent's documents alone cites none: that says nothing of what there was.
    if recorded.role is not None or recorded.needs_role:
        named.append((role_name(recorded.retrieval.agent_role), recorded.role))
    if recorded.retrieval.agent_id is not None:
        named.append((agent_name(recorded.retrieval.agent_id), recorded.agent_digest))
    # A sidecar of before ignores the levels, and cites none: that says nothing of what there was.
    if recorded.sources is not None:
        named.append((SOURCES, recorded.sources))
    return named


def _freeze(recorded: RecordedFacts) -> str | None:
    since = recorded.settings.frozen_at
    return None if since is None else str(since)


def _short(value: str | None) -> str:
    return "absent" if value is None else f"`{value[:16]}`"


def _remembered(seen: OrderedDict[Any, Any], name: object, value: object) -> Any:
    """Return the value that was first seen under this name; `value` if the name is new, or was
    forgotten. The `MAX_SEEN` names used last are kept."""
    known = seen.setdefault(name, value)
    seen.move_to_end(name)
    if len(seen) > MAX_SEEN:
        seen.popitem(last=False)
    return known
