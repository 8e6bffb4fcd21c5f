"""Plans what a promotion changes: the active policies become those of a candidate.

Pure: rows and documents in, new rows out. Knows no transaction.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from control_api.domain.policy_change import Changed
from control_api.domain.policy_plan import first_version
from control_api.store.queries.policies import StoredPolicy
from policies.ground.canonical import encode


@dataclass(slots=True)
class Promotion:
    """The rows before and after, and the names of the policies that stay as they are."""

    added: list[Changed] = field(default_factory=list)
    updated: list[Changed] = field(default_factory=list)
    removed: list[Changed] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)

    @property
    def changes(self) -> list[tuple[str, list[Changed]]]:
        """The rows that get a new version, by the change's name in their history."""
        every = (("created", self.added), ("updated", self.updated), ("deleted", self.removed))
        return [(change, rows) for change, rows in every if rows]

    @property
    def roles(self) -> set[str]:
        """The roles whose documents must be published again."""
        rows = (row for _, changed in self.changes for each in changed for row in each)
        return {row.agent_role for row in rows if row is not None}


def promotion(
    active: Iterable[StoredPolicy],
    documents: Iterable[bytes],
    now: int,
    new_id: Callable[[], str],
) -> Promotion:
    """`active` are the rows in force, `documents` those of the candidate's roles."""
    known = {row.name: row for row in active}
    result = Promotion()
    for body in sorted(_bodies(documents), key=lambda body: str(body["name"])):
        row = known.pop(body["name"], None)
        if row is None:
            added = replace(first_version(new_id(), body, now), user_modified=True)
            result.added.append(Changed(None, added))
        # Compare bytes: to Python, `1` and `True` are equal.
        elif encode(row.body) == encode(body):
            result.unchanged.append(row.name)
        else:
            result.updated.append(Changed(row, _updated(row, body, now)))
    for row in known.values():
        deleted = replace(row, version=row.version + 1, updated_at=now, deleted_at=now)
        result.removed.append(Changed(row, deleted))
    return result


def _bodies(documents: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for document in documents:
        for wire in orjson.loads(document):
            # What a decision cites of a policy is not part of its body.
            del wire["policy_id"], wire["version"]
            yield wire


def _updated(row: StoredPolicy, body: dict[str, Any], now: int) -> StoredPolicy:
    return replace(
        row,
        agent_role=body["agent_role"],
        body=body,
        version=row.version + 1,
        user_modified=True,
        updated_at=now,
    )
