"""The console's pages of policies: the levels that the tenant states of its sources."""

from typing import Any

from control_api.console.page import Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.visit import Visit, address
from control_api.policy.source_operations import (
    MAX_LEVELS,
    SourceResponse,
    delete_source,
    list_sources,
    put_source,
)
from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import Invalid, NotFound, SluiceError

LIST = "/policies/sources"
DONE = {
    "put": "The level holds from now on, in every sidecar that reads the policy set.",
    "deleted": "The level is gone. Requests and the settings of sidecars decide alone.",
}


async def show_sources(visit: Visit) -> Html:
    """The levels, in order of pattern."""
    found = await visit.call(list_sources, limit="50", **visit.given("cursor"))
    values = {
        "sources": found.rows,
        "next": found.next,
        "may_change": visit.may(put_source),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return Html("policies/sources.html", values)


async def show_new_source(visit: Visit) -> Html:
    """The form for the level of a pattern."""
    return _page({"source_pattern": visit.query.get("source", "")}, None)


async def show_source(visit: Visit, problem: SluiceError | None = None) -> Html:
    """One level, with the forms that change and delete it."""
    pattern = visit.required("id")
    found = await _found(visit, pattern)
    if found is None:
        raise NotFound(f"no level is stated of `{pattern}`")
    level = visit.form.get("sensitivity_level") or found.sensitivity_level
    given = {"source_pattern": pattern, "sensitivity_level": level}
    return _page(given, problem, source=found)


async def put(visit: Visit) -> Html | See:
    """State the level of a new pattern, or of one that has a level."""
    try:
        pattern = visit.form.get("id") or visit.required("source_pattern")
        level = visit.required("sensitivity_level")
        await visit.call(put_source, source_pattern=pattern, sensitivity_level=level)
    except SluiceError as error:
        return await show_source(visit, error) if visit.form.get("id") else _page(visit.form, error)
    return See(address(LIST, done="put"))


async def delete(visit: Visit) -> Html | See:
    """State no level of a pattern any more."""
    try:
        if visit.form.get("confirm") != "yes":
            raise Invalid("confirm that requests and sidecars may state a lower level")
        await visit.call(delete_source, source_pattern=visit.required("id"))
    except SluiceError as error:
        return await show_source(visit, error)
    return See(address(LIST, done="deleted"))


async def _found(visit: Visit, pattern: str) -> SourceResponse | None:
    page = await visit.call(list_sources, limit=str(MAX_LEVELS))
    return next((each for each in page.rows if each.source_pattern == pattern), None)


def _page(given: Any, problem: SluiceError | None, **values: Any) -> Html:
    shown = {
        "given": given,
        "levels": SENSITIVITIES,
        "problem": problem,
        "source": None,
        **values,
    }
    return Html("policies/source.html", shown, 200 if problem is None else problem.status)


PAGES = (
    Page("GET", f"{ROOT}/policies/sources", list_sources, show_sources),
    Page("GET", f"{ROOT}/policies/sources/new", put_source, show_new_source),
    Page("GET", f"{ROOT}/policies/source", put_source, show_source),
    Page("POST", f"{ROOT}/source/put", put_source, put),
    Page("POST", f"{ROOT}/source/delete", delete_source, delete),
)
