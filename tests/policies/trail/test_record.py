"""Records: always canonical, with nothing personal in clear, and within their limits."""

import hashlib
import hmac
import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checks.finding import Facts
from policies.definitions.model import Agent, Key, Policy
from policies.evaluate import evaluate, refuse
from policies.ground.canonical import b64, check, encode, rfc3339, unb64
from policies.ground.errors import Invalid
from policies.retrieval import Retrieval
from policies.trail.change import change_record
from policies.trail.commitment import commit, commitment, field_salt, opening_matches
from policies.trail.entry import audit_event, index_of, lineage_action
from policies.trail.lineage import ReportedAction, lineage_record, retrieval_lineage
from policies.trail.merkle_tree import leaf_hash
from policies.trail.record import (
    MAX_ENTRY,
    Record,
    decision_record,
    gap_record,
    make_record,
)
from policies.trail.spool_chain import src_member
from tests.policies.ground.test_canonical import VALUES
from tests.policies.strategies import CHARACTERS, IDENTIFIERS, situations
from tests.policies.table_situations import table_situations
from tests.policies.world import (
    FACTS,
    FULL,
    MARK,
    RETRIEVAL,
    SQL,
    START,
    STATED,
    decided,
    full_facts,
    salt,
)

Situation = tuple[Retrieval, Facts, list[Policy]]
SALTS = st.binary(min_size=32, max_size=32)
PREV = b64(bytes(32))
STATEMENT_FIELDS = (
    "parameters",
    "statement_id",
    "statement_look",
    "statement_fingerprint",
    "statement_digest",
)


def canonical(record: Record) -> None:
    """Entry and core decode and re-encode to the same bytes."""
    src = src_member("sidecar-1", "i1", 0, "", rfc3339(START))
    for raw in (record.entry("default", 2**53 - 1, PREV, rfc3339(START)), record.core(src)):
        value = orjson.loads(raw)
        check(value)
        assert encode(value) == raw
    openings = orjson.loads(record.openings)
    assert encode(openings) == record.openings
    cm = orjson.loads(record.entry("default", 0, "", ""))["cm"]
    assert cm.keys() == openings.keys()
    assert all(opening_matches(cm, path, opening) for path, opening in openings.items())


@pytest.mark.deep(
    stands_in="tests/policies/test_tables.py::test_each_row_of_the_tables_is_decided_and_recorded_as_it_states"
)
@given(situations(), SALTS)
def test_a_decisions_bytes_are_canonical(situation: Situation, record_salt: bytes) -> None:
    call, facts, _ = situation
    decision = evaluate(call, facts)
    canonical(decision_record(call, decision, facts, event_id="event-1", salt=record_salt))


@pytest.mark.deep(stands_in="test_the_bytes_of_a_refused_call_of_the_tables_are_canonical")
@given(situations())
def test_a_refusals_bytes_are_canonical(situation: Situation) -> None:
    check_refusal(situation[0])


def test_the_bytes_of_a_refused_call_of_the_tables_are_canonical() -> None:
    for call, _, _ in table_situations():
        check_refusal(call)


def check_refusal(call: Retrieval) -> None:
    decision = refuse("unreadable", 'the body is not JSON: "\\ud800"')
    record = decision_record(call, decision, None, event_id="e", salt=bytes(32))
    canonical(record)
    assert orjson.loads(record.pub)["facts"] == {}


@pytest.mark.deep(stands_in="test_the_bytes_of_a_lineage_record_with_any_detail_are_canonical")
@given(
    st.dictionaries(st.text(CHARACTERS, max_size=5), VALUES, max_size=4), st.none() | IDENTIFIERS
)
def test_a_lineage_records_bytes_are_canonical(
    detail: dict[str, object], outcome: str | None
) -> None:
    check_lineage(detail, outcome)


@pytest.mark.parametrize("outcome", [None, "ok", 'a "b"\\', "é😀\u2028"])
def test_the_bytes_of_a_lineage_record_with_any_detail_are_canonical(outcome: str | None) -> None:
    values: tuple[object, ...] = (
        None,
        True,
        -(2**53) + 1,
        0.5,
        "",
        'a "b"\\',
        "é😀\u2028",
        [],
        [[{}]],
        {"z": 1, "a": {}},
    )
    check_lineage({}, outcome)
    for key, value in itertools.product(("", "A b", "é", "z"), values):
        check_lineage({key: value, "other": 1}, outcome)


