"""Shows the console's pages that write a policy, review what it would do, save it, and restore it
from its file.

Typed text is never lost: every refusal shows it again. The text that is saved is exactly the text
that was reviewed, and it replaces exactly the version that it was compared with.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from control_api.console.page import HtmlPage, JsonAnswer, PageRedirect, Visit, address, get, post
from control_api.console.views.policies.one import (
    FieldChange,
    body_of,
    field_changes,
    line_changes,
    read_version,
    shortened,
    version_of,
)
from control_api.console.views.policies.policy_text import read, written
from control_api.policy.access_operations import review_policies
from control_api.policy.candidate_operations import publish_candidate
from control_api.policy.impact_operations import start_impact
from control_api.policy.models import PolicyResponse, PolicyVersion
from control_api.policy.operations import (
    create_policy,
    get_policy,
    list_policies,
    replace_policy,
    restore_policy,
    show_policy_file,
)
from policies.definitions.definition import DefinitionFault
from policies.definitions.policy_form import POLICY_FILE
from policies.ground.errors import Conflict, NotFound, PreconditionFailed, SluiceError

FAILURES = 50
"""The most failed tests that are shown."""
NEW = "name:\nagent_role:\nallowed_sources: []\ndenied_sources: []\nmax_sensitivity: low\n"
_ITEM = POLICY_FILE.schema()["properties"]["policies"]["items"]
SCHEMA = orjson.dumps(
    {
        key: {
            "about": each["description"],
            "required": key in _ITEM["required"],
            "list": each.get("type") == "array",
            "values": each.get("enum", []),
        }
        for key, each in _ITEM["properties"].items()
    }
).decode()
"""The data for the editor's completion, as JSON. For each key of a policy: its description, whether
it is required, whether it is a list, and its allowed values. It is made from the JSON Schema of
policy files."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A policy text that is being written. `policy_id` is empty for a new policy; `version` is the
    version that the text is to replace."""

    text: str
    policy_id: str = ""
    version: int = 0
    tests: str = ""

    @classmethod
    def of(cls, visit: Visit) -> "Draft":
        """Return the draft that the form contains."""
        form, version = visit.form, read_version(visit.form.get("version") or "0")
        return cls(form.get("text", ""), form.get("id", ""), version, form.get("tests", ""))


@dataclass(slots=True)
class Reviewed:
    draft: Draft
    body: dict[str, Any]
    before: PolicyResponse | None = None
    """The policy in force, which the draft would replace; None for a new policy."""
    base: PolicyVersion | None = None
    """The version that the draft was made from, if it is not in force any more."""
    left_out: str = ""
    """The name of the policy in force, if the draft has another name."""
    found: dict[str, Any] = field(default_factory=dict)
    """The answer of the operation that reviews the draft."""


async def show_new(_: Visit) -> HtmlPage:
    return _editor(Draft(NEW))


async def show_editor(visit: Visit) -> HtmlPage:
    policy = await visit.call(get_policy, policy_id=visit.required("id"))
    draft = Draft(written(body_of(policy)), policy.policy_id, policy.version)
    return _editor(draft, name=policy.name)


async def review(visit: Visit) -> HtmlPage | JsonAnswer:
    """Show what a draft would do. With `as=faults`, send only the faults of its text, for the
    editor's script."""
    draft = Draft.of(visit)
    body, faults = read(draft.text)
    if visit.form.get("as") == "faults":
        return JsonAnswer({"faults": [each._asdict() for each in faults]})
    if body is None:
        return _editor(draft, faults)
    return await _review(visit, Reviewed(draft, body))


async def save(visit: Visit) -> HtmlPage | PageRedirect:
    """Save a draft, if the version that it was reviewed against is still in force."""
    draft = Draft.of(visit)
    body, faults = read(draft.text)
    if body is None:
        return _editor(draft, faults)
    try:
        if not draft.policy_id:
            made = await visit.call(create_policy, **body)
            return PageRedirect(address("/policy", id=made.policy_id, done="created"))
        expected = f'"{draft.version}"'
        made = await visit.call(
            replace_policy, policy_id=draft.policy_id, if_match=expected, **body
        )
    except SluiceError as error:
        return await _review(visit, Reviewed(draft, body), error)
    done = "saved" if made.version > draft.version else "unchanged"
    return PageRedirect(address("/policy", id=made.policy_id, done=done))


async def _review(visit: Visit, reviewed: Reviewed, problem: SluiceError | None = None) -> HtmlPage:
    """Show the review, with the reason for which the draft was not saved, if any. If it can't be
    reviewed, show the editor."""
    try:
        await _find_out(visit, reviewed)
    except SluiceError as error:
        return _editor(reviewed.draft, problem=problem or error)
    if reviewed.base is not None:
        problem = PreconditionFailed("the policy was changed while you wrote")
    return HtmlPage("policies/review.html", _review_values(visit, reviewed), problem)


