"""Reads from a running service which policies were in force at a time, by what its audit trail
recorded of them. Knows no proof.

    last change until then    the policy is as it was afterwards
    none, but one since       it is as it was before the first of these; what made it was purged
    no change at all          it is as it is now, if it was made before; what made it was purged
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from control_api.api_client.connection import RemoteApi
from control_api.api_client.key_file import ServiceUnusable
from policies.definitions.model import Policy
from policies.ground.canonical import NotCanonical, micros, rfc3339

CHANGES = "/v1/audit/changes"
POLICIES = "/v1/policies"
_ADDED = ("policy_id", "version", "user_modified", "file", "changed_by", "created_at", "updated_at")
"""Members of a policy that the service adds to its body."""

_BEGINS, _ENDS = ("created", "added"), ("deleted", "removed")
"""Actions before which, and after which, there is no such policy."""


class Held(NamedTuple):
    """A policy that was in force, and the recorded change that made it so; None if the entry was
    purged. `body` is the policy as a request sets it."""

    policy_id: str
    body: dict[str, Any]
    change: dict[str, Any] | None

    def policy(self) -> Policy:
        """The policy, to be analysed."""
        return Policy.from_wire({**self.body, "policy_id": self.policy_id, "version": 0})


def in_force(api: RemoteApi, at: int) -> list[Held]:
    """The policies in force at `at` (microseconds since 1970 UTC), by id. Raises
    `ServiceUnusable`."""
    until: dict[str, dict[str, Any]] = {}
    since: dict[str, dict[str, Any]] = {}
    try:
        for change in _all(api, CHANGES, {"object_type": "policy"}):
            # Newest first: of those until then the first one counts, of those since the last.
            if micros(change["timestamp"]) > at:
                since[change["object_id"]] = change
            else:
                until.setdefault(change["object_id"], change)
        ended = {id_ for id_, each in until.items() if each["action"] in _ENDS}
        held = [Held(id_, _body(until[id_], "after"), until[id_]) for id_ in until.keys() - ended]
        earlier = {id_ for id_, each in since.items() if each["action"] not in _BEGINS}
        for id_ in earlier - until.keys():
            held.append(Held(id_, _body(since[id_], "before"), None))
        for policy in _all(api, POLICIES, {}):
            if policy["policy_id"] not in {*until, *since} and micros(policy["created_at"]) <= at:
                body = {name: policy[name] for name in policy if name not in _ADDED}
                held.append(Held(policy["policy_id"], body, None))
    except (KeyError, TypeError, NotCanonical) as error:
        raise ServiceUnusable("the service's lists have another form: is it older?") from error
    return sorted(held, key=lambda each: each.policy_id)


def beginning(api: RemoteApi, at: int) -> str | None:
    """The time of the oldest change in the audit trail, which begins with one, if it is later than
    `at`; else None. Raises `ServiceUnusable`."""
    try:
        until = rfc3339(at + 1)
        if any(True for _ in _all(api, CHANGES, {"to": until})):
            return None
        newest_first = [str(each["timestamp"]) for each in _all(api, CHANGES, {})]
        return newest_first[-1] if newest_first else None
    except (KeyError, TypeError) as error:
        raise ServiceUnusable("the service's lists have another form: is it older?") from error


def _body(change: dict[str, Any], side: str) -> dict[str, Any]:
    body: dict[str, Any] | None = change[side]
    if body is None:
        raise ServiceUnusable(
            f"what policy `{change['object_id']}` was at {change['timestamp']} is not known: a "
            "version of before recorded the change, or the policy's history is not what the audit "
            "trail recorded (`sluice verify` says so)"
        )
    return body


def _all(api: RemoteApi, path: str, query: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    for page in api.pages(path, {**query, "limit": "1000"}):
        yield from page
