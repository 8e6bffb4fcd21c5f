"""Recorded decisions follow again from their facts, and a rewritten one does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings

from policies.checks.finding import Facts
from policies.definitions.model import Agent, Key, Policy, Session, TenantSettings
from policies.evaluate import evaluate, refuse
from policies.ground.canonical import encode, rfc3339
from policies.retrieval import Retrieval
from policies.sets.policy_set import document_digest, role_document, session_document
from policies.sets.role import compile_role
from policies.trail.change import ObjectChange, PublishedAs, change_record
from policies.trail.findings import Reason
from policies.trail.recompute.recomputer import Recomputer
from policies.trail.record import REPORT_PREFIX, Record, decision_record, incarnation_record
from tests.policies.strategies import situations
from tests.policies.table_situations import table_situations
from tests.policies.world import START, Log, salt

READS = Policy("pol_reads", 3, "reads", "analyst", ("contracts",), ("payroll",), "high")
WIDE = Policy("pol_reads", 4, "reads", "analyst", ("contracts", "payroll"), (), "high")
ASKED = Retrieval("analyst", "ann", "contracts", "low", agent_id="agt_a")
KEY = Key("key_1", "evaluate", "agt_a")
APPROVED = Agent("agt_a", "approved", ("analyst",))
HOUR = 3_600_000_000


def document(*policies: Policy) -> bytes:
    body = role_document(policies)
    assert body is not None
    return body


class Trail:
    """A log of changes and decisions, with its documents."""

    def __init__(self) -> None:
        self.log, self.revision, self.at = Log(), 0, START
        self.documents: dict[str, bytes] = {}
        self._ids = itertools.count()
        self.change("tenant.created", "default", tenant=b"{}")

    def change(self, what: str, target: str, after: Any = None, **published: bytes | None) -> None:
        """`published` are documents by kind, each of `target`."""
        self.at += HOUR
        rows = []
        for kind, body in published.items():
            self.revision += 1
            digest = None if body is None else document_digest(body)
            name = kind if kind == "tenant" else f"{kind}/{target}"
            rows.append(PublishedAs(name, digest, self.revision))
            if kind == "role" and body is not None and digest is not None:
                self.documents[digest] = body
        change = ObjectChange({}, after or {}, published=rows)
        record_id = f"change-{next(self._ids)}"
        record = change_record(what, target, "key_0", {}, record_id=record_id, change=change)
        self.log.direct(record, at=self.at)

    def registered(self, *policies: Policy) -> None:
        self.change("key.created", "key_1", key=KEY.wire)
        self.change("agent.status", "agt_a", agent=APPROVED.wire)
        self.change("policy.created", "analyst", role=document(*policies))

    def decide(
        self,
        asked: Retrieval = ASKED,
        *policies: Policy,
        revision: int | None = None,
        wait: int = HOUR,
        sourced: bool = False,
        **changed: Any,
    ) -> None:
        """A real decision by these policies, `wait` after what came before."""
        self.at += wait
        at = self.revision if revision is None else revision
        role = None
        if policies:
            role = compile_role("analyst", policies, document_digest(document(*policies)))
        facts = facts_of(role, at)._replace(**changed)
        self.put(asked, evaluate(asked, facts), facts, sourced=sourced)

    def put(self, asked: Any, decision: Any, facts: Any, *, sourced: bool = False) -> None:
        number = next(self._ids)
        record = decision_record(
            asked, decision, facts, event_id=f"event-{number}", salt=salt(number)
        )
        self.log.shipped(record) if sourced else self.log.direct(record, at=self.at)

    def add(self, record: Record) -> None:
        self.log.direct(record, at=self.at)

    def walk(self, first: int = 0) -> tuple[Recomputer, list[Any]]:
        recomputer = Recomputer(self.documents.get)
        entries = [orjson.loads(row.entry) for row in self.log.rows[first:]]
        return recomputer, [each for each in map(recomputer.feed, entries) if each is not None]

    def only(self) -> Any:
        [finding] = self.walk()[1]
        return finding

    def rewrite(self, change: Callable[[dict[str, Any]], None]) -> None:
        """An insider rewrites the last entry, and everything after it, with the real key: hash,
        chain and signature are as they should be."""
        entry = orjson.loads(self.log.rows[-1].entry)
        change(entry)
        self.log.rows[-1] = self.log.rows[-1]._replace(entry=encode(entry))


def facts_of(role: Any, revision: int) -> Facts:
    return Facts(TenantSettings("default"), KEY, APPROVED, None, role, revision)


@pytest.fixture
def trail() -> Trail:
    made = Trail()
    made.registered(READS)
    return made


def test_every_decision_of_a_log_is_derived_again(trail: Trail) -> None:
    trail.decide(ASKED, READS)
    trail.decide(ASKED._replace(source_id="payroll"), READS)
    trail.decide(ASKED._replace(agent_role="nothing"))
    trail.decide(ASKED._replace(agent_id="agt_b"), READS, agent=None)
    recomputer, found = trail.walk()
    assert found == []
    assert recomputer.counts.recomputed == 4
    assert recomputer.counts.not_recomputable == 0


def test_decisions_before_the_first_shown_entry_are_counted_as_unknown(trail: Trail) -> None:
    trail.decide(ASKED, READS)
    assert trail.walk()[0].counts.recomputed == 1
    recomputer, found = trail.walk(first=2)  # the key's registration is outside of this part
    assert (found, recomputer.counts.facts_unknown) == ([], 1)


def test_a_decision_without_its_document_is_a_finding(trail: Trail) -> None:
    trail.decide(ASKED, READS)
    trail.documents.clear()
    recomputer, found = trail.walk()
    assert [each.reason for each in found] == [Reason.DOCUMENT_MISSING]
    assert (recomputer.counts.document_missing, recomputer.counts.findings) == (1, 0)
    assert recomputer.counts.not_recomputable == 1


@pytest.mark.deep(stands_in="test_every_decision_of_the_tables_can_be_derived_again")
@settings(max_examples=200, deadline=None)
@given(situations())
def test_every_decision_can_be_derived_again(situation: Any) -> None:
    check_following(situation)


def test_every_decision_of_the_tables_can_be_derived_again() -> None:
    for situation in table_situations():
        check_following(situation)


def check_following(situation: Any) -> None:
    """Hold a decision against what its record says."""
    asked, facts, policies = situation
    decision = evaluate(asked, facts)
    log = Log()
    log.shipped(decision_record(asked, decision, facts, event_id="e", salt=salt(1)))
    body = role_document(policies)
    recomputer = Recomputer({document_digest(body): body}.get if body else lambda _: None)
    finding = recomputer.feed(orjson.loads(log.rows[0].entry))
    unclaimed = asked.session_id is not None and facts.session is None
    if unclaimed and decision.decision == "ALLOW":
        # No service records such a decision: it denies where the session is not claimed.
        assert finding is not None
        assert finding.reason is Reason.FACTS_CONTRADICT
    else:
        assert finding is None


@pytest.mark.deep(stands_in="test_no_flipped_verdict_of_the_tables_follows")
@settings(max_examples=100, deadline=None)
@given(situations())
def test_a_flipped_verdict_never_follows(situation: Any) -> None:
    check_flipped(situation)


def test_no_flipped_verdict_of_the_tables_follows() -> None:
    for situation in table_situations():
        check_flipped(situation)


def check_flipped(situation: Any) -> None:
    """Record a verdict as the other one."""
    asked, facts, policies = situation
    decision = evaluate(asked, facts)
    log = Log()
    log.shipped(decision_record(asked, decision, facts, event_id="e", salt=salt(1)))
    entry = orjson.loads(log.rows[0].entry)
    flipped = "DENY" if decision.decision == "ALLOW" else "ALLOW"
    entry["pub"]["response"]["decision"] = flipped
    body = role_document(policies)
    recomputer = Recomputer({document_digest(body): body}.get if body else lambda _: None)
    assert recomputer.feed(entry) is not None


# What an insider with the real signing key can rewrite: the verdict, with everything after it.


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("decision", "ALLOW"),
        ("policy_name", "other"),
        ("policy_id", "pol_other"),
        ("policy_version", 9),
        ("reason", "because"),
        ("check", "task"),
        ("extra", "x"),
    ],
)
def test_a_rewritten_response_is_found(trail: Trail, member: str, value: Any) -> None:
    trail.decide(ASKED._replace(source_id="payroll"), READS)
    trail.rewrite(lambda entry: entry["pub"]["response"].__setitem__(member, value))
    finding = trail.only()
    assert finding.reason is Reason.DECISION_DIFFERS
    assert (finding.seq, finding.eid) == (4, "event-4")
    assert f"`{member}`" in finding.message


def test_an_allow_without_facts_is_found(trail: Trail) -> None:
    trail.put(ASKED, refuse("policy_set_stale", "the policy set is too old"), None)
    recomputer, found = trail.walk()
    assert (found, recomputer.counts.outside) == ([], 1)
    trail.rewrite(lambda entry: entry["pub"]["response"].__setitem__("decision", "ALLOW"))
    assert trail.only().reason is Reason.DECISION_DIFFERS


def test_facts_removed_from_an_allow_are_missed(trail: Trail) -> None:
    trail.decide(ASKED, READS)
    trail.rewrite(lambda entry: entry["pub"].__setitem__("facts", {}))
    assert trail.only().reason is Reason.DECISION_DIFFERS


def test_a_wider_policy_that_was_in_force_later_is_found(trail: Trail) -> None:
    trail.decide(ASKED._replace(source_id="payroll"), WIDE)
    # The document has to exist, and by its digest it can: but not at this revision.
    trail.documents[document_digest(document(WIDE))] = document(WIDE)
    trail.change("policy.updated", "analyst", role=document(WIDE))
    finding = trail.only()
    assert (finding.reason, finding.seq) == (Reason.FACTS_CONTRADICT, 4)
    assert "`role/analyst`" in finding.message


def test_an_older_policy_is_found(trail: Trail) -> None:
    trail.change("policy.updated", "analyst", role=document(WIDE))
    trail.decide(ASKED, READS)
    assert trail.only().reason is Reason.FACTS_CONTRADICT
    # But a sidecar that was cut off decided at the revision that it had.
    trail.decide(ASKED, READS, revision=trail.revision - 1, sourced=True)
    assert len(trail.walk()[1]) == 1


def test_a_document_with_other_bytes_is_found(trail: Trail) -> None:
    trail.decide(ASKED, READS)
    digest = document_digest(document(READS))
    trail.documents[digest] = document(WIDE)
    assert trail.only().reason is Reason.DOCUMENT_MISMATCH


def test_the_document_of_another_role_is_found(trail: Trail) -> None:
    other = Policy("pol_x", 1, "x", "auditor", ("*",), (), "critical")
    trail.decide(ASKED, READS)
    digest = document_digest(document(other))
    trail.documents[digest] = document(other)
    trail.rewrite(lambda entry: entry["pub"]["facts"].__setitem__("role", digest))
    assert trail.only().reason is Reason.FACTS_CONTRADICT


SUSPENDED = Agent("agt_a", "suspended", ("analyst",))
BOUND = Key("key_1", "evaluate", "agt_other")


@pytest.mark.parametrize(
    ("what", "target", "published"),
    [
        ("agent.status", "agt_a", {"agent": SUSPENDED.wire}),
        ("key.bound", "key_1", {"key": BOUND.wire}),
        ("key.revoked", "key_1", {"key": None}),
        ("policy.deleted", "analyst", {"role": None}),
        ("session.revoked", "s_1", {"session": session_document("s_1")}),
    ],
)
def test_facts_that_had_changed_before_are_found(
    trail: Trail, what: str, target: str, published: Any
) -> None:
    asked = ASKED._replace(session_id="s_1")
    session = Session("s_1", "active", "analyst", "agt_a")
    trail.decide(asked, READS, session=session)
    assert trail.walk()[1] == []
    before = trail.revision
    trail.change(what, target, **published)
    # A service may be a moment behind; and at the old revision the facts were true.
    trail.decide(asked, READS, session=session, wait=0)
    trail.decide(asked, READS, session=session, revision=before)
    assert trail.walk()[1] == []
    trail.decide(asked, READS, session=session)
    assert trail.only().reason is Reason.FACTS_CONTRADICT


def test_a_freeze_can_be_neither_hidden_nor_made_up(trail: Trail) -> None:
    since = START + 5
    frozen = TenantSettings("default", frozen_at=since)
    trail.decide(ASKED, READS, settings=frozen)
    assert trail.only().reason is Reason.FACTS_CONTRADICT
    trail = Trail()
    trail.registered(READS)
    trail.change("tenant.frozen", "default", {"frozen_at": rfc3339(since)}, tenant=b"[]")
    trail.decide(ASKED, READS, settings=frozen)
    recomputer, found = trail.walk()
    assert (found, recomputer.counts.recomputed) == ([], 1)
    trail.decide(ASKED, READS)
    assert trail.only().seq == 6
    trail.change("tenant.unfrozen", "default", {"frozen_at": None}, tenant=b"{}")
    trail.decide(ASKED, READS)
    assert len(trail.walk()[1]) == 1


def test_a_role_that_the_agent_may_not_act_in_need_not_be_cited(trail: Trail) -> None:
    """A sidecar that has its own agent's documents alone does not know what others there are."""
    trail.change("policy.created", "payroll", role=document(READS))
    foreign = ASKED._replace(agent_role="payroll")
    trail.decide(foreign)
    recomputer, findings = trail.walk()
    assert (findings, recomputer.counts.recomputed) == ([], 1)
    # That of its own role decides, and can't be left out.
    trail.decide(ASKED)
    assert trail.only().reason is Reason.FACTS_CONTRADICT


