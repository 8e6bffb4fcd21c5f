"""Reads versions of a policy. Knows no page."""

from typing import Any

from control_api.console.visit import Visit
from control_api.responses.management import PolicyFields, PolicyShown, PolicyVersion
from control_api.responses.paging import write_cursor
from control_api.use_cases.policies.list_policy_versions import list_policy_versions
from policies.definitions.policy_form import FIELDS
from policies.ground.errors import Invalid, NotFound


def body_of(policy: PolicyShown | PolicyFields) -> dict[str, Any]:
    """What an author writes of a policy."""
    return {name: getattr(policy, name) for name in FIELDS}


def read_version(text: str) -> int:
    """The number of a version. Raises `Invalid`."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Invalid("a version is a number")
    return int(text)


async def version_of(visit: Visit, policy_id: str, number: int) -> PolicyVersion:
    """Raises `NotFound` if the policy has no such version."""
    found = await newest_before(visit, policy_id, number + 1)
    if found is None or found.version != number:
        raise NotFound(f"the policy has no version {number}")
    return found


async def newest_before(visit: Visit, policy_id: str, number: int) -> PolicyVersion | None:
    """The newest version below `number`."""
    cursor = write_cursor((number,))
    page = await visit.call(list_policy_versions, policy_id=policy_id, limit="1", cursor=cursor)
    return page.rows[0] if page.rows else None