def check_lineage(detail: dict[str, object], outcome: str | None) -> None:
    record = lineage_record(
        ReportedAction("event-1", bytes(32), 'a "label"', detail, outcome),
        record_id="l",
        salt=bytes(32),
        masked=None,
    )
    canonical(record)
    entry = orjson.loads(record.entry("default", 0, "", rfc3339(START)))
    action = lineage_action(entry, record.openings)
    assert action == {
        "event_id": "event-1",
        "action_type": 'a "label"',
        "detail": detail,
        "outcome": outcome,
        "timestamp": rfc3339(START),
        "seq": 0,
    }


@given(IDENTIFIERS, IDENTIFIERS, st.integers(0, 2**53 - 1))
def test_every_other_kinds_bytes_are_canonical(one: str, other: str, number: int) -> None:
    detail: dict[str, int | str] = {"status": number, "sha256": one}
    canonical(retrieval_lineage(one, bytes(32), detail, other, record_id="l"))
    canonical(change_record(one, other, one, {"to": other, "version": number}, record_id="c"))
    canonical(gap_record(one, instance=other, first=number, lost=None, record_id="g"))


@pytest.mark.deep(
    stands_in="tests/policies/test_tables.py::test_each_row_of_the_tables_is_decided_and_recorded_as_it_states"
)
@given(situations())
def test_nothing_personal_is_readable_in_an_entry(situation: Situation) -> None:
    call, facts, _ = situation
    call = call._replace(user_id="ann.the.user", query="the.query.text")
    record = decision_record(
        call, evaluate(call, facts), facts, event_id="e", salt=hashlib.sha256(b"s").digest()
    )
    raw = record.entry("default", 0, "", rfc3339(START))
    assert b"ann.the.user" not in raw
    assert b"the.query.text" not in raw
    assert orjson.loads(record.openings)["query"][1] == "the.query.text"


def test_a_floating_detail_is_kept_as_the_text_of_its_json() -> None:
    detail = {"Score": 0.5, "é": [1e300, {"A b": None}], "big": 2**60}
    record = lineage_record(
        ReportedAction("e", bytes(32), "a", detail, "ok"),
        record_id="l",
        salt=bytes(32),
        masked=None,
    )
    canonical(record)
    assert orjson.loads(orjson.loads(record.openings)["detail"][1]) == detail


def test_a_detail_nested_too_deeply_is_invalid() -> None:
    deep: object = 1
    for _ in range(500):
        deep = [deep]
    with pytest.raises(Invalid, match="`detail` can't be recorded"):
        lineage_record(
            ReportedAction("e", bytes(32), "a", {"a": deep}, "ok"),
            record_id="l",
            salt=bytes(32),
            masked=None,
        )


def test_a_long_query_is_not_part_of_the_entry() -> None:
    record = decided(RETRIEVAL._replace(query="x" * 65536))
    assert len(record.pub) < 1024
    canonical(record)


def test_the_largest_decision_fits_into_an_entry() -> None:
    """Every identifier at its maximum length, in the characters that take the most bytes or an
    escape."""
    for wide in ("😀" * 256, '"' * 256):
        call = Retrieval(wide, wide, wide, "low", wide, wide, wide, "x" * 65536, "a" * 32)
        policy = Policy("pol_1", 2**53 - 1, wide, wide, (), (), "low")
        facts = full_facts()._replace(
            key=Key(wide, "evaluate", wide, (wide,), 2**53 - 1),
            agent=Agent(wide, "approved", (wide,), wide),
        )
        assert policy.name == wide
        record = decision_record(call, evaluate(call, facts), facts, event_id="e", salt=bytes(32))
        src = src_member(wide, wide, 2**53 - 1, PREV, rfc3339(START))
        assert len(record.core(src)) + 2048 < MAX_ENTRY
        canonical(record)


@pytest.mark.parametrize("kind", ["decision", "lineage", "change"])
def test_a_record_larger_than_an_entry_is_invalid(kind: str) -> None:
    wide = "😀" * 256
    with pytest.raises(Invalid, match="holds at most"):
        make_record(kind, "e", encode({"names": [wide] * 61}))


