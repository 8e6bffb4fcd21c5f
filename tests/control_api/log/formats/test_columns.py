"""Each form of an event against the table of fields (`policies.trail.fields`)."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from control_api.audit.event_models import AuditEvent
from control_api.log.formats import CSV_COLUMNS, ecs_document, ocsf_activity, otel_log_record
from policies.trail.fields import FIELDS, Export, Type
from tests.control_api.log.formats.events import ALLOWED, DENIED, TENANT

SHOWN = [each for each in FIELDS if each.shown]
MAYBE = {each.path for each in FIELDS if each.type is Type.OBJECT and each.optional}
SHAPES: dict[Export, Any] = {"ecs": ecs_document, "ocsf": ocsf_activity, "otel": otel_log_record}
FULL: dict[str, Any] = {
    **{name: name if value is None else value for name, value in DENIED.items()},
    "policy_version": 3,
    "time_doubtful": True,
    "agent_foreign": True,
}
"""An event with all that any has."""
OTHER: dict[str, Any] = {
    **{
        name: value + 1 if isinstance(value, int) else f"other {value}"
        for name, value in FULL.items()
    },
    "timestamp": "2026-02-28T00:00:00.000000Z",
    "decision": "ALLOW",
}


def leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """The members of an export by path, without the places in lists. An attribute of OpenTelemetry
    goes by its key."""
    if isinstance(value, dict) and value.keys() == {"key", "value"}:
        yield value["key"], value["value"]
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from leaves(member, f"{at}.{name}" if at else name)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, at) if isinstance(item, dict) else [(at, value)]
    else:
        yield at, value


@pytest.mark.parametrize("export", SHAPES)
@pytest.mark.parametrize("field", SHOWN, ids=lambda each: each.shown)
def test_a_field_of_an_event_has_the_place_that_the_table_names(export: Export, field: Any) -> None:
    columns = getattr(field, export)
    before = dict(leaves(SHAPES[export](FULL, TENANT)))
    value = False if FULL[field.shown] is True else OTHER[field.shown]
    after = dict(leaves(SHAPES[export]({**FULL, field.shown: value}, TENANT)))
    changed = {at for at in before.keys() | after.keys() if before.get(at) != after.get(at)}
    assert changed == ({*columns.split(", ")} if columns else set())


@pytest.mark.parametrize("export", SHAPES)
def test_a_number_of_zero_is_not_left_out(export: Export) -> None:
    zero = dict(leaves(SHAPES[export]({**ALLOWED, "seq": 0, "policy_version": 0}, TENANT)))
    assert zero.keys() == dict(leaves(SHAPES[export](ALLOWED, TENANT))).keys()


def test_the_columns_of_a_csv_file_are_numbered() -> None:
    numbered = {each.csv: each.shown for each in SHOWN if each.csv}
    assert tuple(numbered[n] for n in range(1, len(numbered) + 1)) == CSV_COLUMNS


def test_the_type_of_an_event_has_the_shown_fields_in_order() -> None:
    declared = {each.name: each for each in dataclasses.fields(AuditEvent)}
    assert [*declared] == [each.shown for each in SHOWN] == [*AuditEvent.example]
    hints = typing.get_type_hints(AuditEvent)
    for field in SHOWN:
        nullable = isinstance(hints[str(field.shown)], types.UnionType)
        # An erased user is null, and so is the sidecar of a decision that none made, or what is in
        # another object that may be absent. A mark is a flag, as is masking.
        derived = field.committed or field.parent in MAYBE
        flag = hints[str(field.shown)] is bool
        assert nullable == (derived or (field.optional and not flag)), field.shown
