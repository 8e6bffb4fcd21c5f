"""Shows in a table which role may read which source, and why."""

from typing import Any

import orjson

from control_api.console.page import HtmlPage, Visit, get
from control_api.console.words import in_words
from control_api.policy.access_operations import show_access, show_access_matrix
from control_api.policy.operations import list_policies
from policies.analysis.matrix import covering
from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import SluiceError

QUESTION = ("source_id", "agent_role", "agent_id", "task", "level")
MAX_POLICIES = 200
"""The most policies of a role whose clauses are shown."""


async def show_matrix(visit: Visit) -> HtmlPage:
    """Show a table of roles by sources. Each cell links to the reason for its answer."""
    given = visit.filled("agent_role", "source_id")
    values: dict[str, Any] = {"given": given, "matrix": None, "next": None}
    page = visit.filled("cursor", "source_after")
    try:
        found = await visit.call(show_access_matrix, limit="20", sources="10", **given, **page)
    except SluiceError as error:
        return HtmlPage("access/matrix.html", values, error)
    return HtmlPage("access/matrix.html", {**values, "matrix": found.response, "next": found.next})


async def show_why(visit: Visit) -> HtmlPage:
    """Show the exact answer to a question about access, and the clauses that decide it."""
    given = visit.filled(*QUESTION)
    values: dict[str, Any] = {
        "given": given,
        "levels": [("", "any"), *SENSITIVITIES],
        "rows": None,
        "clauses": [],
        "more_clauses": False,
    }
    problem = None
    try:
        if given:
            document = await visit.call(show_access, **given)
            values["rows"] = [in_words(each) for each in orjson.loads(document.body)["rows"]]
        if "agent_role" in given:
            values |= await _clauses(visit, given["agent_role"], given.get("source_id"))
    except SluiceError as error:
        problem = error
    return HtmlPage("access/why.html", values, problem)


async def _clauses(visit: Visit, role: str, source: str | None) -> dict[str, Any]:
    """Find the policies of the role, each with the entries that concern the source."""
    page = await visit.call(list_policies, agent_role=role, limit=str(MAX_POLICIES))
    found = []
    for each in sorted(page.rows, key=lambda policy: policy.name):
        allows, denies = (
            covering(entries, source) for entries in (each.allowed_sources, each.denied_sources)
        )
        if allows or denies:
            found.append({"policy": each, "allows": allows, "denies": denies})
    return {"clauses": found, "more_clauses": page.next is not None}


PAGES = (get("/access", show_access_matrix, show_matrix), get("/access/why", show_access, show_why))