async def _find_out(visit: Visit, reviewed: Reviewed) -> None:
    """Fill in the review's fields by comparing the draft with the policies in force."""
    draft, body = reviewed.draft, reviewed.body
    if draft.policy_id:
        before = await visit.call(get_policy, policy_id=draft.policy_id)
        reviewed.before = before
        if before.version != draft.version:
            reviewed.base = await version_of(visit, draft.policy_id, draft.version)
        reviewed.left_out = before.name if before.name != body["name"] else ""
    if reviewed.left_out or not draft.policy_id:
        await _require_free(visit, body["name"])
    answer = await visit.call(
        review_policies,
        policies=[body],
        keep_others=True,
        without=[reviewed.left_out] if reviewed.left_out else [],
        tests=draft.tests if draft.tests.strip() else None,
    )
    reviewed.found = orjson.loads(answer.body)


async def _require_free(visit: Visit, name: str) -> None:
    """Raise `Conflict` if an active policy has this name, since the review would take that policy
    for the one to replace."""
    page = await visit.call(list_policies, name=name, limit="1000")
    if name in (each.name for each in page.rows):
        raise Conflict(f"an active policy named `{name}` already exists")


def _review_values(visit: Visit, reviewed: Reviewed) -> dict[str, Any]:
    draft, before, found = reviewed.draft, reviewed.before, reviewed.found
    old = "" if before is None else written(body_of(before))
    meanwhile: list[FieldChange] = []
    if reviewed.base is not None and before is not None:
        meanwhile = field_changes(body_of(reviewed.base.policy), body_of(before))
    tests = found["tests"]
    return {
        **_form(draft),
        "name": reviewed.body["name"],
        "before": before,
        "changed": field_changes(None if before is None else body_of(before), reviewed.body),
        "changed_lines": line_changes(old, written(reviewed.body)),
        "conflict": reviewed.base is not None,
        # The text is reviewed again as a change of what is in force now.
        "next": draft if before is None else replace(draft, version=before.version),
        "meanwhile": meanwhile,
        "left_out": reviewed.left_out,
        **shortened(found),
        "failures": [] if tests is None else tests["failures"][:FAILURES],
        "may_save": visit.may_call(replace_policy if draft.policy_id else create_policy),
        "may_try": visit.may_call(publish_candidate),
        "may_run": visit.may_call(start_impact),
    }


def _editor(
    draft: Draft,
    faults: list[DefinitionFault] | None = None,
    problem: SluiceError | None = None,
    name: str = "",
) -> HtmlPage:
    """Return the editor's page, with the faults of the text at their lines."""
    at_line: dict[int, list[DefinitionFault]] = {}
    for each in faults or ():
        at_line.setdefault(each.line, []).append(each)
    lines = draft.text.splitlines() if faults else []
    values = {
        **_form(draft),
        "name": name,
        "faults": faults or [],
        "lines": [(line, at_line.get(number, [])) for number, line in enumerate(lines, 1)],
    }
    return HtmlPage("policies/edit.html", values, problem, 422 if faults else None)


def _form(draft: Draft) -> dict[str, Any]:
    return {"draft": draft, "schema": SCHEMA, "faults": []}


async def review_restore(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    policy_id = visit.required("id")
    filed = body_of(await visit.call(show_policy_file, policy_id=policy_id))
    try:
        current = body_of(await visit.call(get_policy, policy_id=policy_id))
    except NotFound:
        current = None
    renamed = current is not None and current["name"] != filed["name"]
    answer = await visit.call(
        review_policies,
        policies=[filed],
        keep_others=True,
        without=[current["name"]] if current is not None and renamed else [],
    )
    values = {
        "policy_id": policy_id,
        "name": filed["name"],
        "deleted": current is None,
        "changed": field_changes(current, filed),
        "changed_lines": line_changes("" if current is None else written(current), written(filed)),
        **shortened(orjson.loads(answer.body)),
    }
    return HtmlPage("policies/restore.html", values, problem)


async def restore(visit: Visit) -> PageRedirect:
    policy_id = visit.required("id")
    await visit.call(restore_policy, policy_id=policy_id)
    return PageRedirect(address("/policy", id=policy_id, done="restored"))


def broken_guardrail(error: SluiceError | None) -> dict[str, Any] | None:
    """Return the `guardrail` that refused the change, with a `counterexample`; None if the error
    has another cause (`TOOLS.md`, Guardrails)."""
    if not isinstance(error, Conflict) or not (error.details or "").startswith("{"):
        return None
    found: dict[str, Any] = orjson.loads(error.details or "")
    return found


PAGES = (
    get("/policy/new", review_policies, show_new),
    get("/policy/edit", review_policies, show_editor),
    post("/policy/review", review_policies, review),
    post("/policy/save", replace_policy, save),
    get("/policy/restore", restore_policy, review_restore),
    post("/policy/restore", restore_policy, restore, review_restore),
)
