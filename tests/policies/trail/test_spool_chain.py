"""A sidecar's records in transit: what was spooled comes back, and nothing else is accepted."""

import copy
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checks.finding import Facts
from policies.definitions.model import Policy
from policies.evaluate import evaluate
from policies.ground.canonical import b64, encode, rfc3339
from policies.ground.errors import Invalid
from policies.retrieval import Retrieval
from policies.trail.commitment import commit
from policies.trail.entry import audit_event, index_of, lineage_action
from policies.trail.lineage import retrieval_lineage
from policies.trail.log_file.coding import encode_line, parse_line
from policies.trail.log_file.lines import EntryLine
from policies.trail.merkle_tree import leaf_hash
from policies.trail.record import MAX_ENTRY, Record, decision_record, gap_record, make_record
from policies.trail.spool_chain import KINDS, core_hash, read_payload, spool_payload, src_member
from tests.policies.strategies import IDENTIFIERS, situations
from tests.policies.world import FULL, START, decided, entry_from_core, full_facts

PREV = b64(bytes(range(32)))
RECORDS: dict[str, Record] = {
    "decision": decided(FULL, full_facts()),
    "lineage": retrieval_lineage("event-0", bytes(32), {"status": 200}, "ok", record_id="l-1"),
    "gap": gap_record("bad frame", instance="i0", first=4, lost=2, record_id="g-1"),
    "heartbeat": make_record("heartbeat", "h-1", b"{}"),
}


def payload(record: Record, n: int = 3) -> Any:
    """A record as the receiver decodes it."""
    src = src_member("sidecar-1", "i1", n, PREV if n else "", rfc3339(START))
    return orjson.loads(spool_payload(record.core(src), record.openings))


@pytest.mark.deep(stands_in="test_every_kind_that_a_sidecar_may_send_is_read")
@given(
    situations(),
    st.integers(0, 2**53 - 1),
    IDENTIFIERS,
    st.binary(min_size=32, max_size=32),
)
def test_a_spooled_record_is_read_back_byte_for_byte(
    situation: tuple[Retrieval, Facts, list[Policy]], n: int, source: str, salt: bytes
) -> None:
    call, facts, _ = situation
    record = decision_record(call, evaluate(call, facts), facts, event_id="event-1", salt=salt)
    core = record.core(src_member(source, "i1", n, PREV if n else "", rfc3339(START)))
    read = read_payload(orjson.loads(spool_payload(core, record.openings)))
    assert read.encoded == core
    assert read.hash == core_hash(core)
    assert read.openings == record.openings
    assert (read.source, read.instance, read.n) == (source, "i1", n)


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("n", [0, 3, 2**53 - 1])
def test_every_kind_that_a_sidecar_may_send_is_read(kind: str, n: int) -> None:
    sent = payload(RECORDS[kind], n)
    read = read_payload(sent)
    core = RECORDS[kind].core(src_member("sidecar-1", "i1", n, PREV if n else "", rfc3339(START)))
    # Byte for byte, as the sidecar hashed and signed for it.
    assert (read.encoded, read.hash) == (core, core_hash(core))
    assert (read.openings, read.n) == (RECORDS[kind].openings, n)
    columns = read.columns
    assert columns.kind == kind
    # What followed a decision is found by it.
    assert columns.ref == sent["core"]["pub"].get("event", {}).get("id")
    assert set(RECORDS) == KINDS


@pytest.mark.parametrize("names", [("detail", "openings"), ("a", "openings"), ("a.openings", "b")])
def test_no_opening_looks_like_the_end_of_an_entry_in_an_export(names: tuple[str, str]) -> None:
    cm, openings = commit(bytes(32), dict.fromkeys(names, "{}"))
    record = make_record("heartbeat", "h-1", b"{}", cm, openings)
    line = encode_line(EntryLine(record.core(b"{}"), openings))
    split = parse_line(line[:-1])
    if split == EntryLine(record.core(b"{}"), openings):
        assert read_payload(payload(record)).openings == openings
    else:
        with pytest.raises(Invalid, match="openings"):
            read_payload(payload(record))


@pytest.mark.parametrize("kind", ["change", "redact", "purge", "incarnation", "", "Decision"])
def test_a_kind_of_the_control_api_itself_is_refused(kind: str) -> None:
    with pytest.raises(Invalid):
        read_payload(payload(make_record(kind, "x-1", RECORDS["decision"].pub)))


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_that_was_read_can_be_indexed_and_shown(kind: str) -> None:
    read = read_payload(payload(RECORDS[kind]))
    raw = entry_from_core(
        orjson.loads(read.encoded), log="default", seq=0, prev="", ts=rfc3339(START)
    )
    entry = orjson.loads(raw)
    assert index_of(entry).kind == kind
    if kind == "decision":
        assert audit_event(entry, leaf_hash(raw), read.openings)["event_id"] == "event-0"
    if kind == "lineage":
        assert lineage_action(entry, read.openings)["event_id"] == "event-0"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every member and item, at every depth."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, member in inner:
        found.append((*path, key))
        if isinstance(member, dict | list):
            found += places(member, (*path, key))
    return found


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


