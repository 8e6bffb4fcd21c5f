"""Plans which policies would be added, updated and removed by a reload of a tenant's files, or by
the promotion of a candidate."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from control_api.policy.models import bodies_of
from control_api.policy.policy_change import Changed
from control_api.store.queries.policy_rows import StoredPolicy
from policies.definitions.definition import Definition
from policies.ground.canonical import encode


@dataclass(slots=True)
class Plan:
    """The changes that a reload of a tenant's files makes: the rows to write, and the names of the
    policies that stay as they are. Rows in `moved` get no new version, because only the path of
    their file, or the body that the file defines, changes."""

    added: list[StoredPolicy] = field(default_factory=list)
    updated: list[StoredPolicy] = field(default_factory=list)
    removed: list[StoredPolicy] = field(default_factory=list)
    moved: list[StoredPolicy] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    taken: list[Definition] = field(default_factory=list)
    """The definitions whose name another active policy already uses."""
    roles: set[str] = field(default_factory=set)
    """The roles whose documents must be published again."""
    replaced: dict[str, StoredPolicy] = field(default_factory=dict)
    """The rows in `updated`, `removed` and `moved` as they were before the change, by policy id."""
    removes_last: bool = False
    """True if the plan removes the tenant's last active policy. It is set when the plan is written,
    since it is not known before."""

    @property
    def changes(self) -> list[tuple[str, list[StoredPolicy]]]:
        """The rows that get a new version, in pairs of the kind of change, as the policy's history
        calls it, and its rows."""
        every = (("added", self.added), ("updated", self.updated), ("removed", self.removed))
        return [(change, rows) for change, rows in every if rows]

    @property
    def writes(self) -> bool:
        return bool(self.changes or self.moved)


def plan(
    definitions: Iterable[Definition],
    of_files: Iterable[StoredPolicy],
    names: set[str],
    now: int,
    new_id: Callable[[], str],
) -> Plan:
    """Compare the definitions in a tenant's files with its rows, and return the changes. `of_files`
    are the rows that a file has defined so far, including deleted ones. `names` are the names,
    among those of the definitions, that active policies already use."""
    # By the name in the file, because a user may have renamed the policy.
    known = {row.file_body["name"]: row for row in of_files if row.file_body is not None}
    result = Plan()
    for definition in definitions:
        row = known.pop(definition.body["name"], None)
        if row is not None:
            _keep(result, definition, row, now)
        elif definition.body["name"] in names:
            result.taken.append(definition)
        else:
            result.added.append(first_version(new_id(), definition.body, now, definition.file))
            result.roles.add(definition.body["agent_role"])
    for left in known.values():
        _drop(result, left, now)
    return result


def _keep(result: Plan, definition: Definition, row: StoredPolicy, now: int) -> None:
    """Plan the change of a policy that has a row and is still defined by a file."""
    # A user's version stays in force, but the version that a restore brings back follows the file.
    placed = replace(row, file=definition.file, file_body=definition.body)
    name = definition.body["name"]
    if row.user_modified or row.deleted_at is not None:
        # A user's change, or deletion, takes precedence until the user restores the policy.
        result.skipped.append(name)
    elif not _same(row.body, definition.body):
        role = definition.body["agent_role"]
        changed = replace(placed, name=name, agent_role=role, body=definition.body)
        result.updated.append(replace(changed, version=row.version + 1, updated_at=now))
        result.roles |= {row.agent_role, role}
        result.replaced[row.policy_id] = row
        return
    else:
        result.unchanged.append(name)
    if row.file != placed.file or not _same(row.file_body, placed.file_body):
        result.moved.append(placed)
        result.replaced[row.policy_id] = row


def _drop(result: Plan, row: StoredPolicy, now: int) -> None:
    """Plan the change of a policy that no file defines any more."""
    # The row loses its file, so that a later definition with its name makes a new policy.
    detached = replace(row, file=None, file_body=None)
    result.replaced[row.policy_id] = row
    if row.deleted_at is not None:
        result.moved.append(detached)
    elif row.user_modified:
        result.skipped.append(row.name)
        result.moved.append(detached)
    else:
        version = row.version + 1
        result.removed.append(replace(detached, version=version, updated_at=now, deleted_at=now))
        result.roles.add(row.agent_role)


def first_version(
    policy_id: str, body: dict[str, Any], now: int, file: str | None = None
) -> StoredPolicy:
    """Return the row of a new policy, at version 1. `file` is the path of the file that defines it,
    or None if a request does."""
    return StoredPolicy(
        policy_id=policy_id,
        name=body["name"],
        agent_role=body["agent_role"],
        body=body,
        version=1,
        user_modified=False,
        file=file,
        file_body=None if file is None else body,
        created_at=now,
        updated_at=now,
        deleted_at=None,
    )


def _same(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    """Return whether two policy bodies are the same, byte for byte."""
    # Python's `==` would not do: to it, `1` and `True` are equal.
    return encode(one) == encode(other)


@dataclass(slots=True)
class Promotion:
    """The changes that the promotion of a candidate makes: rows before and after, and the names of
    the policies that stay as they are."""

    added: list[Changed] = field(default_factory=list)
    updated: list[Changed] = field(default_factory=list)
    removed: list[Changed] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)

    @property
    def changes(self) -> list[tuple[str, list[Changed]]]:
        """The rows that get a new version, in pairs of the kind of change, as the policy's history
        calls it, and its rows."""
        every = (("created", self.added), ("updated", self.updated), ("deleted", self.removed))
        return [(change, rows) for change, rows in every if rows]

    @property
    def roles(self) -> set[str]:
        """The roles whose documents must be published again."""
        rows = (row for _, changed in self.changes for each in changed for row in each)
        return {row.agent_role for row in rows if row is not None}


def promotion(
    active: Iterable[StoredPolicy], documents: Iterable[bytes], now: int, new_id: Callable[[], str]
) -> Promotion:
    """Compare a candidate's policies with those in force, and return the changes. `active` are the
    rows in force, `documents` those of the candidate's roles."""
    known = {row.name: row for row in active}
    result = Promotion()
    bodies = (body for document in documents for body in bodies_of(orjson.loads(document)))
    for body in sorted(bodies, key=lambda body: str(body["name"])):
        row = known.pop(body["name"], None)
        if row is None:
            added = replace(first_version(new_id(), body, now), user_modified=True)
            result.added.append(Changed(None, added))
        elif _same(row.body, body):
            result.unchanged.append(row.name)
        else:
            role, version = body["agent_role"], row.version + 1
            changed = replace(row, agent_role=role, body=body, version=version, updated_at=now)
            result.updated.append(Changed(row, replace(changed, user_modified=True)))
    for row in known.values():
        deleted = replace(row, version=row.version + 1, updated_at=now, deleted_at=now)
        result.removed.append(Changed(row, deleted))
    return result
