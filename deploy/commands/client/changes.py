"""`sluice changes`: lists the changes to the configuration that the audit trail holds, each with
its author, its time, and the values before and after."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from deploy.commands.client.client import Client, add_fields, common, given, paged
from deploy.commands.client.output import cell

PATH = "/v1/audit/changes"
COLUMNS = (
    ("TIME", "timestamp"),
    ("TYPE", "object_type"),
    ("OBJECT", "object_id"),
    ("ACTION", "action"),
    ("BY", "actor"),
    ("CHANGED", "changed"),
)
FILTERS = {
    "type": ("object_type", "only changes of this type of object, such as policy or agent"),
    "object": ("object_id", "only changes of the object with this id"),
    "action": ("action", "only this action, such as created or status"),
    "by": ("actor", "only changes by the key with this id"),
    "from": ("from", "only changes at or after this time"),
    "to": ("to", "only changes before this time"),
}
_FIELDS_LEFT_OUT = ("created_at", "updated_at", "version")
"""Fields of an object that differ with every change, so that the list of differences leaves them
out."""
_IDS = ("object", "by")
"""The filters whose value must be an id: a name in its place matches nothing."""
WIDTH = 40
"""The most characters of a value that the table shows; `--json` shows the whole value."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists administrative changes, newest first. The table shows the members that differ, with "
        "their values before and after; --json shows both in full."
    )
    add_fields(paged(common(parser, _changes)), FILTERS)


def _changes(client: Client, options: argparse.Namespace) -> int:
    query = given(options, FILTERS)
    pages = client.api.pages(PATH, query, None if options.all else options.limit)
    if not client.out.as_json:
        pages = _shown(pages)
    client.out.rows(_explained_if_empty(pages, query), COLUMNS)
    return 0


def _explained_if_empty(
    pages: Iterator[list[dict[str, Any]]], query: dict[str, Any]
) -> Iterator[list[dict[str, Any]]]:
    """Yield the pages. If they contain no row, print on standard error that the filters match ids
    and not names: a user who typed a name would otherwise believe that nothing changed."""
    found = False
    for page in pages:
        found = found or bool(page)
        yield page
    wanted = [f"--{name} {query[FILTERS[name][0]]}" for name in _IDS if FILTERS[name][0] in query]
    if wanted and not found:
        print(
            f"sluice: no change matches {' and '.join(wanted)}: an id is meant, such as "
            "`pol_…` or `key_…`, and no name; `sluice changes` without it lists ids beside names",
            file=sys.stderr,
        )


def _shown(pages: Iterator[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    for page in pages:
        yield [_row(each) for each in page]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row for the table: with the changed object's name after its id, if the entry holds
    one, the name of the key that made the change, and the change in words."""
    name = (row["after"] or row["before"] or {}).get("name")
    return {
        **row,
        "object_id": _named(row["object_id"], name),
        # An older control API does not name it.
        "actor": _named(row["actor"], row.get("actor_name")),
        "changed": in_words(row),
    }


def _named(object_id: str, name: str | None) -> str:
    return object_id if name is None else f"{object_id} ({name})"


def in_words(row: dict[str, Any]) -> str | None:
    """Return a change, as the API shows it, in words: the fields that differ with both values, or
    for a change of the log itself a sentence. Returns None if the object was created or removed."""
    before, after = row["before"], row["after"]
    match (row["object_type"], row["action"]):
        case ("log", "incarnation_accepted"):
            entries = _size(before["checkpoint"])
            return (
                f"an operator accepted that the log lost entries (its last checkpoint counted "
                f"{entries}); it goes on as {after['origin']}: {row['reason']}"
            )
        case ("log", "restored"):
            return (
                f"the database was put back from revision {before['revision']} to "
                f"{after['revision']}; {after['out_of_force']} documents of the policy set are out "
                "of force until they are written again"
            )
    return _changed(before, after)


def _size(note: str | None) -> str:
    """Return the number of entries that a checkpoint covers: the second line of its note (C2SP
    tlog-checkpoint), or `an unknown number` if there is no such line."""
    lines = (note or "").splitlines()
    return lines[1] if len(lines) > 1 else "an unknown number"


def _changed(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str | None:
    """Return the fields that differ, each with its value before and after; None if the object was
    created or removed."""
    if before is None or after is None:
        return None
    names = [name for name in {**before, **after} if name not in _FIELDS_LEFT_OUT]
    return "; ".join(
        f"{name}: {_value(before.get(name))} → {_value(after.get(name))}"
        for name in names
        if before.get(name) != after.get(name)
    )


def _value(value: object) -> str:
    text = cell(value)
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"
