"""Shows the console's pages of the sensitivity levels that the tenant states for its sources."""

from typing import Any

from control_api.console.page import HtmlPage, PageRedirect, Visit, address, get, post
from control_api.policy.source_operations import MAX_LEVELS, delete_source, list_sources, put_source
from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import NotFound, SluiceError

LIST = "/policies/sources"
DONE = {
    "put": "The level holds from now on, in every sidecar that reads the policy set.",
    "deleted": "The level is gone. Requests and the settings of sidecars decide alone.",
}


async def show_sources(visit: Visit) -> HtmlPage:
    found = await visit.call(list_sources, limit="50", **visit.filled("cursor"))
    values = {
        "sources": found.rows,
        "next": found.next,
        "may_change": visit.may_call(put_source),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("policies/sources.html", values)


async def show_new_source(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    if visit.form.get("id"):
        return await show_source(visit, problem)
    return _page(visit.form or {"source_pattern": visit.query.get("source", "")}, problem)


async def show_source(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    pattern = visit.required("id")
    page = await visit.call(list_sources, limit=str(MAX_LEVELS))
    found = next((each for each in page.rows if each.source_pattern == pattern), None)
    if found is None:
        raise NotFound(f"no level is stated of `{pattern}`")
    level = visit.form.get("sensitivity_level") or found.sensitivity_level
    given = {"source_pattern": pattern, "sensitivity_level": level}
    return _page(given, problem, source=found)


async def put(visit: Visit) -> PageRedirect:
    """Set the sensitivity level of a source pattern, whether the pattern is new or has a level
    already."""
    pattern = visit.form.get("id") or visit.required("source_pattern")
    level = visit.required("sensitivity_level")
    await visit.call(put_source, source_pattern=pattern, sensitivity_level=level)
    return PageRedirect(address(LIST, done="put"))


async def delete(visit: Visit) -> PageRedirect:
    visit.form.require_confirmed("that requests and sidecars may state a lower level")
    await visit.call(delete_source, source_pattern=visit.required("id"))
    return PageRedirect(address(LIST, done="deleted"))


def _page(given: Any, problem: SluiceError | None, **values: Any) -> HtmlPage:
    common = {"given": given, "levels": SENSITIVITIES, "source": None}
    return HtmlPage("policies/source.html", {**common, **values}, problem)


PAGES = (
    get("/policies/sources", list_sources, show_sources),
    get("/policies/sources/new", put_source, show_new_source),
    get("/policies/source", put_source, show_source),
    post("/source/put", put_source, put, show_new_source),
    post("/source/delete", delete_source, delete, show_source),
)