def test_two_decisions_of_one_revision_have_the_same_facts() -> None:
    trail = Trail()
    trail.documents = {document_digest(document(each)): document(each) for each in (READS, WIDE)}
    trail.decide(ASKED, READS, sourced=True)
    trail.decide(ASKED, WIDE, sourced=True)
    recomputer = Recomputer(trail.documents.get)
    entries = [orjson.loads(row.entry) for row in trail.log.rows[1:]]  # no change is known
    found = [recomputer.feed(entry) for entry in entries]
    assert found[0] is None
    assert found[1] is not None
    assert found[1].reason is Reason.FACTS_CONTRADICT


def test_a_forged_record_does_not_make_the_true_ones_contradictory(trail: Trail) -> None:
    trail.documents[document_digest(document(WIDE))] = document(WIDE)
    trail.decide(ASKED, WIDE, sourced=True)
    trail.decide(ASKED, READS, sourced=True, agent=Agent("agt_a", "approved", ("auditor",)))
    trail.decide(ASKED, READS, sourced=True)
    recomputer, found = trail.walk()
    assert [each.reason for each in found] == [Reason.FACTS_CONTRADICT] * 2
    assert recomputer.counts.recomputed == 1


def test_a_session_whose_owner_changes_is_found(trail: Trail) -> None:
    asked = ASKED._replace(session_id="s_1")
    trail.decide(asked, READS, session=Session("s_1", "active", "analyst", "agt_a"))
    trail.decide(asked, READS, session=Session("s_1", "active", "analyst", "agt_b"))
    assert trail.only().reason is Reason.FACTS_CONTRADICT


