"""The console's pages of policies: a policy's versions, and what differs between two."""

from typing import Any

import orjson

from control_api.console.page import ROOT, Html, Page
from control_api.console.views.policies.differences import field_changes, line_changes, shortened
from control_api.console.views.policies.policy_text import written
from control_api.console.views.policies.versions import (
    body_of,
    newest_before,
    read_version,
    version_of,
)
from control_api.console.visit import Visit
from control_api.responses.management import PolicyVersion
from control_api.use_cases.policies.get_policy import get_policy
from control_api.use_cases.policies.list_policy_versions import list_policy_versions
from control_api.use_cases.policies.replace_policy import replace_policy
from control_api.use_cases.policy_tools.diff_policies import diff_policies
from policies.ground.errors import NotFound

VERSIONS = 25
"""Versions on a page."""
DONE = {"deleted": "The policy is deleted: it decides nothing any more. Its history remains."}


async def show_history(visit: Visit) -> Html:
    """A policy's versions, newest first, each with what it changed."""
    policy_id = visit.required("id")
    page = await visit.call(
        list_policy_versions, policy_id=policy_id, limit=str(VERSIONS), **visit.given("cursor")
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
        "may_restore": visit.may(replace_policy),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return Html("policies/history.html", values)


async def compare(visit: Visit) -> Html:
    """What differs between two versions: the text, and exactly what each allows."""
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
    return Html("policies/compare.html", values)


async def _current(visit: Visit, policy_id: str) -> int | None:
    """The version in force; None if the policy is deleted."""
    try:
        version: int = (await visit.call(get_policy, policy_id=policy_id)).version
    except NotFound:
        return None
    return version


def _changes(before: PolicyVersion | None, row: PolicyVersion) -> list[Any]:
    return field_changes(None if before is None else body_of(before.policy), body_of(row.policy))


PAGES = (
    Page("GET", f"{ROOT}/policy/history", list_policy_versions, show_history),
    Page("GET", f"{ROOT}/policy/compare", list_policy_versions, compare),
)
