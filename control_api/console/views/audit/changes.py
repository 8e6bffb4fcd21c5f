"""Administrative changes: who changed what, when, and from what to what."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from control_api.console.page import ROOT, Html, Page
from control_api.console.visit import Visit
from control_api.responses.changes import ChangeShown
from control_api.use_cases.audit.list_changes import list_changes
from control_api.use_cases.keys.list_keys import list_keys
from policies.ground.errors import SluiceError

VALUES = ("object_type", "object_id", "action", "actor")
TIMES = ("from", "to")
_MOST = 2000
"""Characters of a value that are shown."""


class Member(NamedTuple):
    """A member that differs, as JSON; None where the object does not have it."""

    name: str
    before: str | None
    after: str | None


class ChangeRow(NamedTuple):
    """A change. `person` is the name of the key that made it, None if it is no key in use: then the
    actor is a name itself, or a key that was revoked."""

    change: ChangeShown
    person: str | None
    members: list[Member]


async def show_changes(visit: Visit) -> Html:
    """The changes that match, newest first."""
    given = visit.given(*VALUES, *TIMES)
    fields = visit.given(*VALUES, "cursor")
    values: dict[str, Any] = {"given": given, "changes": [], "next": None, "problem": None}
    try:
        page = await visit.call(list_changes, limit="50", **fields, **visit.times(*TIMES))
        keys = await visit.call(list_keys, limit="1000")
    except SluiceError as error:
        return Html("audit/changes.html", {**values, "problem": error}, error.status)
    names = {each.key_id: each.name for each in keys.rows}
    rows = [ChangeRow(each, names.get(each.actor), members(each)) for each in page.rows]
    return Html("audit/changes.html", {**values, "changes": rows, "next": page.next})


def members(change: ChangeShown) -> list[Member]:
    """What differs between before and after."""
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
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


PAGES = (Page("GET", f"{ROOT}/audit/changes", list_changes, show_changes),)