@pytest.mark.parametrize(
    "changed",
    [
        {"agent": Agent("agt_b", "approved", ("analyst",))},
        {"session": Session("s_9", "active", "analyst", "agt_a")},
    ],
)
def test_facts_about_another_call_are_found(trail: Trail, changed: Any) -> None:
    trail.decide(ASKED, READS, **changed)
    assert trail.only().reason is Reason.FACTS_CONTRADICT


def test_an_allow_in_a_session_that_was_not_claimed_is_found(trail: Trail) -> None:
    trail.decide(ASKED._replace(session_id="s_1"), READS)
    assert trail.only().reason is Reason.FACTS_CONTRADICT


def test_a_denial_in_report_mode_follows_again(trail: Trail) -> None:
    asked = ASKED._replace(source_id="payroll")
    facts = facts_of(compile_role("analyst", [READS], document_digest(document(READS))), 4)
    decision = evaluate(asked, facts)
    reported = decision._replace(reason=REPORT_PREFIX + decision.reason)
    trail.put(asked, reported, facts, sourced=True)
    assert trail.walk()[1] == []
    # The control API has no such mode.
    trail.put(asked, reported, facts)
    assert trail.only().reason is Reason.DECISION_DIFFERS


@pytest.mark.parametrize("facts", [{"revision": 1}, {"x": 1}, {"key": 7, "revision": 1}, [1]])
def test_facts_that_no_version_recorded_are_found(trail: Trail, facts: Any) -> None:
    trail.decide(ASKED, READS)
    trail.rewrite(lambda entry: entry["pub"].__setitem__("facts", facts))
    assert trail.only().reason is Reason.FACTS_CONTRADICT