def test_the_largest_record_fits_into_an_entry_with_its_position() -> None:
    """The largest `pub` that is accepted, with the longest ids around it."""
    wide = "😀" * 256
    size = 61_440 - 2 - len('{"a":""}')
    record = make_record("change", "e" * 256, encode({"a": "x" * size}))
    with pytest.raises(Invalid):
        make_record("change", "e" * 256, encode({"a": "x" * (size + 1)}))
    entry = record.entry(wide, 2**53 - 1, PREV, rfc3339(START))
    assert len(entry) < MAX_ENTRY
    core = record.core(src_member(wide, wide, 2**53 - 1, PREV, rfc3339(START)))
    assert len(core) < MAX_ENTRY


def test_a_given_context_hash_is_kept_and_a_missing_one_computed() -> None:
    given_ = orjson.loads(decided(RETRIEVAL._replace(context_hash="ab" * 32)).pub)
    made = orjson.loads(decided().pub)
    assert given_["context_hash"] == "ab" * 32
    assert made["context_hash"] != given_["context_hash"]


def test_a_computed_context_hash_can_not_confirm_a_guess() -> None:
    """It covers the salted commitments, so two equal calls have different hashes."""
    one, other = decided(seed=1), decided(seed=2)
    assert orjson.loads(one.pub)["context_hash"] != orjson.loads(other.pub)["context_hash"]
    request = orjson.loads(one.pub)["request"]
    personal = {"user_id": RETRIEVAL.user_id, "query": RETRIEVAL.query}
    for guess in (request, request | personal, personal):
        assert hashlib.sha256(encode(guess)).hexdigest() not in one.pub.decode()


@given(SALTS, st.text("abcz09_.:-", min_size=1, max_size=60), st.text(CHARACTERS, max_size=200))
def test_a_commitment_is_an_hmac(record_salt: bytes, path: str, value: str) -> None:
    cm, openings = (orjson.loads(each) for each in commit(record_salt, {path: value}))
    message = b"audit/field-salt/v1\0" + path.encode()
    expected_salt = hmac.digest(record_salt, message, "sha256")
    assert field_salt(record_salt, path) == expected_salt
    encoded = encode(value)
    message = b"audit/field/v1\0%b%b%b%b" % (
        len(path).to_bytes(4, "big"), path.encode(), len(encoded).to_bytes(4, "big"), encoded,
    )  # fmt: skip
    expected = hmac.digest(expected_salt, message, "sha256")
    assert commitment(expected_salt, path, encoded) == expected
    assert cm == {path: b64(expected)}
    assert openings == {path: [b64(expected_salt), value]}


@given(SALTS, st.dictionaries(st.sampled_from(["user_id", "query", "detail"]), IDENTIFIERS))
def test_only_the_opening_itself_opens(record_salt: bytes, fields: dict[str, str]) -> None:
    cm, openings = (orjson.loads(each) for each in commit(record_salt, fields))
    for path, (salt_, value) in openings.items():
        assert opening_matches(cm, path, [salt_, value])
        flipped = bytearray(unb64(salt_))
        flipped[0] ^= 1
        for other in (
            [salt_, value + "x"], [salt_, value[1:]], [salt_, None], [salt_, [value]],
            [salt_, {"a": value}], [salt_, 0.5], [b64(bytes(flipped)), value], [salt_ + "=", value],
            [salt_[:-1], value], ["", value], [None, value], [value, salt_], [salt_],
            [salt_, value, 1], None, {}, "x", {"0": salt_, "1": value},
        ):  # fmt: skip
            if other != [salt_, value]:
                assert not opening_matches(cm, path, other)
        assert not opening_matches(cm, path + "x", [salt_, value])


def test_a_salt_of_another_length_opens_nothing() -> None:
    """A short salt is refused: a verifier with the library's HMAC would disagree."""
    short = bytes(31)
    cm = {"a": b64(commitment(short, "a", b'"x"'))}
    assert not opening_matches(cm, "a", [b64(short), "x"])


