"""Each form of the record against the table of fields (`policies.trail.fields`)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from policies.ground.canonical import NotCanonical, check
from policies.sets.source_levels import SourceLevels, sources_document
from policies.trail.entry import KNOWN, audit_event
from policies.trail.fields import FIELDS, REQUEST, Field, Type, names
from policies.trail.record_fast_path import match_record, read
from policies.trail.record_schema import pub_fault
from policies.trail.spool_chain import read_payload
from policies.trail.walk.known_lines import LineMatcher
from tests.policies.trail.made_records import OPTIONAL, core, line, payload
from tests.policies.world import (
    FULL,
    RETRIEVAL,
    Log,
    decided,
    diverging,
    full_facts,
    masked_log,
    statement_log,
)
from tests.support import record_tables

JSON_TYPES: dict[Type, type] = {
    Type.COUNT: int,
    Type.TRUE: bool,
    Type.FLAG: bool,
    Type.MARKS: list,
    Type.PAIRS: list,
    Type.OBJECT: dict,
    Type.ITEMS: list,
}
"""All others are strings."""


def encoded() -> Iterator[dict[str, Any]]:
    """Entries of decisions that have every field between them."""
    log, facts = Log(), full_facts()
    absent: dict[str, Any] = {name: "x" for name in names(REQUEST) if getattr(FULL, name) is None}
    asked = FULL._replace(**absent)
    frozen = replace(facts.settings, frozen_at=5)
    levels = SourceLevels(sources_document({"contracts": "high"}) or b"")
    log.direct(decided(RETRIEVAL._replace(source_id="payroll")))
    log.shipped(decided(asked, facts, seed=1), marks=("time_doubtful",))
    log.shipped(diverging(2, FULL))
    log.direct(decided(FULL, facts._replace(settings=frozen), seed=3))
    log.direct(decided(FULL, facts._replace(sources=levels), seed=4))
    for row in (*log.rows, *masked_log().rows, *statement_log().rows):
        entry = orjson.loads(row.entry)
        if entry["kind"] == "decision":
            yield entry


ENTRIES = list(encoded())


def held(field: Field, entry: dict[str, Any]) -> list[Any]:
    """The field's values in an entry: one, none, or one of each item of a list."""
    found: list[Any] = [entry]
    for step in field.path.split("."):
        name = step.removesuffix("[]")
        found = [each[name] for each in found if name in each]
        if step.endswith("[]"):
            found = [item for each in found for item in each]
    return found


def test_the_encoder_writes_the_fields_of_the_table_and_no_others() -> None:
    for parent in {each.parent for each in FIELDS if each.path}:
        holder = Field(parent, Type.OBJECT, "")
        objects = [
            each for entry in ENTRIES for each in (held(holder, entry) if parent else [entry])
        ]
        if parent == "pub.facts":
            objects = [each for each in objects if each]  # without facts, none of its fields is due
        assert {name for each in objects for name in each} == {*names(parent)}, parent
        required = {*names(parent, optional=False)}
        assert all(required <= each.keys() for each in objects), parent


@pytest.mark.parametrize("path", sorted({each.path for each in FIELDS if each.path}))
def test_the_encoder_writes_the_type_of_the_table(path: str) -> None:
    [field, *_] = [each for each in FIELDS if each.path == path]
    found = [value for entry in ENTRIES for value in held(field, entry)]
    expected = JSON_TYPES.get(field.type, str)
    assert {type(each) for each in found} == {expected}


@pytest.mark.parametrize("without", ["", *OPTIONAL])
def test_a_record_with_every_field_has_either_known_form(without: str) -> None:
    raw = payload(without)
    known = match_record(raw)
    assert known is not None
    slow = read_payload(orjson.loads(raw))
    assert read(known) == slow
    block = b"\n%b\n" % line(without)
    assert LineMatcher(block).rows(block) is not None


@pytest.mark.parametrize("field", [each for each in FIELDS if each.path.startswith("pub.")])
def test_a_sidecar_may_send_every_field_of_the_table(field: Field) -> None:
    if field.path.startswith("pub.facts.") or field.type is Type.UNREAD:
        return  # derived again, rather than shown
    good = core()[0]["pub"]
    assert pub_fault("decision", good) is None
    for bad in (5.5, ["x"], None):
        pub = core()[0]["pub"]
        holder = pub
        for step in field.parent.split(".")[1:]:
            holder = holder[step.removesuffix("[]")]
            holder = holder[-1] if step.endswith("[]") else holder
        holder[field.name] = bad
        fault = pub_fault("decision", pub)
        item = field.parent.endswith("[]")
        accepted = bad is None and field.optional and not item
        assert (fault is None) == accepted, bad
        if fault is not None:
            assert f"`{field.parent[:-2] if item else field.path}" in fault


def test_every_name_of_the_table_is_canonical() -> None:
    assert {each.name for each in FIELDS if each.path} <= KNOWN
    check(dict.fromkeys(KNOWN))
    with pytest.raises(NotCanonical):
        check({"Name": 1})


def test_an_event_has_the_shown_fields_in_order() -> None:
    for entry in ENTRIES:
        assert [*audit_event(entry, bytes(32), None)] == [
            each.shown for each in FIELDS if each.shown
        ]


def test_the_tables_of_the_readme_are_the_code() -> None:
    page = record_tables.PAGE.read_text(encoding="utf-8")
    assert page == record_tables.written(page), "python -m tests.support.record_tables"
