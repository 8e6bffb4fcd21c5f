"""Shows the console's pages of administrative changes, and of refused records of sidecars."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from control_api.audit.change_operations import (
    ChangeResponse,
    RejectedRecord,
    list_changes,
    list_rejected_records,
)
from control_api.console.page import HtmlPage, Visit, get
from control_api.registry.key_operations import list_keys
from policies.ground.errors import SluiceError

VALUES = ("object_type", "object_id", "action", "actor")
TIMES = ("from", "to")
_MOST = 2000
"""The most characters of a changed value that are shown."""


class Member(NamedTuple):
    """A member of an object that a change made different, with its values before and after as JSON.
    A value is None where the object does not have the member."""

    name: str
    before: str | None
    after: str | None


class ChangeRow(NamedTuple):
    change: ChangeResponse
    members: list[Member]


async def show_changes(visit: Visit) -> HtmlPage:
    given = visit.filled(*VALUES, *TIMES)
    fields = visit.filled(*VALUES, "cursor")
    values: dict[str, Any] = {"given": given, "changes": [], "next": None}
    try:
        page = await visit.call(list_changes, limit="50", **fields, **visit.times(*TIMES))
    except SluiceError as error:
        return HtmlPage("audit/changes.html", values, error)
    rows = [ChangeRow(each, members(each)) for each in page.rows]
    return HtmlPage("audit/changes.html", {**values, "changes": rows, "next": page.next})


def members(change: ChangeResponse) -> list[Member]:
    before, after = change.before or {}, change.after or {}
    names = [*before, *(name for name in after if name not in before)]
    return [
        Member(name, _text(before, name), _text(after, name))
        for name in names
        if name not in before or name not in after or before[name] != after[name]
    ]


def _text(held: Mapping[str, Any], name: str) -> str | None:
    if name not in held:
        return None
    value = held[name]
    return _cut(value if isinstance(value, str) else orjson.dumps(value).decode(), _MOST)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


WORDS = {
    "not_a_record": "It lacks a part, has a wrong one, or does not open what it commits to.",
    "foreign_spool": "It says that it is of another sidecar than the one that delivered it.",
    "event_id": "Its id is not of the form that sidecars make.",
    "duplicate_id": "Its id is that of another entry. One of the two may be forged: compare them.",
    "foreign_agent": "It allows an agent that the key does not speak for.",
    "foreign_role": "It allows an agent in a role that the agent did not have.",
    "foreign_event": "It follows from a decision that is not this sidecar's own.",
    "unknown_event": "It follows from a decision that was not delivered before it.",
}
"""The sentence that explains each reason for refusing a record, as in
`control_api/log/README.md`."""
_TAKEN = "duplicate_id"
_MOST_REFUSED = 4000
"""The most characters of a refused record that are shown."""


class RefusedRow(NamedTuple):
    """A refused record as a row of the page. `person` is the name of the key that delivered it,
    None if that is not a key in use; `words` says why it was refused; `text` is its content, None
    if that was not kept. `decision` is the decision that it claims, None if it claims none;
    `event_id` is its id, if another entry has the same id."""

    record: RejectedRecord
    person: str | None
    words: str
    text: str | None
    decision: str | None
    event_id: str | None


async def show_refused(visit: Visit) -> HtmlPage:
    values: dict[str, Any] = {"rows": [], "next": None}
    try:
        page = await visit.call(list_rejected_records, limit="50", **visit.filled("cursor"))
        keys = await visit.call(list_keys, limit="1000")
    except SluiceError as error:
        return HtmlPage("audit/refused.html", values, error)
    names = {each.key_id: each.name for each in keys.rows}
    rows = [_row(each, names.get(each.key_id)) for each in page.rows]
    return HtmlPage("audit/refused.html", {**values, "rows": rows, "next": page.next})


def _row(refused: RejectedRecord, person: str | None) -> RefusedRow:
    record, words = refused.record, WORDS.get(refused.reason, refused.reason)
    taken = record is not None and refused.reason == _TAKEN
    event_id = str(record["eid"]) if record is not None and taken else None
    text = None
    if record is not None:
        text = _cut(orjson.dumps(record, option=orjson.OPT_INDENT_2).decode(), _MOST_REFUSED)
    return RefusedRow(refused, person, words, text, _decision(record), event_id)


def _decision(record: dict[str, Any] | None) -> str | None:
    """Return the decision that a record claims, with its agent and source; None if the record can't
    be read as a decision."""
    try:
        pub = (record or {})["pub"]
        request, answer = pub["request"], pub["response"]["decision"]
        agent_id, source_id = request.get("agent_id"), request["source_id"]
    except (LookupError, TypeError, AttributeError):
        return None
    return f"{answer}: {agent_id or 'no agent'} from {source_id}"[:_MOST_REFUSED]


PAGES = (
    get("/audit/changes", list_changes, show_changes),
    get("/audit/refused", list_rejected_records, show_refused),
)
