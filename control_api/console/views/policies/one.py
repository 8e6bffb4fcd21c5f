"""The console's pages of policies: one of them, and its deletion."""

from dataclasses import asdict

import orjson

from control_api.console.page import ROOT, Html, Page, See
from control_api.console.views.policies.differences import shortened
from control_api.console.views.policies.policy_text import written
from control_api.console.views.policies.versions import body_of
from control_api.console.visit import Visit, address
from control_api.responses.management import PolicyShown
from control_api.use_cases.policies.delete_policy import delete_policy
from control_api.use_cases.policies.get_policy import get_policy
from control_api.use_cases.policies.list_policies import list_policies
from control_api.use_cases.policies.replace_policy import replace_policy
from control_api.use_cases.policies.restore_policy import restore_policy
from control_api.use_cases.policy_tools.review_policies import review_policies
from policies.analysis.agentless import Escape, escapes
from policies.definitions.model import Policy
from policies.ground.errors import SluiceError

DONE = {
    "created": "The policy is in force.",
    "saved": "The change is in force. The version before it is in the history.",
    "unchanged": "The text says what is in force already: nothing was changed.",
    "restored": "The policy is as its file defines it, and follows the file again.",
}


async def show_policy(visit: Visit) -> Html:
    """A policy in force: its text, and where it comes from."""
    policy = await visit.call(get_policy, policy_id=visit.required("id"))
    values = {
        "policy": policy,
        "escapes": await _escapes(visit, policy),
        "lines": [(line, ()) for line in written(body_of(policy)).splitlines()],
        "may_change": visit.may(replace_policy),
        "may_delete": visit.may(delete_policy),
        "may_restore": visit.may(restore_policy),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return Html("policies/one.html", values)


async def _escapes(visit: Visit, policy: PolicyShown) -> list[Escape]:
    """The policy's denials that a call without an agent escapes."""
    if not policy.permitted_agent_ids:
        return []
    page = await visit.call(list_policies, agent_role=policy.agent_role, limit="1000")
    beside = [Policy.from_wire(asdict(each)) for each in page.rows]
    return [each for each in escapes(beside) if each.policy.policy_id == policy.policy_id]


async def review_deletion(visit: Visit, problem: SluiceError | None = None) -> Html:
    """What a policy's deletion would do."""
    policy = await visit.call(get_policy, policy_id=visit.required("id"))
    answer = await visit.call(review_policies, policies=[], keep_others=True, without=[policy.name])
    values = {"policy": policy, **shortened(orjson.loads(answer.body)), "problem": problem}
    return Html("policies/delete.html", values, 200 if problem is None else problem.status)


async def delete(visit: Visit) -> Html | See:
    """Delete a policy."""
    policy_id = visit.required("id")
    try:
        await visit.call(delete_policy, policy_id=policy_id)
    except SluiceError as error:
        return await review_deletion(visit, error)
    return See(address("/policy/history", id=policy_id, done="deleted"))


PAGES = (
    Page("GET", f"{ROOT}/policy", get_policy, show_policy),
    Page("GET", f"{ROOT}/policy/delete", delete_policy, review_deletion),
    Page("POST", f"{ROOT}/policy/delete", delete_policy, delete),
)
