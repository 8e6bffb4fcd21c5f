"""The console's pages of policies: the candidates, and a new one."""

from control_api.console.page import ROOT, Html, Page, See
from control_api.console.views.policies.policy_text import MAX_FORM, read_policies, whole_or_part
from control_api.console.visit import Visit, address
from control_api.use_cases.candidates.list_candidates import list_candidates
from control_api.use_cases.candidates.publish_candidate import publish_candidate
from policies.definitions.model import MAX_CANDIDATES
from policies.ground.errors import Conflict, SluiceError

DONE = {
    "promoted": "The candidate's policies are in force now.",
    "discarded": "The candidate is gone. What is in force stayed as it was.",
}


async def show_candidates(visit: Visit) -> Html:
    """The candidates, with what each decided otherwise so far."""
    found = await visit.call(list_candidates)
    values = {
        "candidates": found.rows,
        "may_create": visit.may(publish_candidate),
        "most": MAX_CANDIDATES,
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return Html("policies/candidates.html", values)


async def show_new_candidate(visit: Visit) -> Html:
    """The form for a candidate."""
    return _form(visit.given("name"))


async def create_candidate(visit: Visit) -> Html | See:
    """Create a candidate from a text. Without a name the form is shown, with the text in it."""
    form = visit.form
    name = form.text("name")
    if name is None:
        return _form(form)
    try:
        policies = await read_policies(form.get("policies", ""))
        if not form.get("replace"):
            await _require_free(visit, name)
        await visit.call(publish_candidate, name=name, policies=policies, **whole_or_part(form))
    except SluiceError as error:
        return _form(form, error)
    return See(address("/policies/candidate", id=name, done="created"))


async def _require_free(visit: Visit, name: str) -> None:
    found = await visit.call(list_candidates)
    if name in (each.name for each in found.rows):
        raise Conflict(
            f"there is a candidate `{name}` already: take another name, or replace it, and what "
            "was counted of it begins again"
        )


def _form(given: dict[str, str], problem: SluiceError | None = None) -> Html:
    values = {
        "given": given,
        "problem": problem,
        "taken": isinstance(problem, Conflict) and bool(given.get("name")),
    }
    return Html("policies/new_candidate.html", values, 200 if problem is None else problem.status)


PAGES = (
    Page("GET", f"{ROOT}/policies/candidates", list_candidates, show_candidates),
    Page("GET", f"{ROOT}/policies/candidates/new", publish_candidate, show_new_candidate),
    Page("POST", f"{ROOT}/candidate/create", publish_candidate, create_candidate, MAX_FORM),
)
