"""Shows the console's pages of guardrails."""

from typing import Any

from control_api.console.page import Form, HtmlPage, PageRedirect, Visit, address, get, post
from control_api.console.views.policies.editor import broken_guardrail
from control_api.policy.guardrail_operations import (
    create_guardrail,
    delete_guardrail,
    get_guardrail,
    list_guardrails,
    replace_guardrail,
)
from policies.definitions.guardrail import KINDS
from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import Invalid, SluiceError

LISTS = ("roles", "except_roles", "sources", "agents", "tasks")
"""The members of a rule that are lists of names. A form has one name in each line."""
DONE = {
    "created": "The guardrail holds from now on.",
    "replaced": "The guardrail was changed.",
    "deleted": "The guardrail is gone. Policies may do what it forbade.",
}


async def show_guardrails(visit: Visit) -> HtmlPage:
    found = await visit.call(list_guardrails, limit="50", **visit.filled("cursor"))
    values = {
        "guardrails": found.rows,
        "next": found.next,
        "may_create": visit.may_call(create_guardrail),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("policies/guardrails.html", values)


async def show_guardrail(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    found = await visit.call(get_guardrail, name=visit.required("id"))
    given = visit.form if visit.form.get("kind") else _given(found)
    may_change = visit.may_call(replace_guardrail) and found.source == "api"
    return _page(given, problem, guardrail=found, may_change=may_change)


async def show_new_guardrail(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    return _page(visit.form or {"name": visit.query.get("name", "")}, problem)


async def create(visit: Visit) -> PageRedirect:
    await visit.call(create_guardrail, name=visit.required("name"), **_rule(visit.form))
    return PageRedirect(address("/policies/guardrails", done="created"))


async def replace(visit: Visit) -> PageRedirect:
    await visit.call(replace_guardrail, name=visit.required("id"), **_rule(visit.form))
    return PageRedirect(address("/policies/guardrails", done="replaced"))


async def delete(visit: Visit) -> PageRedirect:
    visit.form.require_confirmed("that policies may do what the guardrail forbids")
    await visit.call(delete_guardrail, name=visit.required("id"))
    return PageRedirect(address("/policies/guardrails", done="deleted"))


def _rule(form: Form) -> dict[str, Any]:
    """Read the rule of a form: `{never: {…}}` or `{always: {…}}`."""
    kind = form.get("kind", "")
    if kind not in KINDS:
        raise Invalid("choose whether the rule says `never` or `always`")
    members: dict[str, Any] = {name: lines for name in LISTS if (lines := form.lines(name))}
    if levels := form.all("levels"):
        members["levels"] = levels
    return {kind: members}


def _given(guardrail: Any) -> dict[str, Any]:
    """Return the form's fields, filled in from the guardrail."""
    kind = "never" if guardrail.never is not None else "always"
    about = getattr(guardrail, kind)
    lists = {name: "\n".join(getattr(about, name) or ()) for name in LISTS}
    return {"kind": kind, "levels": about.levels or (), **lists}


def _page(given: Any, problem: SluiceError | None, **values: Any) -> HtmlPage:
    levels = given.all("levels") if isinstance(given, Form) else given.get("levels", ())
    common = {
        "given": given,
        "levels": [(each, each in levels) for each in SENSITIVITIES],
        "refused_by": broken_guardrail(problem),
        "guardrail": None,
        "may_change": True,
    }
    return HtmlPage("policies/guardrail.html", {**common, **values}, problem)


PAGES = (
    get("/policies/guardrails", list_guardrails, show_guardrails),
    get("/policies/guardrails/new", create_guardrail, show_new_guardrail),
    get("/policies/guardrail", get_guardrail, show_guardrail),
    post("/guardrail/create", create_guardrail, create, show_new_guardrail),
    post("/guardrail/replace", replace_guardrail, replace, show_guardrail),
    post("/guardrail/delete", delete_guardrail, delete, show_guardrail),
)
