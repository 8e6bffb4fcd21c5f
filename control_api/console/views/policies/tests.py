"""The console's pages of policies: tests."""

import orjson

from control_api.console.page import ROOT, Html, Page
from control_api.console.views.policies.policy_text import MAX_FORM, read_policies, whole_or_part
from control_api.console.visit import Visit
from control_api.use_cases.policy_tools.review_policies import review_policies
from policies.ground.errors import SluiceError

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
    Page("GET", f"{ROOT}/policies/tests", review_policies, show_tests),
    Page("POST", f"{ROOT}/policies/tests/run", review_policies, run_tests, MAX_FORM),
)
