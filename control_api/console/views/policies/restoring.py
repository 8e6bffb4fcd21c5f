"""The console's pages of policies: back to what a policy's file defines, reviewed first."""

import orjson

from control_api.console.page import ROOT, Html, Page, See
from control_api.console.views.policies.differences import field_changes, line_changes, shortened
from control_api.console.views.policies.policy_text import written
from control_api.console.views.policies.versions import body_of
from control_api.console.visit import Visit, address
from control_api.use_cases.policies.get_policy import get_policy
from control_api.use_cases.policies.restore_policy import restore_policy
from control_api.use_cases.policies.show_policy_file import show_policy_file
from control_api.use_cases.policy_tools.review_policies import review_policies
from policies.ground.errors import NotFound, SluiceError


async def review_restore(visit: Visit, problem: SluiceError | None = None) -> Html:
    """What a restore of the file's definition would do."""
    policy_id = visit.required("id")
    filed = body_of(await visit.call(show_policy_file, policy_id=policy_id))
    try:
        current = body_of(await visit.call(get_policy, policy_id=policy_id))
    except NotFound:
        current = None
    renamed = current is not None and current["name"] != filed["name"]
    answer = await visit.call(
        review_policies,
        policies=[filed],
        keep_others=True,
        without=[current["name"]] if current is not None and renamed else [],
    )
    values = {
        "policy_id": policy_id,
        "name": filed["name"],
        "deleted": current is None,
        "changed": field_changes(current, filed),
        "changed_lines": line_changes("" if current is None else written(current), written(filed)),
        **shortened(orjson.loads(answer.body)),
        "problem": problem,
    }
    return Html("policies/restore.html", values, 200 if problem is None else problem.status)


async def restore(visit: Visit) -> Html | See:
    """Restore the file's definition."""
    policy_id = visit.required("id")
    try:
        await visit.call(restore_policy, policy_id=policy_id)
    except SluiceError as error:
        return await review_restore(visit, error)
    return See(address("/policy", id=policy_id, done="restored"))


PAGES = (
    Page("GET", f"{ROOT}/policy/restore", restore_policy, review_restore),
    Page("POST", f"{ROOT}/policy/restore", restore_policy, restore),
)