# Optional members of a record.
FREE = {
    "session_id", "task_type", "agent_id", "check", "policy_version", "policy_id", "outcome",
    "detail", "instance", "first", "lost",
}  # fmt: skip


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_that_lacks_a_member_is_refused(kind: str) -> None:
    good = payload(RECORDS[kind])
    for path in places(good):
        free = {"facts", "detail"} & set(path[:-1]) or path[-1] in FREE or path[-2:-1] == ("event",)
        if free and path[-1] != "id":
            continue
        bad = copy.deepcopy(good)
        del at(bad, path[:-1])[path[-1]]
        with pytest.raises(Invalid):
            read_payload(bad)


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("wrong", [0.5, 2**53, 2**64, [0.5], {"A": 1}, {"": 1}, {"a\n": 1}])
def test_values_that_are_not_canonical_are_refused_anywhere(kind: str, wrong: object) -> None:
    good = payload(RECORDS[kind])
    for path in places(good):
        bad = copy.deepcopy(good)
        at(bad, path[:-1])[path[-1]] = wrong
        with pytest.raises(Invalid):
            read_payload(bad)


@pytest.mark.parametrize("wrong", [None, True, 0, -1, 1, "", "x\x00", "y" * 257, [], {}, ["a"]])
@pytest.mark.parametrize(
    "path",
    [("core", "v"), ("core", "kind"), ("core", "eid"), ("core", "src"), ("core", "pub"),
     ("core", "cm"), ("core", "masked"), ("core", "src", "id"), ("core", "src", "inst"),
     ("core", "src", "n"), ("core", "src", "prev"), ("core", "src", "t"), ("open",), ("core",),
     ("core", "pub", "request"), ("core", "pub", "response"), ("core", "pub", "facts"),
     ("core", "pub", "request", "agent_role"), ("core", "pub", "request", "source_id"),
     ("core", "pub", "request", "source_type"),
     ("core", "pub", "request", "agent_id"), ("core", "pub", "request", "session_id"),
     ("core", "pub", "response", "policy_name"), ("core", "pub", "response", "decision"),
     ("core", "pub", "response", "reason"), ("core", "pub", "context_hash"),
     ("open", "user_id"), ("core", "cm", "user_id")],
    ids=".".join,
)  # fmt: skip
def test_a_member_of_another_type_is_refused(path: tuple[str, ...], wrong: object) -> None:
    good = payload(RECORDS["decision"])
    fine: dict[tuple[str, ...], list[Any]] = {
        ("core", "v"): [1],
        ("core", "masked"): [[]],
        ("core", "src", "n"): [1],
        ("core", "pub", "facts"): [{}],
        ("core", "pub", "request", "agent_id"): [None],
        ("core", "pub", "request", "session_id"): [None],
        ("core", "pub", "response", "reason"): ["", "x\x00", "y" * 257],
        ("core", "pub", "context_hash"): ["", "x\x00", "y" * 257],
    }
    bad = copy.deepcopy(good)
    at(bad, path[:-1])[path[-1]] = wrong
    if any(wrong == each and type(wrong) is type(each) for each in fine.get(path, ())):
        read_payload(bad)
        return
    with pytest.raises(Invalid):
        read_payload(bad)


@pytest.mark.parametrize("path", [(), ("core",), ("core", "src")])
def test_an_extra_member_is_refused(path: tuple[str, ...]) -> None:
    bad = payload(RECORDS["decision"])
    at(bad, path)["extra"] = 1
    with pytest.raises(Invalid):
        read_payload(bad)


@pytest.mark.parametrize("member", ["request", "response", "event"])
@pytest.mark.parametrize("kind", RECORDS)
def test_a_kind_can_not_be_indexed_by_another_kinds_members(kind: str, member: str) -> None:
    """A `gap` with a `request` would fill columns with unchecked values."""
    if member in payload(RECORDS[kind])["core"]["pub"]:
        return
    for value in ({}, {"agent_role": "a\x00b", "id": "x"}, "x", None):
        bad = payload(RECORDS[kind])
        bad["core"]["pub"][member] = value
        with pytest.raises(Invalid, match=f"may not hold `{member}`"):
            read_payload(bad)


@pytest.mark.parametrize("bad", [None, [], "x", 1, {}, {"core": {}}, {"open": {}}])
def test_a_payload_that_is_not_a_record_is_refused(bad: object) -> None:
    with pytest.raises(Invalid):
        read_payload(bad)


