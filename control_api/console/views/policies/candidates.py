"""Shows the console's pages of candidates (policy sets that are evaluated beside the active one),
of policy tests, and of the effect that other policies would have on recorded decisions."""

from typing import Any

import orjson

from control_api.console.page import HtmlPage, JsonAnswer, PageRedirect, Visit, address, get, post
from control_api.console.views.policies.editor import broken_guardrail
from control_api.console.views.policies.policy_text import MAX_FORM, read_policies, whole_or_part
from control_api.policy.access_operations import review_policies
from control_api.policy.candidate_operations import (
    drop_candidate,
    get_candidate,
    list_candidates,
    promote_candidate,
    publish_candidate,
    review_candidate,
)
from control_api.policy.impact_operations import cancel_impact, show_impact, start_impact
from policies.definitions.model import MAX_CANDIDATES
from policies.ground.canonical import rfc3339
from policies.ground.errors import Conflict, SluiceError

GROUPS = 50
"""The number of groups of decisions that are shown at first."""
ROWS = 200
"""The most rows of newly allowed access that are shown, and of newly denied access."""
NAMES = 100
"""The most names of policies of each kind that are shown."""
DONE = {
    "created": "The candidate is evaluated from now on. Its counts begin with the next decision."
}


async def show_candidate(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    found = await visit.call(get_candidate, name=visit.required("id"))
    most = len(found.groups) if visit.query.get("groups") == "all" else GROUPS
    values = {
        "candidate": found,
        "groups": found.groups[:most],
        "more": len(found.groups) > most,
        "may_change": visit.may_call(promote_candidate),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("policies/candidate.html", values, problem)


async def review(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    """Show exactly what a candidate would change, if it were promoted now."""
    name = visit.required("id")
    answer = await visit.call(review_candidate, name=name)
    found = orjson.loads(answer.body)
    values: dict[str, Any] = {
        "name": name,
        "reviewed": found["version"],
        "broken": found["broken_guardrails"],
        "may_promote": visit.may_call(promote_candidate),
        "refused_by": broken_guardrail(problem),
        "changed_since": found["changed_since"],
    }
    for kind in ("newly_allowed", "newly_denied"):
        values[kind] = found[kind][:ROWS]
        values[f"more_{kind}"] = max(0, len(found[kind]) - ROWS)
    values["kinds"] = [
        (title, found[kind][:NAMES], max(0, len(found[kind]) - NAMES))
        for title, kind in (("Added", "added"), ("Changed", "updated"), ("Removed", "removed"))
        if found[kind]
    ]
    return HtmlPage("policies/review_candidate.html", values, problem)


async def promote(visit: Visit) -> PageRedirect:
    """Put a candidate's policies in force, in the version that was reviewed."""
    name = visit.required("id")
    visit.form.require_confirmed("that you have read what it changes")
    reviewed = visit.required("reviewed")
    await visit.call(promote_candidate, name=name, if_match=f'"{reviewed}"')
    return PageRedirect(address("/policies/candidates", done="promoted"))


async def discard(visit: Visit) -> PageRedirect:
    name = visit.required("id")
    visit.form.require_confirmed("that the candidate and its counts may go")
    await visit.call(drop_candidate, name=name)
    return PageRedirect(address("/policies/candidates", done="discarded"))


CANDIDATES_DONE = {
    "promoted": "The candidate's policies are in force now.",
    "discarded": "The candidate is gone. What is in force stayed as it was.",
}


async def show_candidates(visit: Visit) -> HtmlPage:
    found = await visit.call(list_candidates)
    values = {
        "candidates": found.rows,
        "may_create": visit.may_call(publish_candidate),
        "most": MAX_CANDIDATES,
        "done_text": CANDIDATES_DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("policies/candidates.html", values)


async def show_new_candidate(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    given = visit.form or visit.filled("name")
    taken = isinstance(problem, Conflict) and bool(given.get("name"))
    return HtmlPage("policies/new_candidate.html", {"given": given, "taken": taken}, problem)


async def create_candidate(visit: Visit) -> HtmlPage | PageRedirect:
    """Create a candidate. If the form has no name yet, show it again with the text in it."""
    form = visit.form
    name = form.text("name")
    if name is None:
        return await show_new_candidate(visit)
    policies = await read_policies(form.get("policies", ""))
    if not form.get("replace"):
        await _require_free(visit, name)
    await visit.call(publish_candidate, name=name, policies=policies, **whole_or_part(form))
    return PageRedirect(address("/policies/candidate", id=name, done="created"))


async def _require_free(visit: Visit, name: str) -> None:
    found = await visit.call(list_candidates)
    if name in (each.name for each in found.rows):
        raise Conflict(
            f"there is a candidate `{name}` already: take another name, or replace it, and what "
            "was counted of it begins again"
        )


_DAY = 86_400_000_000  # microseconds
SINCE = {"day": ("the last day", _DAY), "week": ("the last week", 7 * _DAY), "all": ("all", None)}
IMPACT_DONE = {
    "started": "The run has begun. It changes nothing.",
    "cancelled": "The run was cancelled. What it has counted stays.",
}


async def show_impact_page(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    """Show an impact run with its result so far, and the form that starts another."""
    impact_id = visit.query.get("id") or visit.form.get("id")
    run = await visit.call(show_impact, impact_id=impact_id) if impact_id else None
    values = {
        "run": run,
        "given": visit.form,
        "periods": [(name, title) for name, (title, _) in SINCE.items()],
        "may_start": visit.may_call(start_impact),
        "done_text": IMPACT_DONE.get(visit.query.get("done", "")),
        **(_result(visit, run) if run is not None else {}),
    }
    return HtmlPage("policies/impact.html", values, problem)


async def show_progress(visit: Visit) -> JsonAnswer:
    run = await visit.call(show_impact, impact_id=visit.required("id"))
    return JsonAnswer({"running": run.state == "running", "progress": run.progress})


async def start(visit: Visit) -> PageRedirect:
    form = visit.form
    fields: dict[str, Any] = whole_or_part(form)
    fields["policies"] = await read_policies(form.get("policies", ""))
    _, span = SINCE.get(form.get("since", ""), SINCE["week"])
    if span is not None:
        fields["from"] = rfc3339(visit.console.clock.now() - span)
    started = await visit.call(start_impact, **fields)
    return PageRedirect(address("/policies/impact", id=started.impact_id, done="started"))


async def cancel(visit: Visit) -> PageRedirect:
    impact_id = visit.required("id")
    await visit.call(cancel_impact, impact_id=impact_id)
    return PageRedirect(address("/policies/impact", id=impact_id, done="cancelled"))


def _result(visit: Visit, run: Any) -> dict[str, Any]:
    most = None if visit.query.get("groups") == "all" else GROUPS
    return {
        "groups": run.groups[:most],
        "more": most is not None and len(run.groups) > most,
        "progress_at": address("/policies/impact/progress", id=run.impact_id),
        "renamed": run.renamed.groups[:GROUPS],
    }


FAILURES = 100
"""The most failed cases that are shown."""


async def show_tests(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    return _tests(visit, None, problem)


async def run_tests(visit: Visit) -> HtmlPage:
    """Run the cases of a test file against the policies in force, or against a change of them."""
    fields = whole_or_part(visit.form)
    text = visit.form.text("policies")
    fields["policies"] = [] if text is None else await read_policies(text)
    if text is None:
        fields["keep_others"] = True
    answer = await visit.call(review_policies, tests=visit.required("tests"), **fields)
    return _tests(visit, orjson.loads(answer.body)["tests"], None)


def _tests(visit: Visit, result: dict[str, object] | None, problem: SluiceError | None) -> HtmlPage:
    values = {"given": visit.form, "result": result, "shown_failures": FAILURES}
    return HtmlPage("policies/tests.html", values, problem)


PAGES = (
    get("/policies/candidate", get_candidate, show_candidate),
    get("/policies/candidate/review", review_candidate, review),
    post("/candidate/promote", promote_candidate, promote, review),
    post("/candidate/discard", drop_candidate, discard, show_candidate),
    get("/policies/candidates", list_candidates, show_candidates),
    get("/policies/candidates/new", publish_candidate, show_new_candidate),
    post("/candidate/create", publish_candidate, create_candidate, show_new_candidate, MAX_FORM),
    get("/policies/impact", show_impact, show_impact_page),
    get("/policies/impact/progress", show_impact, show_progress),
    post("/impact/start", start_impact, start, show_impact_page, MAX_FORM),
    post("/impact/cancel", cancel_impact, cancel),
    get("/policies/tests", review_policies, show_tests),
    post("/policies/tests/run", review_policies, run_tests, show_tests, MAX_FORM),
)