def test_the_columns_of_a_record_equal_its_bytes() -> None:
    entry = orjson.loads(decided(FULL, full_facts()).entry("default", 0, "", rfc3339(START)))
    assert index_of(entry)._asdict() == {
        "eid": "event-0", "kind": "decision", "ts": START, "agent_role": "analyst",
        "agent_id": "agt_a", "source_id": "contracts", "decision": "ALLOW",
        "policy_name": "reads", "session_id": "s_1", "ref": None,
    }  # fmt: skip
    lineage = retrieval_lineage("event-0", bytes(32), {}, "ok", record_id="l")
    index = index_of(orjson.loads(lineage.entry("default", 0, "", rfc3339(START))))
    assert (index.eid, index.kind, index.ref, index.decision) == ("l", "lineage", "event-0", None)


def test_the_time_of_an_event_is_the_enforcement_points() -> None:
    core = decided().core(src_member("sidecar-1", "i1", 0, "", rfc3339(START - 5)))
    place = {"log": "default", "seq": 3, "prev": PREV, "ts": rfc3339(START)}
    entry = orjson.loads(core) | place
    assert index_of(entry).ts == START - 5
    event = audit_event(entry, bytes(32), decided().openings)
    assert (event["timestamp"], event["sidecar_id"]) == (rfc3339(START - 5), "sidecar-1")


def test_an_audit_event_has_the_form_of_the_contract() -> None:
    record = decided(FULL, full_facts())
    raw = record.entry("default", 4, PREV, rfc3339(START))
    assert audit_event(orjson.loads(raw), leaf_hash(raw), record.openings) == {
        "event_id": "event-0",
        "seq": 4,
        "timestamp": "2026-01-01T00:00:00.000000Z",
        "time_doubtful": False,
        "agent_foreign": False,
        "decision": "ALLOW",
        "policy_name": "reads",
        "reason": "policy `reads` allows role `analyst` to read `contracts` at `low`",
        "check": None,
        "policy_version": 3,
        "agent_role": "analyst",
        "agent_id": "agt_a",
        "user_id": "ann@example.com",
        "source_id": "contracts",
        "source_type": "api",
        "sensitivity_level": "low",
        "session_id": "s_1",
        "task_type": "report",
        "query": "who signs?",
        **dict.fromkeys(STATEMENT_FIELDS),
        "context_hash": orjson.loads(record.pub)["context_hash"],
        "pii_masked": False,
        "sidecar_id": None,
        "hash": leaf_hash(raw).hex(),
        "prev_hash": "00" * 32,
    }


def test_an_event_shows_the_statement_that_reads_its_source() -> None:
    record = decided(STATED, full_facts())
    entry = orjson.loads(record.entry("default", 0, "", rfc3339(START)))
    event = audit_event(entry, bytes(32), record.openings)
    assert event["query"] == SQL
    values = MARK.parameters, MARK.id, MARK.look, MARK.fingerprint, MARK.digest
    assert tuple(map(event.get, STATEMENT_FIELDS)) == values
    # Neither the text nor a hash of it is in clear: a guess could be tested against that.
    assert "SELECT" not in str(entry)
    assert MARK.digest not in str(entry)
    # What the control API of 0.1 took without looking.
    odd = entry | {"pub": entry["pub"] | {"statement": "odd"}}
    assert audit_event(odd, bytes(32), None)["statement_id"] is None


@pytest.mark.parametrize("openings", [None, b"{}"])
def test_an_event_whose_openings_were_erased_is_shown_without(openings: bytes | None) -> None:
    raw = decided(STATED).entry("default", 0, "", rfc3339(START))
    event = audit_event(orjson.loads(raw), leaf_hash(raw), openings)
    assert (event["user_id"], event["query"], event["prev_hash"]) == (None, None, "")
    assert (event["parameters"], event["statement_digest"]) == (None, None)
    lineage = lineage_record(
        ReportedAction("e", bytes(32), "a", {"b": 1}, "ok"),
        record_id="l",
        salt=salt(1),
        masked=None,
    )
    entry = orjson.loads(lineage.entry("default", 0, "", rfc3339(START)))
    assert lineage_action(entry, openings)["detail"] is None


def test_a_key_is_never_in_a_record() -> None:
    assert b"scope" in decided(FULL, FACTS).pub
    assert set(orjson.loads(decided(FULL, full_facts()).pub)["facts"]["key"]) == {
        "key_id", "scope", "bound_agent_id", "permitted_roles", "expires_at",
    }  # fmt: skip