Change = Callable[[Any], object]
OPENINGS: dict[str, Change] = {
    "one is missing": lambda p: p["open"].pop("query"),
    "all are missing": lambda p: p["open"].clear(),
    "one is too many": lambda p: p["open"].update(more=p["open"]["query"]),
    "two are swapped": lambda p: p["open"].update(
        query=p["open"]["user_id"], user_id=p["open"]["query"]
    ),
    "a value is another": lambda p: p["open"]["user_id"].__setitem__(1, "bob"),
    "a value is null": lambda p: p["open"]["user_id"].__setitem__(1, None),
    "a salt is another": lambda p: p["open"]["user_id"].__setitem__(0, b64(bytes(32))),
    "a salt is short": lambda p: p["open"]["user_id"].__setitem__(0, b64(bytes(31))),
    "a salt is no base64": lambda p: p["open"]["user_id"].__setitem__(0, "é"),
    "a salt is a number": lambda p: p["open"]["user_id"].__setitem__(0, 1),
    "an opening is long": lambda p: p["open"]["user_id"].append(1),
    "an opening is a text": lambda p: p["open"].update(user_id="x"),
    "a commitment is another": lambda p: p["core"]["cm"].update(user_id=b64(bytes(32))),
    "a commitment is too many": lambda p: p["core"]["cm"].update(more=b64(bytes(32))),
    "a commitment is missing": lambda p: p["core"]["cm"].pop("query"),
}


@pytest.mark.parametrize("change", OPENINGS.values(), ids=OPENINGS.keys())
def test_openings_that_do_not_open_are_refused(change: Change) -> None:
    bad = payload(RECORDS["decision"])
    change(bad)
    with pytest.raises(Invalid):
        read_payload(bad)


@pytest.mark.parametrize(
    ("path", "value"),
    [("user_id", "a\x00b"), ("user_id", ""), ("user_id", "x" * 257), ("detail", "not json"),
     ("detail", "[]")],
)  # fmt: skip
def test_an_opened_value_that_cannot_be_stored_or_shown_is_refused(path: str, value: str) -> None:
    """A NUL would stop a database's column, and with it the sidecar's whole queue."""
    cm, openings = commit(bytes(32), {path: value})
    record = make_record("decision", "e", RECORDS["decision"].pub, cm, openings)
    with pytest.raises(Invalid, match=path):
        read_payload(payload(record))


def test_a_record_nested_too_deeply_is_refused() -> None:
    for depth in (70, 300, 900):
        deep = orjson.loads(b'{"a":' + b"[" * depth + b"]" * depth + b"}")
        bad = payload(RECORDS["gap"])
        bad["core"]["pub"] |= deep
        with pytest.raises(Invalid, match="nested"):
            read_payload(bad)


def test_a_record_that_would_make_too_large_an_entry_is_refused() -> None:
    """Once in the log, it would fail every verification."""
    big = payload(RECORDS["gap"])
    room = MAX_ENTRY - 2048 - len(encode(big["core"]))
    big["core"]["pub"]["reason"] += "x" * room
    core = orjson.loads(read_payload(big).encoded)
    place: dict[str, Any] = {
        "log": "😀" * 256,
        "seq": 2**53 - 1,
        "prev": PREV,
        "ts": rfc3339(START),
    }
    assert len(entry_from_core(core, **place)) <= MAX_ENTRY
    big["core"]["pub"]["reason"] += "x"
    with pytest.raises(Invalid, match="the limit is"):
        read_payload(big)


def test_a_record_chains_only_by_a_whole_hash() -> None:
    for n, prev in ((0, PREV), (1, ""), (1, "AAAA"), (1, b64(bytes(33))), (1, PREV[:-1]), (1, "é")):
        bad = payload(RECORDS["gap"])
        bad["core"]["src"] |= {"n": n, "prev": prev}
        with pytest.raises(Invalid):
            read_payload(bad)


MUTATIONS = st.sampled_from([None, True, 1, -1, "x", "", [], {}, ["a"], {"a": 1}])


@given(st.sampled_from(sorted(RECORDS)), st.data())
def test_a_changed_record_is_refused_or_is_another_record(kind: str, data: st.DataObject) -> None:
    """Every accepted record is canonical, can be indexed, and differs from the one before the
    change."""
    good = payload(RECORDS[kind])
    before = read_payload(good)
    changed = copy.deepcopy(good)
    path = data.draw(st.sampled_from(places(good)))
    at(changed, path[:-1])[path[-1]] = data.draw(MUTATIONS)
    try:
        read = read_payload(changed)
    except Invalid:
        return
    raw = entry_from_core(
        orjson.loads(read.encoded), log="default", seq=0, prev="", ts=rfc3339(START)
    )
    index_of(orjson.loads(raw))
    assert encode(orjson.loads(raw)) == raw
    same = encode(changed) == encode(good)
    assert (read.hash == before.hash) == same
