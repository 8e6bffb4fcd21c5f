"""Shows the console's pages of policies: the list, one policy, its versions and their differences,
and its deletion."""

from collections.abc import Mapping
from dataclasses import asdict
from difflib import unified_diff
from typing import Any, NamedTuple

import orjson

from control_api.console.page import HtmlPage, PageRedirect, Visit, address, get, post
from control_api.console.views.policies.policy_text import written
from control_api.edge.answers import write_cursor
from control_api.policy.access_operations import diff_policies, review_policies
from control_api.policy.models import PolicyFields, PolicyResponse, PolicyVersion
from control_api.policy.operations import (
    create_policy,
    delete_policy,
    get_policy,
    list_policies,
    list_policy_versions,
    reload_policies,
    replace_policy,
    restore_policy,
)
from policies.analysis.callers import Escape, escapes
from policies.definitions.model import Policy
from policies.definitions.policy_form import FIELDS, LISTS
from policies.ground.errors import Invalid, NotFound, SluiceError

FILTERS = ("name", "source", "agent_role", "industry", "process_group")
SOURCES = 4
"""The most sources of a policy that the list names."""


async def show_policies(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    given = visit.filled(*FILTERS)
    found = None
    try:
        found = await visit.call(list_policies, limit="50", **given, **visit.filled("cursor"))
    except SluiceError as error:
        problem = problem or error
    values = {
        "policies": found,
        "given": given,
        "shown_sources": SOURCES,
        "may_create": visit.may_call(create_policy),
        "may_reload": visit.may_call(reload_policies),
        "reloaded": visit.query.get("reloaded") == "yes",
    }
    return HtmlPage("policies/list.html", values, problem)


async def reload_files(visit: Visit) -> PageRedirect:
    await visit.call(reload_policies)
    return PageRedirect(address("/policies", reloaded="yes"))


def body_of(policy: PolicyResponse | PolicyFields) -> dict[str, Any]:
    """Return the fields of a policy that its author writes."""
    return {name: getattr(policy, name) for name in FIELDS}


def read_version(text: str) -> int:
    """Read the number of a version. Raises `Invalid` if the text is no number."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Invalid("a version is a number")
    return int(text)


async def version_of(visit: Visit, policy_id: str, number: int) -> PolicyVersion:
    """Return a version of a policy. Raises `NotFound` if the policy has no such version."""
    found = await newest_before(visit, policy_id, number + 1)
    if found is None or found.version != number:
        raise NotFound(f"the policy has no version {number}")
    return found


async def newest_before(visit: Visit, policy_id: str, number: int) -> PolicyVersion | None:
    """Return the newest version below `number`; None if there is none."""
    cursor = write_cursor((number,))
    page = await visit.call(list_policy_versions, policy_id=policy_id, limit="1", cursor=cursor)
    return page.rows[0] if page.rows else None


ROWS = 100
"""The most rows of newly allowed access that are shown, and of newly denied access."""


class FieldChange(NamedTuple):
    """A change of one field: the items that were added to and removed from a list, or the value
    before and after, each None if the field was absent."""

    field: str
    added: list[str]
    removed: list[str]
    before: str | int | None
    after: str | int | None
    is_list: bool


def field_changes(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> list[FieldChange]:
    """Return the fields that differ, in the order of a policy file. Without `old` everything is
    new."""
    found = []
    for field in FIELDS:
        before, after = None if old is None else old[field], new[field]
        if field in LISTS:
            was, is_now = before or [], after or []
            if was != is_now:
                added = [each for each in is_now if each not in set(was)]
                removed = [each for each in was if each not in set(is_now)]
                found.append(FieldChange(field, added, removed, None, None, is_list=True))
        elif before != after:
            found.append(FieldChange(field, [], [], before, after, is_list=False))
    return found


def line_changes(old: str, new: str) -> list[tuple[str, str]]:
    """Return the lines that differ with up to three unchanged lines around them, as pairs of a mark
    and the line. The mark is `+`, `-` or a space; `@` stands for lines that are left out. Empty if
    the texts are alike."""
    lines = list(unified_diff(old.splitlines(), new.splitlines(), lineterm=""))[2:]
    return [("@", "") if each.startswith("@@") else (each[0], each[1:]) for each in lines]


def shortened(found: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a diff or a review with at most `ROWS` rows of each kind (`found`), and
    the number of rows left out of each (`more`)."""
    kinds = ("newly_allowed", "newly_denied")
    return {
        "found": found | {kind: found[kind][:ROWS] for kind in kinds},
        "more": {kind: max(0, len(found[kind]) - ROWS) for kind in kinds},
    }


DONE = {
    "created": "The policy is in force.",
    "saved": "The change is in force. The version before it is in the history.",
    "unchanged": "The text says what is in force already: nothing was changed.",
    "restored": "The policy is as its file defines it, and follows the file again.",
}


async def show_policy(visit: Visit) -> HtmlPage:
    policy = await visit.call(get_policy, policy_id=visit.required("id"))
    values = {
        "policy": policy,
        "escapes": await _escapes(visit, policy),
        "lines": [(line, ()) for line in written(body_of(policy)).splitlines()],
        "may_change": visit.may_call(replace_policy),
        "may_delete": visit.may_call(delete_policy),
        "may_restore": visit.may_call(restore_policy),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("policies/one.html", values)


async def _escapes(visit: Visit, policy: PolicyResponse) -> list[Escape]:
    """Return the policy's denials that a call avoids if it names no agent."""
    if not policy.permitted_agent_ids:
        return []
    page = await visit.call(list_policies, agent_role=policy.agent_role, limit="1000")
    beside = [Policy.from_wire(asdict(each)) for each in page.rows]
    return [each for each in escapes(beside) if each.policy.policy_id == policy.policy_id]


async def review_deletion(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    policy = await visit.call(get_policy, policy_id=visit.required("id"))
    answer = await visit.call(review_policies, policies=[], keep_others=True, without=[policy.name])
    values = {"policy": policy, **shortened(orjson.loads(answer.body))}
    return HtmlPage("policies/delete.html", values, problem)


async def delete(visit: Visit) -> PageRedirect:
    policy_id = visit.required("id")
    await visit.call(delete_policy, policy_id=policy_id)
    return PageRedirect(address("/policy/history", id=policy_id, done="deleted"))


VERSIONS = 25
"""The number of versions on a page."""
HISTORY_DONE = {
    "deleted": "The policy is deleted: it decides nothing any more. Its history remains."
}


async def show_history(visit: Visit) -> HtmlPage:
    """Show a policy's versions, newest first, each with what it changed."""
    policy_id = visit.required("id")
    page = await visit.call(
        list_policy_versions, policy_id=policy_id, limit=str(VERSIONS), **visit.filled("cursor")
    )
    rows: list[PolicyVersion] = page.rows
    last = await newest_before(visit, policy_id, rows[-1].version) if page.next else None
    current = await _current(visit, policy_id)
    values = {
        "policy_id": policy_id,
        "name": rows[0].policy.name if rows else policy_id,
        "current": current,
        "next": page.next,
        "versions": [
            (row, None if before is None else before.version, _changes(before, row))
            for row, before in zip(rows, [*rows[1:], last], strict=True)
        ],
        "texts": {row.version: written(body_of(row.policy)) for row in rows},
        "may_restore": visit.may_call(replace_policy),
        "done_text": HISTORY_DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("policies/history.html", values)


async def compare(visit: Visit) -> HtmlPage:
    """Show the differences between two versions of a policy: in their text, and exactly in the
    access that each allows."""
    policy_id = visit.required("id")
    old = await version_of(visit, policy_id, read_version(visit.required("from")))
    new = await version_of(visit, policy_id, read_version(visit.required("to")))
    before, after = body_of(old.policy), body_of(new.policy)
    answer = await visit.call(diff_policies, policies=[after], against=[before])
    values = {
        "policy_id": policy_id,
        "name": new.policy.name,
        "old": old,
        "new": new,
        "changed": field_changes(before, after),
        "changed_lines": line_changes(written(before), written(after)),
        **shortened(orjson.loads(answer.body)),
    }
    return HtmlPage("policies/compare.html", values)


async def _current(visit: Visit, policy_id: str) -> int | None:
    """Return the number of the version in force; None if the policy is deleted."""
    try:
        version: int = (await visit.call(get_policy, policy_id=policy_id)).version
    except NotFound:
        return None
    return version


def _changes(before: PolicyVersion | None, row: PolicyVersion) -> list[Any]:
    return field_changes(None if before is None else body_of(before.policy), body_of(row.policy))


PAGES = (
    get("/policies", list_policies, show_policies),
    post("/policies/reload", reload_policies, reload_files, show_policies),
    get("/policy", get_policy, show_policy),
    get("/policy/delete", delete_policy, review_deletion),
    post("/policy/delete", delete_policy, delete, review_deletion),
    get("/policy/history", list_policy_versions, show_history),
    get("/policy/compare", list_policy_versions, compare),
)
