"""What a record says of masking, and what it does without a setting."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.definitions.model import TenantSettings
from policies.evaluate import refuse
from policies.ground.canonical import identifier_fault, rfc3339
from policies.ground.errors import Invalid
from policies.retrieval import MAX_QUERY
from policies.sets.policy_set import PolicySet, tenant_document
from policies.statement import parameters_text
from policies.trail.commitment import opening_matches
from policies.trail.entry import audit_event, lineage_action
from policies.trail.lineage import ReportedAction, lineage_record, masked_texts
from policies.trail.masked_ahead import masked_ahead
from policies.trail.merkle_tree import leaf_hash
from policies.trail.record import Record, decision_record, masked_user
from policies.trail.spool_chain import read_payload, src_member
from policies.trail.verify import Verifier
from tests.policies.ground.masking.test_mask import TEXTS
from tests.policies.world import (
    FACTS,
    MARK,
    RETRIEVAL,
    START,
    STATED,
    TURNS,
    Log,
    at_once,
    decided,
    salt,
)

MASKING = FACTS._replace(settings=TenantSettings("default", pii_masking=True))


def event(record: Record) -> dict[str, Any]:
    raw = record.entry("default", 0, "", rfc3339(START))
    return audit_event(orjson.loads(raw), leaf_hash(raw), record.openings)


def payload(record: Record) -> dict[str, Any]:
    """The record as a sidecar sends it."""
    core = record.core(src_member("sidecar-1", "i1", 0, "", rfc3339(START)))
    return {"core": orjson.loads(core), "open": orjson.loads(record.openings)}


def test_a_masked_record_commits_to_the_masked_text_and_lists_its_labels() -> None:
    record = decided(RETRIEVAL._replace(query="call +49 30 1234567"), MASKING)
    entry = orjson.loads(record.entry("default", 0, "", rfc3339(START)))
    opened = orjson.loads(record.openings)
    assert entry["pub"]["masking"] is True
    assert entry["masked"] == [["query", "PHONE"], ["user_id", "EMAIL"]]
    assert (opened["user_id"][1], opened["query"][1]) == ("[EMAIL]", "call [PHONE]")
    assert all(opening_matches(entry["cm"], path, opening) for path, opening in opened.items())


def test_an_event_counts_as_masked_even_if_nothing_was_found() -> None:
    shown = event(decided(RETRIEVAL._replace(user_id="ann", query="who signs?"), MASKING))
    assert (shown["pii_masked"], shown["user_id"], shown["query"]) == (True, "ann", "who signs?")


def test_an_unmasked_record_does_not_mention_masking() -> None:
    record = decided()
    assert b"masking" not in record.pub
    assert (record.masked, event(record)["pii_masked"]) == (b"[]", False)
    assert event(record)["user_id"] == "ann@example.com"


@pytest.mark.parametrize(("told", "masked"), [(None, True), (True, True), (False, False)])
def test_a_refusal_is_masked_unless_specified_otherwise(told: bool | None, masked: bool) -> None:
    record = decision_record(
        RETRIEVAL, refuse("x", "y"), None, event_id="e", salt=salt(1), masking=told
    )
    assert event(record)["pii_masked"] is masked
    assert (event(record)["user_id"] == "[EMAIL]") is masked


def test_masked_lineage_keeps_no_personal_data() -> None:
    detail = {"phone": "2125550142", "n": 1}
    action = ReportedAction("e", bytes(32), "to ann@example.com", detail, "sent to 10.0.0.7")
    record = lineage_record(
        action, record_id="l", salt=salt(1), masked=at_once(masked_texts(TURNS, action))
    )
    entry = orjson.loads(record.entry("default", 0, "", rfc3339(START)))
    shown = lineage_action(entry, record.openings)
    assert shown["action_type"] == "to [EMAIL]"
    assert shown["detail"] == {"phone": "[PHONE]", "n": 1}
    assert shown["outcome"] == "sent to [IP]"
    assert entry["masked"] == [["action_type", "EMAIL"], ["detail", "PHONE"], ["outcome", "IP"]]


def test_an_absent_outcome_stays_absent() -> None:
    action = ReportedAction("e", bytes(32), "a", {}, None)
    record = lineage_record(
        action, record_id="l", salt=salt(1), masked=at_once(masked_texts(TURNS, action))
    )
    assert "outcome" not in orjson.loads(record.pub)


@pytest.mark.deep(stands_in="test_a_text_that_grows_by_masking_stays_within_its_limits")
@given(TEXTS.filter(lambda text: identifier_fault(text) is None), TEXTS)
def test_every_masked_record_is_accepted_and_verifies(user: str, query: str) -> None:
    record = decided(RETRIEVAL._replace(user_id=user, query=query), MASKING)
    assert read_payload(payload(record)).core["eid"] == "event-0"
    assert identifier_fault(masked_user(user)) is None
    verifies(record)


def verifies(record: Record) -> None:
    log = Log()
    log.shipped(record)
    verifier = Verifier(log.log)
    verifier.feed_all(log.rows)
    assert verifier.finish(log.head()).valid


def test_a_text_that_grows_by_masking_stays_within_its_limits() -> None:
    user, query = "pwd=1," * 42, "pwd=1," * (MAX_QUERY // 6)
    record = decided(RETRIEVAL._replace(user_id=user, query=query), MASKING)
    opened = orjson.loads(record.openings)
    assert len(opened["user_id"][1]) == 256
    assert len(opened["query"][1]) == MAX_QUERY
    assert "pwd=1" not in opened["user_id"][1] + opened["query"][1]
    read_payload(payload(record))
    verifies(record)


@pytest.mark.parametrize(
    ("member", "wrong"),
    [
        ("masked", [["query"]]),
        ("masked", [["query", 1]]),
        ("masked", ["query"]),
        ("masked", [["query", "EMAIL", "x"]]),
        ("masking", False),
        ("masking", "yes"),
        ("masking", 1),
    ],
)
def test_invalid_masking_members_of_a_sidecar_are_refused(member: str, wrong: Any) -> None:
    sent = payload(decided(RETRIEVAL, MASKING))
    place = sent["core"] if member == "masked" else sent["core"]["pub"]
    place[member] = wrong
    with pytest.raises(Invalid, match="mask"):
        read_payload(sent)


def test_a_mask_without_masking_is_refused() -> None:
    sent = payload(decided())
    sent["core"]["masked"] = [["query", "EMAIL"]]
    with pytest.raises(Invalid, match=r"needs `pub\.masking`"):
        read_payload(sent)


def test_a_policy_set_masks_by_its_tenant_s_setting_and_if_in_doubt() -> None:
    def masks(document: bytes | None) -> bool:
        return PolicySet({"tenant": document}.get).masks()

    assert masks(None)
    assert masks(b"damaged")
    assert masks(b"{}")
    assert masks(tenant_document(TenantSettings("t", pii_masking=True)))
    assert not masks(tenant_document(TenantSettings("t")))


@given(st.text(max_size=40))
def test_a_user_that_is_masked_twice_is_masked_once(user: str) -> None:
    assert masked_user(masked_user(user)) == masked_user(user)


def test_values_of_parameters_are_masked_one_by_one() -> None:
    # In the list's text, `\n` would be a letter in front of the number.
    values = ["\n4111 1111 1111 1111", "plain", b"\0\1", None, 'a "quote" of ann@example.com']
    mark = MARK._replace(parameters=parameters_text(values))
    stated = STATED._replace(user_id="ann", statement=mark)
    [ahead] = at_once(masked_ahead(TURNS, [stated]))
    made = decided(ahead, MASKING)
    assert made == decided(stated, MASKING)._replace(decided=made.decided)
    opened = orjson.loads(made.openings)
    assert orjson.loads(opened["parameters"][1]) == [
        "\n[CARD]",
        "plain",
        {"bytes": 2},
        None,
        'a "quote" of [EMAIL]',
    ]
    rules = [["parameters", rule] for rule in ("BINARY", "CARD", "EMAIL")]
    assert orjson.loads(made.masked) == rules
    # Nothing in the text was masked, so its digest says no more than the text.
    assert opened["statement_digest"][1] == MARK.digest
    verifies(made)


def test_a_digest_of_a_masked_text_is_not_recorded() -> None:
    for query in ("SELECT 'ann@example.com'", "x" * 70_000):
        made = decided(STATED._replace(query=query), MASKING)
        assert b"statement_digest" not in made.head + made.openings
        verifies(made)


def test_a_longer_statement_is_cut_to_the_limit_of_a_query() -> None:
    opened = orjson.loads(decided(STATED._replace(query="é" * MAX_QUERY)).openings)
    assert opened["query"][1] == "é" * (MAX_QUERY // 2)
    assert opened["statement_digest"][1] == MARK.digest