# A version from before this one recorded no documents with its changes.


def test_after_a_change_of_an_older_version_nothing_is_claimed(trail: Trail) -> None:
    trail.add(change_record("agent.status", "agt_a", "key_0", {}, record_id="old"))
    trail.decide(ASKED, READS, agent=SUSPENDED)
    trail.decide(ASKED, READS)
    recomputer, found = trail.walk()
    assert (found, recomputer.counts.facts_unknown) == ([], 2)


@pytest.mark.parametrize("published", [[["role/analyst"]], [1], 1, None])
def test_a_change_with_an_impossible_publication_hides_nothing(
    trail: Trail, published: Any
) -> None:
    trail.change("policy.updated", "analyst", role=document(READS))
    trail.rewrite(lambda entry: entry["pub"].update(published=published))
    assert trail.only().reason is Reason.FACTS_CONTRADICT


def test_changes_without_documents_leave_the_others_known(trail: Trail) -> None:
    for what in ("enrolment.refused", "sessions.purged", "settings.retention"):
        trail.add(change_record(what, "x", "system", {}, record_id=what))
    trail.decide(ASKED, READS)
    assert trail.walk()[0].counts.recomputed == 1


def test_facts_after_a_restored_store_are_unknown(trail: Trail) -> None:
    trail.add(incarnation_record(2, 5, 1, record_id="back"))
    trail.decide(ASKED, READS, agent=SUSPENDED)
    recomputer, found = trail.walk()
    assert (found, recomputer.counts.facts_unknown) == ([], 1)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, trail: Trail) -> None:
    from policies.trail.recompute import document_history
    from policies.trail.recompute import recomputer as module

    monkeypatch.setattr(document_history, "MAX_NAMES", 3)
    monkeypatch.setattr(module, "MAX_SEEN", 3)
    monkeypatch.setattr(module, "MAX_DOCUMENTS", 1)
    for number in range(40):
        trail.change("agent.registered", f"agt_{number}", agent=b"{}")
        asked = ASKED._replace(session_id=f"s_{number}")
        session = Session(f"s_{number}", "active", "analyst", "agt_a")
        trail.decide(asked, READS, session=session, sourced=True)
    recomputer, found = trail.walk()
    assert found == []
    assert recomputer.counts.recomputed + recomputer.counts.facts_unknown == 40
    # What is forgotten is not taken for what never was.
    assert recomputer.counts.facts_unknown > 30


def test_the_tolerance_of_times_is_minutes_and_not_hours(trail: Trail) -> None:
    trail.change("key.revoked", "key_1", key=None)
    trail.decide(ASKED, READS, wait=HOUR // 60)
    assert trail.walk()[1] == []
    trail.decide(ASKED, READS, wait=HOUR // 10)
    assert trail.only().reason is Reason.FACTS_CONTRADICT
