"""Shows the console's pages of policy tests, and of what recorded decisions would be under other
policies."""

from typing import Any

import orjson

from control_api.console.page import Data, Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.views.policies.policy_text import MAX_FORM, read_policies, whole_or_part
from control_api.console.visit import Visit, address
from control_api.policy.access_operations import review_policies
from control_api.policy.impact_operations import cancel_impact, show_impact, start_impact
from policies.ground.canonical import rfc3339
from policies.ground.errors import SluiceError

GROUPS = 50
"""Groups of decisions that are shown at first."""
_DAY = 86_400_000_000  # microseconds
SINCE = {"day": ("the last day", _DAY), "week": ("the last week", 7 * _DAY), "all": ("all", None)}
DONE = {
    "started": "The run has begun. It changes nothing.",
    "cancelled": "The run was cancelled. What it has counted stays.",
}


async def show_impact_page(visit: Visit, problem: SluiceError | None = None) -> Html:
    """A run with its result so far, and the form for another."""
    impact_id = visit.query.get("id") or visit.form.get("id")
    run = await visit.call(show_impact, impact_id=impact_id) if impact_id else None
    values = {
        "run": run,
        "given": visit.form,
        "periods": [(name, title) for name, (title, _) in SINCE.items()],
        "may_start": visit.may(start_impact),
        "done_text": DONE.get(visit.query.get("done", "")),
        "problem": problem,
        **(_result(visit, run) if run is not None else {}),
    }
    return Html("policies/impact.html", values, 200 if problem is None else problem.status)


async def show_progress(visit: Visit) -> Data:
    """How far a run has come."""
    run = await visit.call(show_impact, impact_id=visit.required("id"))
    return Data({"running": run.state == "running", "progress": run.progress})


async def start(visit: Visit) -> Html | See:
    """Start a run with the policies of the form."""
    form = visit.form
    try:
        fields: dict[str, Any] = whole_or_part(form)
        fields["policies"] = await read_policies(form.get("policies", ""))
        _, span = SINCE.get(form.get("since", ""), SINCE["week"])
        if span is not None:
            fields["from"] = rfc3339(visit.console.clock.now() - span)
        started = await visit.call(start_impact, **fields)
    except SluiceError as error:
        return await show_impact_page(visit, error)
    return See(address("/policies/impact", id=started.impact_id, done="started"))


async def cancel(visit: Visit) -> Html | See:
    """Cancel a run."""
    impact_id = visit.required("id")
    await visit.call(cancel_impact, impact_id=impact_id)
    return See(address("/policies/impact", id=impact_id, done="cancelled"))


def _result(visit: Visit, run: Any) -> dict[str, Any]:
    shown = None if visit.query.get("groups") == "all" else GROUPS
    return {
        "groups": run.groups[:shown],
        "more": shown is not None and len(run.groups) > shown,
        "progress_at": address("/policies/impact/progress", id=run.impact_id),
        "renamed": run.renamed.groups[:GROUPS],
    }


FAILURES = 100
"""Failed cases that are shown."""


async def show_tests(visit: Visit) -> Html:
    """The form for a file of tests."""
    return _page(visit, None, None)


async def run_tests(visit: Visit) -> Html:
    """Decide the cases of a file of tests, by the policies in force or by a change of them."""
    form = visit.form
    try:
        fields = whole_or_part(form)
        text = form.text("policies")
        fields["policies"] = [] if text is None else await read_policies(text)
        if text is None:
            fields["keep_others"] = True
        answer = await visit.call(review_policies, tests=visit.required("tests"), **fields)
    except SluiceError as error:
        return _page(visit, None, error)
    return _page(visit, orjson.loads(answer.body)["tests"], None)


def _page(visit: Visit, result: dict[str, object] | None, problem: SluiceError | None) -> Html:
    values = {"given": visit.form, "result": result, "shown_failures": FAILURES, "problem": problem}
    return Html("policies/tests.html", values, 200 if problem is None else problem.status)


PAGES = (
    Page("GET", f"{ROOT}/policies/impact", show_impact, show_impact_page),
    Page("GET", f"{ROOT}/policies/impact/progress", show_impact, show_progress),
    Page("POST", f"{ROOT}/impact/start", start_impact, start, MAX_FORM),
    Page("POST", f"{ROOT}/impact/cancel", cancel_impact, cancel),
    Page("GET", f"{ROOT}/policies/tests", review_policies, show_tests),
    Page("POST", f"{ROOT}/policies/tests/run", review_policies, run_tests, MAX_FORM),
)
