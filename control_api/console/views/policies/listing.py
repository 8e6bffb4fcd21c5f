"""The console's pages of policies: those in force, and a reload of the files."""

from control_api.console.page import ROOT, Html, Page, See
from control_api.console.visit import Visit, address
from control_api.use_cases.policies.create_policy import create_policy
from control_api.use_cases.policies.list_policies import list_policies
from control_api.use_cases.policies.reload_policies import reload_policies
from policies.ground.errors import SluiceError

FILTERS = ("name", "source", "agent_role", "industry", "process_group")
SOURCES = 4
"""Sources of a policy that the list names."""


async def show_policies(visit: Visit, problem: SluiceError | None = None) -> Html:
    """The policies in force that match the query, newest first, 50 on a page."""
    given = visit.given(*FILTERS)
    found = None
    try:
        found = await visit.call(list_policies, limit="50", **given, **visit.given("cursor"))
    except SluiceError as error:
        problem = problem or error
    values = {
        "policies": found,
        "given": given,
        "shown_sources": SOURCES,
        "may_create": visit.may(create_policy),
        "may_reload": visit.may(reload_policies),
        "reloaded": visit.query.get("reloaded") == "yes",
        "problem": problem,
    }
    return Html("policies/list.html", values, 200 if problem is None else problem.status)


async def reload_files(visit: Visit) -> Html | See:
    """Take over what the policy files say now."""
    try:
        await visit.call(reload_policies)
    except SluiceError as error:
        return await show_policies(visit, error)
    return See(address("/policies", reloaded="yes"))


PAGES = (
    Page("GET", f"{ROOT}/policies", list_policies, show_policies),
    Page("POST", f"{ROOT}/policies/reload", reload_policies, reload_files),
)
