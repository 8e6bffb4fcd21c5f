"""The console's pages of policies: one candidate, its review, promoting and discarding it."""

from typing import Any

import orjson

from control_api.console.page import ROOT, Html, Page, See
from control_api.console.views.policies.refusal import broken_guardrail
from control_api.console.visit import Visit, address
from control_api.use_cases.candidates.drop_candidate import drop_candidate
from control_api.use_cases.candidates.get_candidate import get_candidate
from control_api.use_cases.candidates.promote_candidate import promote_candidate
from control_api.use_cases.candidates.review_candidate import review_candidate
from policies.ground.errors import Invalid, SluiceError

GROUPS = 50
"""Groups of decisions that are shown at first."""
ROWS = 200
"""Rows of what changes that are shown of each direction."""
NAMES = 100
"""Names of policies that are shown of each kind."""
DONE = {
    "created": "The candidate is evaluated from now on. Its counts begin with the next decision.",
}


async def show_candidate(visit: Visit, problem: SluiceError | None = None) -> Html:
    """What a candidate decided otherwise so far."""
    found = await visit.call(get_candidate, name=visit.required("id"))
    shown = len(found.groups) if visit.query.get("groups") == "all" else GROUPS
    values = {
        "candidate": found,
        "groups": found.groups[:shown],
        "more": len(found.groups) > shown,
        "may_change": visit.may(promote_candidate),
        "done_text": DONE.get(visit.query.get("done", "")),
        "problem": problem,
    }
    return Html("policies/candidate.html", values, 200 if problem is None else problem.status)


async def review(visit: Visit, problem: SluiceError | None = None) -> Html:
    """Exactly what a candidate would change, if it were promoted now."""
    name = visit.required("id")
    answer = await visit.call(review_candidate, name=name)
    found = orjson.loads(answer.body)
    values: dict[str, Any] = {
        "name": name,
        "reviewed": found["version"],
        "broken": found["broken_guardrails"],
        "may_promote": visit.may(promote_candidate),
        "problem": problem,
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
    return Html(
        "policies/review_candidate.html", values, 200 if problem is None else problem.status
    )


async def promote(visit: Visit) -> Html | See:
    """Put a candidate's policies in force, as they were reviewed."""
    name = visit.required("id")
    try:
        if visit.form.get("confirm") != "yes":
            raise Invalid("confirm that you have read what it changes")
        reviewed = visit.required("reviewed")
        await visit.call(promote_candidate, name=name, if_match=f'"{reviewed}"')
    except SluiceError as error:
        return await review(visit, error)
    return See(address("/policies/candidates", done="promoted"))


async def discard(visit: Visit) -> Html | See:
    """Drop a candidate, with everything that was counted of it."""
    name = visit.required("id")
    try:
        if visit.form.get("confirm") != "yes":
            raise Invalid("confirm that the candidate and its counts may go")
        await visit.call(drop_candidate, name=name)
    except SluiceError as error:
        return await show_candidate(visit, error)
    return See(address("/policies/candidates", done="discarded"))


PAGES = (
    Page("GET", f"{ROOT}/policies/candidate", get_candidate, show_candidate),
    Page("GET", f"{ROOT}/policies/candidate/review", review_candidate, review),
    Page("POST", f"{ROOT}/candidate/promote", promote_candidate, promote),
    Page("POST", f"{ROOT}/candidate/discard", drop_candidate, discard),
)
